// The memory keys of one NIC: registered regions and memory windows, with their ranges and rights.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace cxemu {

// What a re-registration changes; all else stays.
struct RegionChange {
  bool translation = false, pd = false, access = false;
  uint64_t start = 0, length = 0, iova = 0;
  uint32_t new_pd = 0, new_access = 0;
};

// A bind request, as the queue pair `qpn` of `pd` posts it.
struct WindowBind {
  uint32_t window_key;  // names the window; its low byte is ignored
  uint8_t variant;      // low byte of the key from now on
  bool type2;           // valid through this queue pair only, and the window must be free
  uint32_t region_key;
  uint64_t address, length;  // in the region, as its key addresses it
  uint64_t iova;             // the address that the peer uses for it
  uint32_t access;
};

// When a key that was freed is given out again.
enum class KeyReuse : uint8_t {
  kLate,         // after many others, and with another low byte
  kNewestFirst,  // at once, as it was: the one that was freed last
  kOldestFirst,  // at once, as it was: the one that was freed first
};

// What CXEMU_REUSE_KEYS says for a NIC of this process's host: with 1, the first NIC gives out the
// newest key first, and the others the oldest. So two regions that are registered anew exchange
// their keys on the first NIC and keep them on the others.
KeyReuse key_reuse(uint32_t nic);

class MemoryTable {
 public:
  // Keys count up from here. The value differs for each NIC, so that no key of one NIC is valid on
  // another by chance. It is at least 2: no key may be 0, or 0x100, which ends receive lists.
  explicit MemoryTable(uint32_t first_index = 2, KeyReuse reuse = KeyReuse::kLate);

  int add(uint32_t pd, uint64_t start, uint64_t length, uint64_t iova, uint32_t access,
          uint32_t* key);
  // Returns EBUSY while windows are bound to the region.
  int remove(uint32_t key);
  // Works like the kernel's driver: the key stays, unless the region grows beyond the room reserved
  // for its translation. Other errors are those of add(); then nothing has changed.
  int change(uint32_t key, const RegionChange& change, uint32_t* new_key);

  int window_add(uint32_t pd, bool type2, uint32_t* key);
  // The low byte of `key` is ignored: the owner need not know the last bound one.
  int window_remove(uint32_t key);
  // Returns false if refused; then nothing has changed.
  bool window_bind(uint32_t pd, uint32_t qpn, const WindowBind& bind);
  // Ends a binding of type 1, which needs no key.
  bool window_unbind(uint32_t pd, uint32_t window_key, uint8_t variant);
  // Ends a binding of type 2, for a work request or a message that came through `qpn`.
  bool window_invalidate(uint32_t pd, uint32_t qpn, uint32_t key);

  // The memory of `length` bytes at `address` of the region `key`, if the region belongs to `pd`,
  // covers all of them and grants every bit of `access` (ibv_access_flags); nullptr otherwise. A
  // length of 0 is never checked (IBA 9.7.4.1.5) and returns an address that must not be used. In
  // regions with paging on demand, ranges that fit into a packet are made present, and nullptr also
  // means that this failed. Larger ranges are only compared.
  uint8_t* find(uint32_t key, uint32_t pd, uint64_t address, uint64_t length,
                uint32_t access) const;
  // The same for a peer's access through `qpn`, which may also use windows.
  uint8_t* find_remote(uint32_t key, uint32_t pd, uint32_t qpn, uint64_t address, uint64_t length,
                       uint32_t access) const;

 private:
  enum class State : uint8_t { kFree, kRegion, kWindow, kBoundWindow };

  // A region or a window. `start` of a bound window is its own address in host memory: the region
  // around it cannot go away meanwhile.
  struct Entry {
    uint64_t start, length, iova;
    uint32_t pd, access;
    uint32_t qpn;      // type 2 windows: the QP that may use it
    uint32_t windows;  // regions: number of bound windows; bound windows: index of the region
    uint32_t pages;    // regions: room for the translation
    uint8_t
        variant;  // low byte of the key: with kLate +1 at each reuse, so that old keys stay invalid
    State state;
    bool type2;
    bool on_demand;  // pages may be absent until they are used
  };

  Entry* entry(uint32_t key);
  Entry* window(uint32_t key, uint32_t pd);
  int entry_take(uint32_t* index);
  void entry_free(Entry& entry);
  uint32_t key_of(const Entry& entry) const;
  void unbind(Entry& window, uint8_t variant);
  static uint8_t* resolve(const Entry& entry, uint32_t pd, uint64_t address, uint64_t length,
                          uint32_t access);

  const uint32_t first_index_;
  const KeyReuse reuse_;
  std::vector<Entry> entries_;  // index: (key >> 8) - first_index_
  std::deque<uint32_t> free_;   // oldest first
};

}  // namespace cxemu
