// A packet that waits on its way out or in.
#pragma once

#include <cstdint>
#include <vector>

namespace cxemu {

struct HeldPacket {
  uint64_t due_ns;
  int slot;  // its destination; unused for arrivals
  uint32_t src_ipv4_be, dst_ipv4_be;
  bool corrupt, duplicate, reorder;
  std::vector<uint8_t> packet;
  int service_class = 0;  // arrivals only
};

}  // namespace cxemu
