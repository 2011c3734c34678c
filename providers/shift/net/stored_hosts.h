// What a store on the network (RedisStore) says of hosts: at which addresses their processes can be
// reached. This asks it, keeps its answers for a while, and tells it of this host. Used on the
// control loop only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "net/reactor.h"
#include "net/redis_store.h"
#include "wire/names.h"

namespace shift::net {

class StoredHosts {
 public:
  // The store is not asked again so soon after it has named addresses, or has had none to name. A
  // peer that has just started writes its addresses while searches for it go on already.
  static constexpr std::chrono::milliseconds kFreshFor{250}, kUnknownFor{50};
  // An address may be another host's after the time for which the store itself keeps it.
  static constexpr std::chrono::seconds kBelievedFor = RedisOptions().expiry;
  static constexpr size_t kKnownMax = 4096;

  // `listen` is called with the address from which this process reaches the store, once it is
  // known: peers can reach the process there, too.
  StoredHosts(Reactor& reactor, RedisServer server, std::function<void(uint32_t ip_be)> listen);

  // What the store has said of the GID, kBelievedFor ago at most. Network byte order.
  std::vector<uint32_t> known(const wire::Gid& gid) const;
  // Asks the store. `then` runs once, never from inside this call; it does not when this object is
  // gone before. False, and nothing is done, if its last answer is fresh.
  bool look_up(const wire::Gid& gid, StoredCallback then);
  // This host's GIDs and addresses are these from now on.
  void serve(std::vector<wire::Gid> gids, std::vector<uint32_t> addresses_be);

 private:
  using Clock = Reactor::Clock;
  struct Known {
    std::vector<uint32_t> addresses_be;
    Clock::time_point fresh_until, believed_until;
  };

  void announce();
  void address_changed();
  void answered(const wire::Gid& gid, std::vector<uint32_t> addresses_be, Stored stored);

  const std::function<void(uint32_t)> listen_;
  std::map<wire::Gid, Known> known_;
  std::multimap<wire::Gid, StoredCallback> asking_;
  std::vector<wire::Gid> gids_;
  std::vector<uint32_t> addresses_be_;
  RedisStore store_;  // last: its callbacks use the others
};

}  // namespace shift::net
