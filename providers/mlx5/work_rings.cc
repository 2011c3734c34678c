// Reads requests back from the work queues of mlx5. The format is that of the ConnectX, as far as
// infiniband/mlx5dv.h tells it: a request begins at a block of 64 bytes, with a control segment
// that names the block, the QP, the operation and the request's size. All numbers are big endian.
#include "util/work_rings.h"

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <cstring>

#include "util/planted.h"

namespace shift::mlx5 {
namespace {

constexpr uint32_t kSegment = 16;
constexpr uint32_t kSegmentsPerBlock = WorkRings::kBlock / kSegment;
constexpr uint32_t kCountAt = 7;  // the byte of the control segment with the number of segments
constexpr uint32_t kSegmentsMax = 63;  // six bits of the control segment
constexpr uint32_t kBlocksMax = (kSegmentsMax + kSegmentsPerBlock - 1) / kSegmentsPerBlock;

uint32_t read32(const uint8_t* at) {
  uint32_t value;
  std::memcpy(&value, at, sizeof value);
  return be32toh(value);
}
uint64_t read64(const uint8_t* at) {
  uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return be64toh(value);
}

// The NIC's operation for a request of verbs; 0: there is none. Windows are bound and taken back by
// one operation.
uint32_t operation_of(uint32_t opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
      return MLX5_OPCODE_RDMA_WRITE;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return MLX5_OPCODE_RDMA_WRITE_IMM;
    case IBV_WR_SEND:
      return MLX5_OPCODE_SEND;
    case IBV_WR_SEND_WITH_IMM:
      return MLX5_OPCODE_SEND_IMM;
    case IBV_WR_SEND_WITH_INV:
      return MLX5_OPCODE_SEND_INVAL;
    case IBV_WR_RDMA_READ:
      return MLX5_OPCODE_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return MLX5_OPCODE_ATOMIC_CS;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return MLX5_OPCODE_ATOMIC_FA;
    case IBV_WR_LOCAL_INV:
    case IBV_WR_BIND_MW:
      return MLX5_OPCODE_UMR;
    default:
      return 0;
  }
}

// The segments of one request. The queue is a ring, and a request may go on at its beginning.
class Segments {
 public:
  Segments(const WorkRings& rings, uint32_t block)
      : rings_(rings), first_(block * kSegmentsPerBlock), control_(at(0)) {}

  const uint8_t* at(uint32_t index) const {
    const uint32_t last = rings_.send_blocks * kSegmentsPerBlock - 1;
    if (SHIFT_PLANT(wrap_forgotten))
      return rings_.sends + size_t{std::min((first_ & last) + index, last)} * kSegment;
    return rings_.sends + size_t{(first_ + index) & last} * kSegment;
  }
  uint32_t count() const { return read32(control_ + 4) & 0x3f; }
  uint32_t blocks() const { return (count() + kSegmentsPerBlock - 1) / kSegmentsPerBlock; }
  uint32_t qpn() const { return read32(control_ + 4) >> 8; }
  uint32_t block() const { return read32(control_) >> 8 & 0xffff; }
  uint32_t block_and_operation() const { return read32(control_); }
  bool is_signaled() const {
    return (control_[11] & MLX5_WQE_CTRL_CQ_UPDATE) == MLX5_WQE_CTRL_CQ_UPDATE;
  }
  uint32_t immediate() const {  // as it lies there
    uint32_t value;
    std::memcpy(&value, control_ + 12, sizeof value);
    return value;
  }
  void copy(uint32_t from_segment, uint32_t skip, uint8_t* to, uint32_t length) const {
    for (uint32_t byte = skip; length > 0;) {
      const uint32_t in_segment = byte % kSegment;
      const uint32_t piece = std::min(length, kSegment - in_segment);
      std::memcpy(to, at(from_segment + byte / kSegment) + in_segment, piece);
      to += piece;
      byte += piece;
      length -= piece;
    }
  }

