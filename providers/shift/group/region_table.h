// The regions of a device group, by their lkey or rkey. Cold, and under Context::mutex. A program
// may have many thousands of regions, and a peer asks for many keys.
#pragma once

#include <cstdint>
#include <unordered_map>

namespace shift::group {

struct MemoryRegion;
struct ProtectionDomain;

class RegionTable {
 public:
  // Several regions may have the same key (null regions and imported regions do): then the first
  // one keeps it. If memory is short, it throws std::bad_alloc and has changed nothing.
  void add(MemoryRegion& region);
  // Takes the region off; its keys must still be those that it was added with.
  void remove(const MemoryRegion& region);

  // nullptr: no region has that key.
  MemoryRegion* by_lkey(uint32_t lkey) const;
  MemoryRegion* by_rkey(uint32_t rkey, const ProtectionDomain& domain) const;

 private:
  std::unordered_map<uint32_t, MemoryRegion*> by_lkey_;
  // Holds the regions of by_lkey_ only. mlx5 and rxe use one number for both keys of a region; the
  // layer does not count on that.
  std::unordered_multimap<uint32_t, MemoryRegion*> by_rkey_;
};

}  // namespace shift::group
