// What the sending halves of all services share: cutting a message into packets.
#pragma once

#include <cstdint>

#include "nic/roce.h"

namespace cxemu {

uint32_t packet_count(uint64_t length, uint32_t mtu);
// The operation of one packet of a SEND or WRITE.
Operation request_opcode(uint8_t wqe_opcode, bool first, bool last);

}  // namespace cxemu
