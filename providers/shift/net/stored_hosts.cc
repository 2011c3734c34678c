#include "net/stored_hosts.h"

#include <algorithm>
#include <utility>

namespace shift::net {

StoredHosts::StoredHosts(Reactor& reactor, RedisServer server, std::function<void(uint32_t)> listen)
    : listen_(std::move(listen)),
      store_(reactor, std::move(server), [this] { address_changed(); }) {}

std::vector<uint32_t> StoredHosts::known(const wire::Gid& gid) const {
  const auto found = known_.find(gid);
  const bool is_believed = found != known_.end() && Clock::now() < found->second.believed_until;
  return is_believed ? found->second.addresses_be : std::vector<uint32_t>{};
}

bool StoredHosts::look_up(const wire::Gid& gid, StoredCallback then) {
  const auto found = known_.find(gid);
  if (found != known_.end() && Clock::now() < found->second.fresh_until) return false;
  const bool is_first = !asking_.contains(gid);
  asking_.emplace(gid, std::move(then));
  if (is_first)
    store_.ask(gid, [this, gid](std::vector<uint32_t> addresses_be, Stored stored) {
      answered(gid, std::move(addresses_be), stored);
    });
  return true;
}

// A store that is away does not unsay what it said.
void StoredHosts::answered(const wire::Gid& gid, std::vector<uint32_t> addresses_be,
                           Stored stored) {
  const auto now = Clock::now();
  if (stored == Stored::kFound) {
    if (known_.size() >= kKnownMax) known_.clear();
    known_[gid] = {std::move(addresses_be), now + kFreshFor, now + kBelievedFor};
  } else if (stored == Stored::kUnknown) {
    if (known_.size() >= kKnownMax) known_.clear();
    known_[gid] = {{}, now + kUnknownFor, now};
  }
  std::vector<StoredCallback> askers;
  const auto [begin, end] = asking_.equal_range(gid);
  for (auto it = begin; it != end; ++it) askers.push_back(std::move(it->second));
  asking_.erase(begin, end);
  for (const StoredCallback& then : askers) then(stored);
}

void StoredHosts::serve(std::vector<wire::Gid> gids, std::vector<uint32_t> addresses_be) {
  gids_ = std::move(gids);
  addresses_be_ = std::move(addresses_be);
  announce();
}

void StoredHosts::announce() {
  std::vector<uint32_t> all = addresses_be_;
  const uint32_t own = store_.local_address();
  if (own != 0 && std::ranges::find(all, own) == all.end()) all.push_back(own);
  if (!gids_.empty() && !all.empty()) store_.announce(gids_, std::move(all));
}

void StoredHosts::address_changed() {
  if (const uint32_t own = store_.local_address()) listen_(own);
  announce();
}

}  // namespace shift::net