 private:
  const WorkRings& rings_;
  const uint32_t first_;
  const uint8_t* const control_;
};

bool is_request(const WorkRings& rings, uint32_t block, uint32_t blocks, const SentHint& hint) {
  const Segments segments(rings, block);
  // Plain operations have zero in the first byte.
  const uint32_t number = SHIFT_PLANT(block_of_any_lap) ? segments.block() : block & 0xffff;
  const uint32_t expected = number << 8 | operation_of(hint.opcode);
  return segments.blocks() == blocks && segments.block_and_operation() == expected &&
         segments.qpn() == rings.qpn && segments.is_signaled() == hint.is_signaled;
}

// Reads the SGEs or the inline data from that segment on.
bool read_data(const Segments& segments, uint32_t from, const SentRequest& to) {
  ibv_send_wr& wr = *to.wr;
  uint32_t length = 0;
  bool is_inline = false;
  for (uint32_t i = from; i < segments.count();) {
    const uint8_t* const segment = segments.at(i);
    const uint32_t word = read32(segment);
    if (word & MLX5_INLINE_SEG) {
      const uint32_t here = word & ~uint32_t{MLX5_INLINE_SEG};
      const uint32_t room = (segments.count() - i) * kSegment - 4;
      if (here > room || here > to.max_inline - length || wr.num_sge != 0) return false;
      segments.copy(i, 4, to.inline_data + length, here);
      is_inline = true;
      length += here;
      i += (here + 4 + kSegment - 1) / kSegment;
      continue;
    }
    if (is_inline || static_cast<uint32_t>(wr.num_sge) == to.max_sge) return false;
    to.sges[wr.num_sge++] = {read64(segment + 8), word, read32(segment + 4)};
    i++;
  }
  if (!is_inline) return true;
  wr.send_flags |= IBV_SEND_INLINE;
  wr.num_sge = 1;
  to.sges[0] = {reinterpret_cast<uintptr_t>(to.inline_data), length, 0};
  return true;
}

bool read_request(const Segments& segments, uint32_t opcode, const SentRequest& to) {
  ibv_send_wr& wr = *to.wr;
  wr = {};
  wr.opcode = static_cast<ibv_wr_opcode>(opcode);
  wr.sg_list = to.sges;
  uint32_t next = 1;
  switch (opcode) {
    case IBV_WR_LOCAL_INV:
    case IBV_WR_BIND_MW:
      return true;  // belongs to one NIC, so nobody asks what is in it
    case IBV_WR_SEND_WITH_INV:
      wr.invalidate_rkey = be32toh(segments.immediate());
      break;
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      wr.imm_data = segments.immediate();
      break;
    default:
      break;
  }
  const bool is_atomic =
      opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  if (opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
      opcode == IBV_WR_RDMA_READ) {
    wr.wr.rdma = {read64(segments.at(next)), read32(segments.at(next) + 8)};
    next++;
  } else if (is_atomic) {
    const uint8_t* const operands = segments.at(next + 1);
    wr.wr.atomic.remote_addr = read64(segments.at(next));
    wr.wr.atomic.rkey = read32(segments.at(next) + 8);
    if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
      wr.wr.atomic.swap = read64(operands);
      wr.wr.atomic.compare_add = read64(operands + 8);
    } else {
      wr.wr.atomic.compare_add = read64(operands);
    }
    next += 2;
  }
  return next <= segments.count() && read_data(segments, next, to);
}

bool knows(ibv_device* real) {
  return mlx5dv_is_supported(real);
}

bool open(ibv_qp* real, WorkRings* rings) {
  if (!knows(real->context->device)) return false;
  mlx5dv_qp qp{};
  mlx5dv_obj object{};
  object.qp = {real, &qp};
  if (mlx5dv_init_obj(&object, MLX5DV_OBJ_QP) != 0) return false;
  const auto is_power = [](uint32_t n) { return (n & (n - 1)) == 0; };
  const bool has_blocks = qp.sq.wqe_cnt == 0 || qp.sq.stride == WorkRings::kBlock;
  if (!has_blocks || qp.sq.wqe_cnt > 0x8000 || !is_power(qp.sq.wqe_cnt) ||
      !is_power(qp.rq.wqe_cnt) || qp.rq.wqe_cnt > 0x8000 || qp.dbrec == nullptr) {
    return false;
  }
  *rings = {static_cast<uint8_t*>(qp.sq.buf),
            qp.sq.wqe_cnt,
            real->qp_num,
            static_cast<const uint8_t*>(qp.rq.buf),
            qp.rq.wqe_cnt,
            qp.rq.stride,
            qp.dbrec};
  return qp.sq.wqe_cnt == 0 || qp.sq.buf != nullptr;
}

uint32_t count_at(const WorkRings* rings, int index) {
  return be32toh(rings->counts[index]) & 0xffff;
}

uint32_t sends_end(const WorkRings* rings) {
  return count_at(rings, MLX5_SND_DBR);
}

uint32_t send_before(const WorkRings* rings, uint32_t end, const SentHint* hint,
                     const SentRequest* to) {
  uint32_t found = 0;
  for (uint32_t blocks = 1; blocks <= std::min(kBlocksMax, rings->send_blocks); blocks++) {
    if (!is_request(*rings, end - blocks, blocks, *hint)) continue;
    if (found != 0 && !SHIFT_PLANT(imitation_taken)) return 0;
    found = blocks;
  }
  if (found == 0) return 0;
  return read_request(Segments(*rings, end - found), hint->opcode, *to) ? found : 0;
}

bool receive(const WorkRings* rings, uint32_t age, ibv_recv_wr* wr, ibv_sge* sges,
             uint32_t max_sge) {
  if (age >= rings->receive_slots) return false;
  const uint32_t slot = (count_at(rings, MLX5_RCV_DBR) - 1 - age) & (rings->receive_slots - 1);
  const uint8_t* const entry = rings->receives + size_t{slot} * rings->receive_stride;
  *wr = {};
  wr->sg_list = sges;
  for (uint32_t at = 0; at < rings->receive_stride; at += kSegment) {
    const uint32_t lkey = read32(entry + at + 4);
    if (lkey == MLX5_INVALID_LKEY) break;
    if (static_cast<uint32_t>(wr->num_sge) == max_sge) return false;
    sges[wr->num_sge++] = {read64(entry + at + 8), read32(entry + at), lkey};
  }
  return true;
}

// A request without segments is none. (Inline data may end within a control segment of the last
// life, and complete the rest of it.)
void forget(const WorkRings* rings) {
  for (size_t block = 0; block < rings->send_blocks; block++)
    rings->sends[block * WorkRings::kBlock + kCountAt] = 0;
}

constexpr WorkRingTable kTable = {sizeof(WorkRingTable), knows,   open,  sends_end,
                                  send_before,           receive, forget};

}  // namespace
}  // namespace shift::mlx5

extern "C" __attribute__((visibility("default"))) const shift::WorkRingTable* shift_work_rings() {
  return &shift::mlx5::kTable;
}
