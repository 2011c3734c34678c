// Cuts messages into packets.
#include "nic/outbound.h"

#include "nic/mlx5_layout.h"
#include "nic/planted.h"

namespace cxemu {

uint32_t packet_count(uint64_t length, uint32_t mtu) {
  if (CXEMU_PLANT(empty_last_packet)) return static_cast<uint32_t>(length / mtu + 1);
  return length == 0 ? 1 : static_cast<uint32_t>((length + mtu - 1) / mtu);
}

Operation request_opcode(uint8_t wqe_opcode, bool first, bool last) {
  const bool imm = wqe_opcode == kWqeSendImm || wqe_opcode == kWqeWriteImm;
  const bool invalidate = wqe_opcode == kWqeSendInvalidate;
  const bool write = wqe_opcode == kWqeWrite || wqe_opcode == kWqeWriteImm;
  if (first && last) {
    if (write) return imm ? Operation::kWriteOnlyImm : Operation::kWriteOnly;
    if (invalidate) return Operation::kSendOnlyInvalidate;
    return imm ? Operation::kSendOnlyImm : Operation::kSendOnly;
  }
  if (first && !CXEMU_PLANT(long_message_without_first)) {
    return write ? Operation::kWriteFirst : Operation::kSendFirst;
  }
  if (!last) return write ? Operation::kWriteMiddle : Operation::kSendMiddle;
  if (write) return imm ? Operation::kWriteLastImm : Operation::kWriteLast;
  if (invalidate) return Operation::kSendLastInvalidate;
  return imm ? Operation::kSendLastImm : Operation::kSendLast;
}

}  // namespace cxemu
