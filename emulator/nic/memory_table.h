// The registered memory of one NIC: keys, ranges, rights.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace cxemu {

class MemoryTable {
 public:
  // Keys count up from here; different for each NIC, so that no key of one is valid on another by
  // chance. At least 2: no key is 0, or 0x100, which ends receive lists.
  explicit MemoryTable(uint32_t first_index = 2);

  int add(uint32_t pd, uint64_t start, uint64_t length, uint64_t iova, uint32_t access,
          uint32_t* key);
  int remove(uint32_t key);

  // The memory behind `length` bytes at `address` of `key`, if that key belongs to `pd`, covers all
  // of it and grants every bit of `access` (ibv_access_flags); nullptr otherwise. A length of 0 is
  // never checked (IBA 9.7.4.1.5) and returns an address that must not be used.
  uint8_t* find(uint32_t key, uint32_t pd, uint64_t address, uint64_t length,
                uint32_t access) const;

 private:
  struct Region {
    uint64_t start, length, iova;
    uint32_t pd, access;
    uint8_t variant;  // low byte of the key: +1 at each reuse, so that old keys stay invalid
    bool used;
  };

  const uint32_t first_index_;
  std::vector<Region> regions_;  // index: (key >> 8) - first_index_
  std::deque<uint32_t> free_;    // oldest first, so that keys return late
};

}  // namespace cxemu
