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
  const auto told = told_.find(gid);
  if (told != told_.end() && is_unwritten(gid))
    for (const uint32_t ip_be : told->second.addresses_be) add(ip_be);
  const int64_t now = clock_();
  for (const SeenHost& host : memory_->recall(false)) {
    if (host.gid != gid) continue;
    const bool is_fresh = host.seen_s > now - kBelievedFor_s && host.seen_s < now + kAhead_s;
    if (!is_fresh && !SHIFT_PLANT(stale_host_believed)) continue;
    for (const uint32_t ip_be : host.addresses_be) add(ip_be);
  }
  return found;
}

bool HostBook::is_unwritten(const wire::Gid& gid) const {
  return std::ranges::find(unwritten_, gid) != unwritten_.end();
}

bool HostBook::see(const wire::Gid& gid, const std::vector<uint32_t>& addresses_be) {
  if (memory_ == nullptr) return false;
  const int64_t now = clock_();
  // Each connection comes here, and most say nothing new.
  constexpr int64_t kAnew_s = 3600;
  if (told_.size() >= kHostsMax && !told_.contains(gid))
    std::erase_if(told_, [this](const auto& one) { return !is_unwritten(one.first); });
  Told& told = told_[gid];
  const bool is_known = std::ranges::all_of(
      addresses_be, [&](uint32_t ip_be) { return has(told.addresses_be, ip_be); });
  if (is_known && told.at_s > now - kAnew_s && told.at_s <= now) return false;
  told = {addresses_be, now};
  const bool is_news =
      std::ranges::any_of(addresses_be, [&](uint32_t ip_be) { return ip_be != gid.ipv4(); });
  if (is_news) unwritten_.push_back(gid);
  return is_news;
}

void HostBook::keep() {
  if (unwritten_.empty()) return;
  std::vector<SeenHost> hosts = memory_->recall(true);
  std::map<wire::Gid, size_t> places;
  for (size_t i = 0; i < hosts.size(); i++) places[hosts[i].gid] = i;
  struct Seen {
    wire::Gid gid;
    const Told* told;
  };
  std::map<uint32_t, Seen> owners;  // who was seen last at an address
  for (const wire::Gid& gid : std::exchange(unwritten_, {})) {
    const Told& told = told_.at(gid);
    const auto [place, is_new] = places.emplace(gid, hosts.size());
    if (is_new) hosts.push_back({gid, {}, 0});
    SeenHost& host = hosts[place->second];
    // Addresses that have no connection just now, because a NIC is down, stay the host's.
    std::vector<uint32_t> all = told.addresses_be;
    all.insert(all.end(), host.addresses_be.begin(), host.addresses_be.end());
    host.seen_s = told.at_s;
    host.addresses_be.clear();
    for (const uint32_t ip_be : all)
      if (ip_be != gid.ipv4() && !has(host.addresses_be, ip_be) &&
          host.addresses_be.size() < kAddressesMax)
        host.addresses_be.push_back(ip_be);
    for (const uint32_t ip_be : told.addresses_be) owners.insert_or_assign(ip_be, Seen{gid, &told});
  }
  for (SeenHost& host : hosts) {
    const auto own = host.gid.ipv4();
    std::erase_if(host.addresses_be, [&](uint32_t ip_be) {
      const auto owner = owners.find(ip_be);
      if (owner == owners.end() || owner->second.gid == host.gid) return false;
      // A GID of that very host may have the same addresses.
      return !own || !has(owner->second.told->addresses_be, *own);
    });
  }
  std::erase_if(hosts, [](const SeenHost& host) { return host.addresses_be.empty(); });
  std::ranges::sort(hosts, std::greater{}, &SeenHost::seen_s);
  if (hosts.size() > kHostsMax) hosts.resize(kHostsMax);
  memory_->remember(hosts);
}

}  // namespace shift::net
