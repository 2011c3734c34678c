// The regions of a device group, by either of the application's keys. Cold, and under
// Context::mutex: a program may have many thousands of regions, and a peer asks for many keys.
#pragma once

#include <cstdint>
#include <unordered_map>

namespace shift::group {

struct MemoryRegion;
struct ProtectionDomain;

class RegionTable {
 public:
  // Some numbers stand for several regions (those of null regions, and imported ones): the first
  // keeps it. Memory may be short: then nothing is changed.
  void add(MemoryRegion& region);
  // Under the keys that it was added with.
  void remove(const MemoryRegion& region);

  // nullptr: nothing has that key.
  MemoryRegion* by_lkey(uint32_t lkey) const;
  MemoryRegion* by_rkey(uint32_t rkey, const ProtectionDomain& domain) const;

 private:
  std::unordered_map<uint32_t, MemoryRegion*> by_lkey_;
  // Of the ones above. mlx5 and rxe give a region one number for both keys; do not count on it.
  std::unordered_multimap<uint32_t, MemoryRegion*> by_rkey_;
};

}  // namespace shift::group
