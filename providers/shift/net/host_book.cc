#include "net/host_book.h"

#include <algorithm>
#include <utility>

#include "util/planted.h"

namespace shift::net {

namespace {

// A clock that was set back makes what was seen before look as if it came from the future.
constexpr int64_t kAhead_s = 86400;

bool has(const std::vector<uint32_t>& addresses, uint32_t ip_be) {
  return std::ranges::find(addresses, ip_be) != addresses.end();
}

}  // namespace

HostBook::HostBook(HostMap map, std::unique_ptr<HostMemory> memory, Clock clock)
    : map_(std::move(map)), memory_(std::move(memory)), clock_(std::move(clock)) {}

std::vector<uint32_t> HostBook::others(const wire::Gid& gid) {
  std::vector<uint32_t> found;
  const auto add = [&](uint32_t ip_be) {
    if (ip_be != gid.ipv4() && !has(found, ip_be) && found.size() < kAddressesMax)
      found.push_back(ip_be);
  };
  for (const uint32_t ip_be : map_.addresses_of(gid.raw)) add(ip_be);
  if (memory_ == nullptr) return found;
  const int64_t now = clock_();
  for (const SeenHost& host : memory_->recall(false)) {
    if (host.gid != gid) continue;
    const bool is_fresh = host.seen_s > now - kBelievedFor_s && host.seen_s < now + kAhead_s;
    if (!is_fresh && !SHIFT_PLANT(stale_host_believed)) continue;
    for (const uint32_t ip_be : host.addresses_be) add(ip_be);
  }
  return found;
}

void HostBook::see(const wire::Gid& gid, const std::vector<uint32_t>& addresses_be) {
  if (memory_ == nullptr) return;
  const int64_t now = clock_();
  // Each connection comes here, and most say nothing new.
  constexpr int64_t kAnew_s = 3600;
  Told& told = told_[gid];
  const bool is_known = std::ranges::all_of(
      addresses_be, [&](uint32_t ip_be) { return has(told.addresses_be, ip_be); });
  if (is_known && told.at_s > now - kAnew_s && told.at_s <= now) return;
  told = {addresses_be, now};
  if (told_.size() > kHostsMax) told_.erase(told_.begin());

  std::vector<SeenHost> hosts = memory_->recall(true);
  SeenHost seen{gid, {}, now};
  const auto add = [&](uint32_t ip_be) {
    if (ip_be != gid.ipv4() && !has(seen.addresses_be, ip_be) &&
        seen.addresses_be.size() < kAddressesMax)
      seen.addresses_be.push_back(ip_be);
  };
  for (const uint32_t ip_be : addresses_be) add(ip_be);
  for (SeenHost& host : hosts) {
    // Addresses that have no connection just now, because a NIC is down, stay the host's.
    if (host.gid == gid)
      for (const uint32_t ip_be : host.addresses_be) add(ip_be);
    // A GID of this very host may have the same addresses.
    const auto own = host.gid.ipv4();
    if (host.gid != gid && own && has(addresses_be, *own)) continue;
    std::erase_if(host.addresses_be, [&](uint32_t ip_be) { return has(addresses_be, ip_be); });
  }
  std::erase_if(hosts,
                [&](const SeenHost& host) { return host.gid == gid || host.addresses_be.empty(); });
  if (seen.addresses_be.empty()) return;
  hosts.push_back(std::move(seen));
  std::ranges::sort(hosts, std::greater{}, &SeenHost::seen_s);
  if (hosts.size() > kHostsMax) hosts.resize(kHostsMax);
  memory_->remember(hosts);
}

}  // namespace shift::net
