// Copies between messages and the memory that work requests name, and checks the local keys.
#include <algorithm>
#include <cstring>

#include "nic/dma_access.h"
#include "nic/nic_model.h"
#include "nic/transport.h"

namespace cxemu {

namespace {

// Calls step(part, offset in part, length) for the pieces of [offset, offset + size) in order,
// until one returns false or all are done.
template <typename Step>
bool pieces_for_each(const DataPart* parts, uint32_t count, uint64_t offset, uint32_t size,
                     Step step) {
  for (uint32_t i = 0; i < count && size > 0; i++) {
    const DataPart& part = parts[i];
    if (offset >= part.length) {
      offset -= part.length;
      continue;
    }
    const auto length = static_cast<uint32_t>(std::min<uint64_t>(part.length - offset, size));
    if (!step(part, offset, length)) return false;
    size -= length;
    offset = 0;
  }
  return size == 0;
}

}  // namespace

bool parts_read(const Qp& qp, const DataPart* parts, uint32_t count, uint64_t offset, uint32_t size,
                uint8_t* to) {
  const MemoryTable& memory = qp.nic.memory();
  return pieces_for_each(
      parts, count, offset, size, [&](const DataPart& part, uint64_t at, uint32_t length) {
        if (part.is_inline) {
          ring_copy(qp.send_ring(), part.address + at, to, length);
        } else {
          const uint8_t* from = memory.find(part.lkey, qp.config.pd, part.address + at, length, 0);
          if (from == nullptr) return false;
          const DmaAccess dma;
          memcpy(to, from, length);
        }
        to += length;
        return true;
      });
}

bool parts_write(const Qp& qp, uint32_t pd, const DataPart* parts, uint32_t count, uint64_t offset,
                 const uint8_t* from, uint32_t size) {
  const MemoryTable& memory = qp.nic.memory();
  return pieces_for_each(
      parts, count, offset, size, [&](const DataPart& part, uint64_t at, uint32_t length) {
        uint8_t* to = memory.find(part.lkey, pd, part.address + at, length, IBV_ACCESS_LOCAL_WRITE);
        if (to == nullptr) return false;
        place(to, from, length);
        from += length;
        return true;
      });
}

bool parts_check(const Qp& qp, const DataPart* parts, uint32_t count, uint32_t access) {
  const MemoryTable& memory = qp.nic.memory();
  return std::all_of(parts, parts + count, [&](const DataPart& part) {
    return part.is_inline ||
           memory.find(part.lkey, qp.config.pd, part.address, part.length, access) != nullptr;
  });
}

void place(uint8_t* to, const uint8_t* from, size_t size) {
  if (size == 0) return;
  const DmaAccess dma;
  memcpy(to, from, size - 1);
  __atomic_store_n(to + size - 1, from[size - 1], __ATOMIC_RELEASE);
}

}  // namespace cxemu
