// The registered memory of one NIC.
#include "nic/memory_table.h"

#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "nic/planted.h"

namespace cxemu {

namespace {

constexpr uint32_t kMaxRegions = 1u << 20;
constexpr uint32_t kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                  IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB |
                                  IBV_ACCESS_OPTIONAL_RANGE;

// The kernel would fail to pin memory that is not there.
bool range_mapped(uint64_t start, uint64_t length) {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t begin = start & ~(page - 1);
  return length == 0 ||
         msync(reinterpret_cast<void*>(begin), start + length - begin, MS_ASYNC) == 0 ||
         errno != ENOMEM;
}

}  // namespace

MemoryTable::MemoryTable(uint32_t first_index) : first_index_(first_index), regions_(first_index) {}

int MemoryTable::add(uint32_t pd, uint64_t start, uint64_t length, uint64_t iova, uint32_t access,
                     uint32_t* key) {
  constexpr uint32_t kNeedsLocalWrite = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  if ((access & kNeedsLocalWrite) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return EINVAL;
  if ((access & IBV_ACCESS_ON_DEMAND) != 0) return EOPNOTSUPP;
  if ((access & ~kKnownAccess) != 0) return EINVAL;
  if (start + length < start || iova + length < iova) return EINVAL;
  if (!range_mapped(start, length)) return EFAULT;

  uint32_t index;
  // A freed index rests until a few others are free too: stale keys then miss for longer.
  constexpr size_t kRest = 64;
  if (free_.size() > kRest) {
    index = free_.front();
    free_.pop_front();
  } else {
    if (regions_.size() == kMaxRegions) return ENOMEM;
    index = static_cast<uint32_t>(regions_.size());
    regions_.push_back({});
  }
  Region& region = regions_[index];
  region = {start, length, iova, pd, access, static_cast<uint8_t>(region.variant + 1), true};
  *key = (first_index_ + index) << 8 | region.variant;
  return 0;
}

int MemoryTable::remove(uint32_t key) {
  const uint32_t index = (key >> 8) - first_index_;  // wraps, and is too large, below the first
  if (index >= regions_.size()) return EINVAL;
  Region& region = regions_[index];
  if (!region.used || region.variant != (key & 0xff)) return EINVAL;
  region.used = false;
  free_.push_back(index);
  return 0;
}

uint8_t* MemoryTable::find(uint32_t key, uint32_t pd, uint64_t address, uint64_t length,
                           uint32_t access) const {
  static uint8_t nothing;
  if (length == 0 && !CXEMU_PLANT(empty_access_checked)) return &nothing;
  const uint32_t index = (key >> 8) - first_index_;
  if (index >= regions_.size()) return nullptr;
  const Region& region = regions_[index];
  const bool stale = !region.used || region.variant != (key & 0xff);
  if (stale && !CXEMU_PLANT(stale_key_accepted)) return nullptr;
  if (region.pd != pd && !CXEMU_PLANT(domain_unchecked)) return nullptr;
  if ((region.access & access) != access && !CXEMU_PLANT(region_rights_unchecked)) return nullptr;
  if (address < region.iova || length > region.length) return nullptr;
  const uint64_t offset = address - region.iova;
  if (offset > region.length - length && !CXEMU_PLANT(region_end_unchecked)) return nullptr;
  return reinterpret_cast<uint8_t*>(region.start + offset);
}

}  // namespace cxemu
