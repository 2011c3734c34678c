#include "group/region_table.h"

#include <new>

#include "group/domain.h"
#include "group/region.h"

namespace shift::group {

void RegionTable::add(MemoryRegion& region) {
  const auto [place, is_new] = by_lkey_.try_emplace(region.mr.lkey, &region);
  if (!is_new) return;
  try {
    by_rkey_.emplace(region.mr.rkey, &region);
  } catch (const std::bad_alloc&) {
    by_lkey_.erase(place);
    throw;
  }
}

void RegionTable::remove(const MemoryRegion& region) {
  const auto place = by_lkey_.find(region.mr.lkey);
  if (place == by_lkey_.end() || place->second != &region) return;
  by_lkey_.erase(place);
  auto [it, end] = by_rkey_.equal_range(region.mr.rkey);
  while (it != end && it->second != &region) ++it;
  if (it != end) by_rkey_.erase(it);
}

MemoryRegion* RegionTable::by_lkey(uint32_t lkey) const {
  const auto found = by_lkey_.find(lkey);
  return found != by_lkey_.end() ? found->second : nullptr;
}

MemoryRegion* RegionTable::by_rkey(uint32_t rkey, const ProtectionDomain& domain) const {
  auto [it, end] = by_rkey_.equal_range(rkey);
  for (; it != end; ++it) {
    if (&ProtectionDomain::from(it->second->mr.pd)->domain() == &domain) return it->second;
  }
  return nullptr;
}

}  // namespace shift::group
