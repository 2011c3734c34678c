// Finds out whether SHIFT runs at the peer of a connection that is being made.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "wire/names.h"

namespace shift::net {

// Connects to the rendezvous port of the peer's address. The peer's kernel accepts or refuses, so
// the answer takes one round trip, however busy the peer's processes are. Any thread may ask.
class Presence {
 public:
  using Clock = std::chrono::steady_clock;
  // Only a host that drops connection requests makes the caller wait that long.
  static constexpr std::chrono::milliseconds kPatience{100};
  // An answer serves all QPs that are made to one address at about one time. It is not kept longer,
  // because another host may get the address later.
  static constexpr std::chrono::milliseconds kKeptFor{1000};

  explicit Presence(uint16_t port, std::chrono::milliseconds patience = kPatience,
                    std::chrono::milliseconds kept_for = kKeptFor)
      : ports_{port}, patience_(patience), kept_for_(kept_for) {}
  // The ports at which the peer may listen, one for each job key. To be called before at().
  void ports_set(std::vector<uint16_t> ports) { ports_ = std::move(ports); }

  // The addresses are in network byte order.
  struct Addresses {
    uint32_t local_ip_be, remote_ip_be;
  };
  using Find = std::function<std::optional<Addresses>()>;
  using FindMore = std::function<std::vector<Addresses>()>;

  // Whether SHIFT runs at the remote GID. `find` gives the addresses of the two GIDs and bounds its
  // own time; it runs only when no answer is kept. Without an answer within `patience`, or without
  // addresses, the host is asked at all pairs of addresses that `find_more` gives, for as long.
  bool at(const wire::Gid& local, const wire::Gid& remote, const Find& find,
          const FindMore& find_more = {});

 private:
  static constexpr size_t kKnownMax = 4096;

  struct Answer {
    bool is_there;
    Clock::time_point since;
  };

  enum class Reply : uint8_t { kYes, kNobody, kSilent };
  // The first yes; otherwise kNobody if any of them says so.
  Reply ask(const std::vector<Addresses>& pairs) const;

  std::vector<uint16_t> ports_;
  const std::chrono::milliseconds patience_, kept_for_;
  std::mutex mutex_;
  std::map<std::pair<wire::Gid, wire::Gid>, Answer> known_;  // by local and remote GID
};

}  // namespace shift::net
