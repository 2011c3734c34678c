// Whether SHIFT runs at the other end of a connection that is being made.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace shift::control {

// Asks the rendezvous port of the peer's address. It is the peer's kernel that accepts or refuses,
// so the answer takes one round trip, however busy the processes there are. From any thread.
class Presence {
 public:
  using Clock = std::chrono::steady_clock;
  // Only hosts that throw connection requests away let us wait that long.
  static constexpr std::chrono::milliseconds kPatience{100};
  // Many QPs to one address are made in one go. Later somebody else may live there.
  static constexpr std::chrono::milliseconds kKeptFor{1000};

  explicit Presence(uint16_t port, std::chrono::milliseconds patience = kPatience,
                    std::chrono::milliseconds kept_for = kKeptFor)
      : port_(port), patience_(patience), kept_for_(kept_for) {}

  // Addresses in network byte order. No answer in time is a no. Waits for `patience` at most.
  bool at(uint32_t local_ip_be, uint32_t remote_ip_be);

 private:
  static constexpr size_t kKnownMax = 4096;

  struct Answer {
    bool is_there;
    Clock::time_point since;
  };

  bool ask(uint32_t local_ip_be, uint32_t remote_ip_be) const;

  const uint16_t port_;
  const std::chrono::milliseconds patience_, kept_for_;
  std::mutex mutex_;
  std::map<std::pair<uint32_t, uint32_t>, Answer> known_;  // by local and remote address
};

}  // namespace shift::control
