// The registered memory of one NIC.
#include "nic/memory_table.h"

#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "fabric/populate.h"
#include "nic/planted.h"

namespace cxemu {

namespace {

constexpr uint32_t kMaxEntries = 1u << 20;
constexpr uint32_t kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                  IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB |
                                  IBV_ACCESS_ON_DEMAND | IBV_ACCESS_OPTIONAL_RANGE;

// The kernel would fail to pin memory that is not mapped.
bool range_mapped(uint64_t start, uint64_t length) {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t begin = start & ~(page - 1);
  return length == 0 ||
         msync(reinterpret_cast<void*>(begin), start + length - begin, MS_ASYNC) == 0 ||
         errno != ENOMEM;
}

int access_check(uint32_t access) {
  constexpr uint32_t kNeedsLocalWrite = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  if ((access & kNeedsLocalWrite) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return EINVAL;
  return (access & ~kKnownAccess) != 0 ? EINVAL : 0;
}

int range_check(uint64_t start, uint64_t length, uint64_t iova, uint32_t access) {
  if (start + length < start || iova + length < iova) return EINVAL;
  if ((access & IBV_ACCESS_ON_DEMAND) != 0) return 0;
  return range_mapped(start, length) ? 0 : EFAULT;
}

uint32_t page_count(uint64_t start, uint64_t length) {
  constexpr uint64_t kPage = 4096;
  const uint64_t pages = (start % kPage + length + kPage - 1) / kPage;
  return static_cast<uint32_t>(std::min<uint64_t>(pages, UINT32_MAX));
}

// Real devices ask the kernel for a page when they need it; this one does so, too, packet by
// packet.
[[gnu::cold, gnu::noinline]] bool pages_fault_in(const uint8_t* from, uint64_t length,
                                                 uint32_t access) {
  constexpr uint32_t kWrites =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  constexpr uint64_t kFaultMax = 64 << 10;
  if (length > kFaultMax) return true;
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<uint64_t>(from);
  const uint64_t begin = at & ~(page - 1);
  const uint64_t size = (at + length - begin + page - 1) & ~(page - 1);
  if (!populate_supported()) return range_mapped(begin, size);
  const int advice = (access & kWrites) != 0 ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  while (madvise(reinterpret_cast<void*>(begin), size, advice) != 0) {
    if (errno != EINTR && errno != EAGAIN) return false;
  }
  return true;
}

uint8_t g_nothing;  // the address that accesses of no bytes get

}  // namespace

KeyReuse key_reuse(uint32_t nic) {
  const char* text = std::getenv("CXEMU_REUSE_KEYS");
  if (text == nullptr || std::strcmp(text, "1") != 0) return KeyReuse::kLate;
  return nic == 0 ? KeyReuse::kNewestFirst : KeyReuse::kOldestFirst;
}

MemoryTable::MemoryTable(uint32_t first_index, KeyReuse reuse)
    : first_index_(first_index), reuse_(reuse) {}

MemoryTable::Entry* MemoryTable::entry(uint32_t key) {
  const uint32_t index = (key >> 8) - first_index_;  // wraps below the first index
  return index < entries_.size() ? &entries_[index] : nullptr;
}

MemoryTable::Entry* MemoryTable::window(uint32_t key, uint32_t pd) {
  Entry* found = entry(key);
  const bool ok = found != nullptr && found->pd == pd &&
                  (found->state == State::kWindow || found->state == State::kBoundWindow);
  return ok ? found : nullptr;
}

int MemoryTable::entry_take(uint32_t* index) {
  // A freed index rests until some others are free, too, so that stale keys stay invalid for
  // longer.
  constexpr size_t kRest = 64;
  if (reuse_ == KeyReuse::kNewestFirst && !free_.empty()) {
    *index = free_.back();
    free_.pop_back();
    return 0;
  }
  if (free_.size() > (reuse_ == KeyReuse::kLate ? kRest : 0)) {
    *index = free_.front();
    free_.pop_front();
    return 0;
  }
  if (entries_.size() == kMaxEntries) return ENOMEM;
  *index = static_cast<uint32_t>(entries_.size());
  entries_.push_back({});
  return 0;
}

void MemoryTable::entry_free(Entry& entry) {
  entry.state = State::kFree;
  free_.push_back(static_cast<uint32_t>(&entry - entries_.data()));
}

uint32_t MemoryTable::key_of(const Entry& entry) const {
  return (first_index_ + static_cast<uint32_t>(&entry - entries_.data())) << 8 | entry.variant;
}

int MemoryTable::add(uint32_t pd, uint64_t start, uint64_t length, uint64_t iova, uint32_t access,
                     uint32_t* key) {
  if (const int error = access_check(access)) return error;
  if (const int error = range_check(start, length, iova, access)) return error;
  uint32_t index;
  if (const int error = entry_take(&index)) return error;
  Entry& region = entries_[index];
  region = {.start = start,
            .length = length,
            .iova = iova,
            .pd = pd,
            .access = access,
            .qpn = 0,
            .windows = 0,
            .pages = page_count(start, length),
            .variant = static_cast<uint8_t>(region.variant + (reuse_ == KeyReuse::kLate)),
            .state = State::kRegion,
            .type2 = false,
            .on_demand = (access & IBV_ACCESS_ON_DEMAND) != 0};
  *key = key_of(region);
  return 0;
}

int MemoryTable::remove(uint32_t key) {
  Entry* region = entry(key);
  if (region == nullptr || region->state != State::kRegion || key != key_of(*region)) return EINVAL;
  if (region->windows > 0 && !CXEMU_PLANT(bound_region_freed)) return EBUSY;
  entry_free(*region);
  return 0;
}

int MemoryTable::change(uint32_t key, const RegionChange& change, uint32_t* new_key) {
  Entry* region = entry(key);
  if (region == nullptr || region->state != State::kRegion || key != key_of(*region)) return EINVAL;
  if (region->windows > 0) return EBUSY;
  Entry next = *region;
  if (change.access) {
    if (const int error = access_check(change.new_access)) return error;
    next.access = change.new_access;
    next.on_demand = (change.new_access & IBV_ACCESS_ON_DEMAND) != 0;
  }
  if (change.pd) next.pd = change.new_pd;
  if (change.translation) {
    if (const int error = range_check(change.start, change.length, change.iova, next.access)) {
      return error;
    }
    next.start = change.start;
    next.length = change.length;
    next.iova = change.iova;
    // The kernel reserves room for a translation in powers of two.
    if (page_count(change.start, change.length) > std::bit_ceil(region->pages)) {
      if (const int error =
              add(next.pd, next.start, next.length, next.iova, next.access, new_key)) {
        return error;
      }
      entry_free(*entry(key));
      return 0;
    }
  }
  *region = next;
  *new_key = key;
  return 0;
}

int MemoryTable::window_add(uint32_t pd, bool type2, uint32_t* key) {
  uint32_t index;
  if (const int error = entry_take(&index)) return error;
  Entry& window = entries_[index];
  const auto variant = static_cast<uint8_t>(window.variant + 1);
  window = {};
  window.pd = pd;
  window.variant = variant;
  window.state = State::kWindow;
  window.type2 = type2;
  *key = key_of(window);
  return 0;
}

int MemoryTable::window_remove(uint32_t key) {
  Entry* found = entry(key);
  if (found == nullptr || window(key, found->pd) == nullptr) return EINVAL;
  unbind(*found, found->variant);
  entry_free(*found);
  return 0;
}

bool MemoryTable::window_bind(uint32_t pd, uint32_t qpn, const WindowBind& bind) {
  Entry* to = window(bind.window_key, pd);
  Entry* region = entry(bind.region_key);
  if (to == nullptr || to->type2 != bind.type2) return false;
  // A window of type 2 must be invalidated before it is bound anew (IBA 10.6.7.2.3).
  if (to->type2 && to->state == State::kBoundWindow && !CXEMU_PLANT(bound_window_rebound)) {
    return false;
  }
  if (region == nullptr || region->state != State::kRegion || bind.region_key != key_of(*region)) {
    return false;
  }
  constexpr uint32_t kWrites = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  const bool permitted = (region->access & IBV_ACCESS_MW_BIND) != 0;
  if (!permitted && !CXEMU_PLANT(window_unpermitted)) return false;
  if ((bind.access & kWrites) != 0 && (region->access & IBV_ACCESS_LOCAL_WRITE) == 0) return false;
  const uint8_t* start = resolve(*region, pd, bind.address, bind.length, 0);
  if (start == nullptr || bind.iova + bind.length < bind.iova) return false;

  unbind(*to, bind.variant);
  to->start = reinterpret_cast<uint64_t>(start);
  to->length = bind.length;
  to->iova = bind.iova;
  to->access = bind.access;
  to->qpn = qpn;
  to->on_demand = region->on_demand;
  to->windows = static_cast<uint32_t>(region - entries_.data());
  to->state = State::kBoundWindow;
  region->windows++;
  return true;
}

bool MemoryTable::window_unbind(uint32_t pd, uint32_t window_key, uint8_t variant) {
  Entry* found = window(window_key, pd);
  if (found == nullptr || found->type2) return false;
  unbind(*found, variant);
  return true;
}

bool MemoryTable::window_invalidate(uint32_t pd, uint32_t qpn, uint32_t key) {
  Entry* found = window(key, pd);
  if (found == nullptr || !found->type2 || found->state != State::kBoundWindow ||
      found->qpn != qpn || (key != key_of(*found) && !CXEMU_PLANT(invalidate_any_key))) {
    return false;
  }
  unbind(*found, found->variant);
  return true;
}

void MemoryTable::unbind(Entry& window, uint8_t variant) {
  if (window.state == State::kBoundWindow) entries_[window.windows].windows--;
  window.state = State::kWindow;
  window.variant = variant;
}

uint8_t* MemoryTable::resolve(const Entry& entry, uint32_t pd, uint64_t address, uint64_t length,
                              uint32_t access) {
  if (entry.pd != pd && !CXEMU_PLANT(domain_unchecked)) return nullptr;
  if ((entry.access & access) != access && !CXEMU_PLANT(region_rights_unchecked)) return nullptr;
  if (address < entry.iova || length > entry.length) return nullptr;
  const uint64_t offset = address - entry.iova;
  if (offset > entry.length - length && !CXEMU_PLANT(region_end_unchecked)) return nullptr;
  auto* found = reinterpret_cast<uint8_t*>(entry.start + offset);
  if (entry.on_demand && !pages_fault_in(found, length, access)) [[unlikely]]
    return nullptr;
  return found;
}

uint8_t* MemoryTable::find(uint32_t key, uint32_t pd, uint64_t address, uint64_t length,
                           uint32_t access) const {
  if (length == 0 && !CXEMU_PLANT(empty_access_checked)) return &g_nothing;
  const uint32_t index = (key >> 8) - first_index_;
  if (index >= entries_.size()) return nullptr;
  const Entry& region = entries_[index];
  const bool stale = region.state != State::kRegion || region.variant != (key & 0xff);
  if (stale && !CXEMU_PLANT(stale_key_accepted)) return nullptr;
  return resolve(region, pd, address, length, access);
}

uint8_t* MemoryTable::find_remote(uint32_t key, uint32_t pd, uint32_t qpn, uint64_t address,
                                  uint64_t length, uint32_t access) const {
  if (length == 0 && !CXEMU_PLANT(empty_access_checked)) return &g_nothing;
  const uint32_t index = (key >> 8) - first_index_;
  if (index >= entries_.size()) return nullptr;
  const Entry& entry = entries_[index];
  if (entry.variant != (key & 0xff) && !CXEMU_PLANT(stale_key_accepted)) return nullptr;
  if (entry.state != State::kRegion) {
    if (entry.state != State::kBoundWindow && !CXEMU_PLANT(stale_key_accepted)) return nullptr;
    if (entry.type2 && entry.qpn != qpn && !CXEMU_PLANT(window_of_any_qp)) return nullptr;
  }
  return resolve(entry, pd, address, length, access);
}

}  // namespace cxemu
