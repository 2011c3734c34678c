#include "group/journal.h"

#include <algorithm>
#include <bit>

namespace shift::group {
namespace {

// The operands of an atomic. They lie at the end of the extension, after the SGEs.
struct AtomicOperands {
  uint64_t compare_add, swap;
};
// The operands of a request to bind a window, in the same place. Its other values lie in fields of
// the entry that such a request does not need.
struct BindOperands {
  ibv_mw* mw;
  ibv_mr* mr;
};
static_assert(sizeof(BindOperands) == sizeof(AtomicOperands));

static_assert(offsetof(ibv_send_wr, opcode) == offsetof(ibv_send_wr, num_sge) + 4);
static_assert(offsetof(ibv_send_wr, send_flags) == offsetof(ibv_send_wr, num_sge) + 8);
static_assert(offsetof(ibv_send_wr, imm_data) == offsetof(ibv_send_wr, num_sge) + 12);
static_assert(offsetof(ibv_send_wr, wr.rdma.rkey) ==
              offsetof(ibv_send_wr, wr.rdma.remote_addr) + 8);
// append_chain() relies on these opcodes and on no other up to READ.
static_assert((kNotificationOpcodes & ((2u << IBV_WR_RDMA_READ) - 1)) ==
              (1u << IBV_WR_RDMA_WRITE_WITH_IMM | 1u << IBV_WR_SEND | 1u << IBV_WR_SEND_WITH_IMM));
static_assert(IBV_WR_SEND == IBV_WR_RDMA_WRITE_WITH_IMM + 1 &&
              IBV_WR_SEND_WITH_IMM == IBV_WR_RDMA_WRITE_WITH_IMM + 2);
static_assert((kAtomicOpcodes & ((2u << IBV_WR_RDMA_READ) - 1)) == 0);
static_assert(offsetof(SendEntry, imm_or_rkey) == offsetof(SendEntry, num_sge) + 12);
static_assert(offsetof(SendEntry, rkey) == offsetof(SendEntry, remote_addr) + 8);

}  // namespace

void SendJournal::init(uint32_t depth, uint32_t max_sge, uint32_t max_inline, bool all_signaled,
                       bool by_notes) {
  head_ = 0;
  signaled_ = notifications_ = 0;
  mtu_ = mtu_shift_ = packets_ = 0;
  depth_ = std::max(depth, 1u);
  const uint32_t slots = std::bit_ceil(depth_) * 2;
  mask_ = slots - 1;
  all_signaled_ = all_signaled ? IBV_SEND_SIGNALED : 0;
  max_sge_ = std::clamp<uint32_t>(max_sge, 1, kMaxSge);
  const size_t sge_bytes = sizeof(ibv_sge) * std::max(max_sge, 1u);
  stride_ = static_cast<uint32_t>(
      (std::max(sge_bytes + sizeof(AtomicOperands), size_t{max_inline}) + 15) & ~size_t{15});
  // Memory that is never written costs nothing: of a queue that only makes notes, the entries.
  ring_ = std::make_unique_for_overwrite<SendEntry[]>(slots);
  extension_ = std::make_unique_for_overwrite<uint8_t[]>(size_t{slots} * stride_);
  notes_ = by_notes ? std::make_unique_for_overwrite<SendNote[]>(slots) : nullptr;
  is_noting_ = by_notes;
  noted_from_ = known_from_ = 0;
  unflagged_ = 0;
}

void SendJournal::append_rest(const ibv_send_wr* wr) {
  for (; wr != nullptr; wr = wr->next) {
    if (wr->send_flags & IBV_SEND_INLINE) {
      append_inline(*wr);
    } else {
      append(*wr);
    }
  }
}

// Messages that are posted inline are often small and frequent; atomics and several SGEs are rare.
inline void SendJournal::append_inline(const ibv_send_wr& wr) {
  SendEntry& entry = ring_[head_.own() & mask_];
  entry.wr_id = wr.wr_id;
  copy16(&entry, offsetof(SendEntry, num_sge), &wr, offsetof(ibv_send_wr, num_sge));
  copy16(&entry, offsetof(SendEntry, remote_addr), &wr, offsetof(ibv_send_wr, wr));
  keep_inline(entry, wr);
  count(entry);
}

// Keeps the bytes, because the application may reuse the buffer as soon as the post returns.
inline void SendJournal::keep_inline(SendEntry& entry, const ibv_send_wr& wr) {
  uint8_t* extra = extension(head_.own());
  uint32_t length = 0;
  for (int i = 0; i < wr.num_sge; i++) {
    const ibv_sge& sge = wr.sg_list[i];
    if (sge.length > stride_ - length) break;  // the provider beneath has refused such a WR
    std::memcpy(extra + length, reinterpret_cast<const void*>(sge.addr), sge.length);
    length += sge.length;
  }
  entry.inline_length = length;
}

void SendJournal::append_rare(SendEntry& entry, const ibv_send_wr& wr) {
  if (wr.opcode == IBV_WR_BIND_MW) {
    return keep_bind(0, wr.bind_mw.mw, wr.bind_mw.rkey, wr.bind_mw.bind_info);
  }
  if (wr.send_flags & IBV_SEND_INLINE) return keep_inline(entry, wr);
  if (is_atomic(wr.opcode)) {
    keep_atomic(0, wr.wr.atomic.compare_add, wr.wr.atomic.swap);
    entry.rkey = wr.wr.atomic.rkey;
  }
  if (wr.num_sge > 0) {
    entry.sge = wr.sg_list[0];
    std::memcpy(extension(head_.own()), wr.sg_list,
                sizeof(ibv_sge) * static_cast<size_t>(wr.num_sge));
  }
}

void SendJournal::keep_atomic(uint32_t pending, uint64_t compare_add, uint64_t swap) {
  keep_operands(head_.own() + pending, compare_add, swap);
}

void SendJournal::keep_operands(uint64_t position, uint64_t compare_add, uint64_t swap) {
  const AtomicOperands operands{compare_add, swap};
  std::memcpy(extension(position) + stride_ - sizeof operands, &operands, sizeof operands);
}

void SendJournal::keep_bind(uint32_t pending, ibv_mw* mw, uint32_t rkey,
                            const ibv_mw_bind_info& info) {
  SendEntry& entry = slot(pending);
  const BindOperands operands{mw, info.mr};
  std::memcpy(extension(head_.own() + pending) + stride_ - sizeof operands, &operands,
              sizeof operands);
  entry.num_sge = 0;
  entry.rkey = rkey;
  entry.remote_addr = info.addr;
  entry.sge.addr = info.length;
  entry.sge.length = info.mw_access_flags;
}

void SendJournal::take_back(uint64_t position) {
  for (uint64_t i = position; mtu_ != 0 && i < head_; i++) packets_ -= packets_at(i);
  const SendEntry& entry = at(position);
  signaled_ = entry.signaled_total - is_signaled(entry);
  notifications_ = entry.notification_total - is_notification(entry.opcode);
  head_ = position;
}

void SendJournal::append_from(SendJournal& other, uint32_t pending) {
  const SendEntry& from = other.slot(pending);
  if (mtu_ != 0) packets_ += packets_of(from.opcode, other.length_at(other.head_.own() + pending));
  if (is_noting_) return note({from.wr_id, from.opcode, from.send_flags});
  SendEntry& entry = slot(0);
  entry = from;
  std::memcpy(extension(head_.own()), other.extension(other.head_.own() + pending), stride_);
  count(entry);
}

uint64_t SendJournal::first_incomplete(uint32_t signaled_done, uint64_t end) const {
  const uint64_t oldest = end > mask_ ? end - mask_ : 0;
  uint64_t position = end;
  if (is_noting_) {
    const auto found = first_incomplete_noted(signaled_done, end, oldest);
    if (found) return *found;
    position = std::min(end, std::max(noted_from_, oldest));
  }
  for (; position > oldest; position--) {
    const SendEntry& entry = at(position - 1);
    if (is_signaled(entry) && static_cast<int32_t>(entry.signaled_total - signaled_done) <= 0) {
      return position;
    }
  }
  return oldest;
}

void SendJournal::rebuild(uint64_t position, ibv_send_wr* wr, ibv_sge* sges) const {
  const SendEntry& entry = at(position);
  uint8_t* extra = extension_.get() + (position & mask_) * stride_;
  *wr = {};
  wr->wr_id = entry.wr_id;
  wr->sg_list = sges;
  wr->opcode = static_cast<ibv_wr_opcode>(entry.opcode);
  wr->send_flags = entry.send_flags;
  wr->imm_data = entry.imm_or_rkey;
  wr->wr.rdma.remote_addr = entry.remote_addr;
  wr->wr.rdma.rkey = entry.rkey;
  if (entry.send_flags & IBV_SEND_INLINE) {
    sges[0] = {reinterpret_cast<uintptr_t>(extra), entry.inline_length, 0};
    wr->num_sge = entry.inline_length == 0 ? 0 : 1;
    return;
  }
  wr->num_sge = entry.num_sge;
  if (is_atomic(entry.opcode)) {
    AtomicOperands operands;
    std::memcpy(&operands, extra + stride_ - sizeof operands, sizeof operands);
    wr->wr.atomic.compare_add = operands.compare_add;
    wr->wr.atomic.swap = operands.swap;
    wr->wr.atomic.rkey = entry.rkey;
  }
  if (entry.opcode == IBV_WR_BIND_MW) {
    BindOperands operands;
    std::memcpy(&operands, extra + stride_ - sizeof operands, sizeof operands);
    wr->bind_mw.mw = operands.mw;
    wr->bind_mw.rkey = entry.rkey;
    wr->bind_mw.bind_info = {operands.mr, entry.remote_addr, entry.sge.addr, entry.sge.length};
  }
  if (entry.num_sge == 1) {
    sges[0] = entry.sge;
  } else if (entry.num_sge > 1) {
    std::memcpy(sges, extra, sizeof(ibv_sge) * static_cast<size_t>(entry.num_sge));
  }
}

void RecvJournal::init(uint32_t depth, uint32_t max_sge, bool by_notes) {
  head_ = 0;
  depth_ = std::max(depth, 1u);
  const uint32_t slots = std::bit_ceil(depth_) * 2;
  mask_ = slots - 1;
  stride_words_ = 2 + 2 * std::max(max_sge, 1u);
  ring_ = std::make_unique_for_overwrite<uint64_t[]>(size_t{slots} * stride_words_);
  notes_ = by_notes ? std::make_unique_for_overwrite<uint64_t[]>(slots) : nullptr;
  is_noting_ = by_notes;
  noted_from_ = known_from_ = 0;
}

void RecvJournal::append(const ibv_recv_wr& wr) {
  if (is_noting_) {
    notes_[head_++ & mask_] = wr.wr_id;
    return;
  }
  uint64_t* entry = ring_.get() + (head_ & mask_) * stride_words_;
  entry[0] = wr.wr_id;
  entry[1] = static_cast<uint32_t>(wr.num_sge);
  if (wr.num_sge > 0) {
    std::memcpy(&entry[2], wr.sg_list, sizeof(ibv_sge) * static_cast<size_t>(wr.num_sge));
  }
  ++head_;
}

void RecvJournal::append_rest(const ibv_recv_wr* wr) {
  for (; wr != nullptr; wr = wr->next) append(*wr);
}

void RecvJournal::rebuild(uint64_t position, ibv_recv_wr* wr, ibv_sge* sges) const {
  const uint64_t* entry = ring_.get() + (position & mask_) * stride_words_;
  wr->wr_id = entry[0];
  wr->next = nullptr;
  wr->sg_list = sges;
  wr->num_sge = static_cast<int>(entry[1]);
  std::memcpy(sges, &entry[2], sizeof(ibv_sge) * static_cast<size_t>(wr->num_sge));
}

}  // namespace shift::group
