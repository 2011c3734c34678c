// Whether SHIFT runs at the other end of a connection that is being made.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "wire/names.h"

namespace shift::net {

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

  // In network byte order.
  struct Addresses {
    uint32_t local_ip_be, remote_ip_be;
  };
  using Find = std::function<std::optional<Addresses>()>;

  // `find` tells where the two GIDs are reached, if that has to be known, and bounds itself. No
  // answer from there in `patience` is a no.
  bool at(const wire::Gid& local, const wire::Gid& remote, const Find& find);

 private:
  static constexpr size_t kKnownMax = 4096;

  struct Answer {
    bool is_there;
    Clock::time_point since;
  };

  bool ask(Addresses addresses) const;

  const uint16_t port_;
  const std::chrono::milliseconds patience_, kept_for_;
  std::mutex mutex_;
  std::map<std::pair<wire::Gid, wire::Gid>, Answer> known_;  // local and remote
};

}  // namespace shift::net
