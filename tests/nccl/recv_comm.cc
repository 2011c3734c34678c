// The receiving end of a connection: it asks for data and judges it.
#include "recv_comm.h"

#include <cstring>

namespace traffic::nccl {
namespace {
constexpr uint64_t kCtsSignalEvery = kRing;
}

RecvComm::RecvComm(const Layout& layout, uint32_t qp_base, std::vector<SendQueue*> queues,
                   Transport* transport, Report* report)
    : layout_(layout),
      qp_base_(qp_base),
      queues_(std::move(queues)),
      transport_(transport),
      report_(report),
      entries_(transport->region_add(size_t{kRing} * kGroupMax * sizeof(CtsEntry))),
      data_(transport->region_add(size_t{layout.target_slots()} * kGroupMax * layout.slot_size())),
      sizes_(transport->region_add(size_t{kRing} * kGroupMax * sizeof(uint32_t))),
      flush_(transport->region_add(size_t{layout.options().depth} * kFlushSlot)) {
  for (uint32_t qp = 0; qp < layout_.options().qps; ++qp)
    receives_.emplace_back(layout_, qp, qp_base + qp, report);
  for (uint64_t group = 0; group < layout_.target_slots(); ++group)
    for (uint32_t i = 0; i < kGroupMax; ++i) pattern_fill(poison_of(group, i), slot_of(group, i));
  for (uint64_t group = 0; group < kRing; ++group)
    pattern_fill(sizes_poison(group), sizes_of(group));
  for (uint64_t group = 0; group < layout_.options().depth; ++group)
    pattern_fill(flush_poison(group), flush_of(group));
}

void RecvComm::check_poison(std::span<std::byte> bytes, uint64_t key, const char* what,
                            uint64_t slot) {
  if (auto wrong = pattern_mismatch(key, bytes)) {
    report_->violation("ghost-write", fmt::format("connection {} {} {} at byte {}",
                                                  layout_.connection(), what, slot, *wrong));
    pattern_fill(key, bytes);
  }
}

// The memory that a group will be written to was consumed long ago, so any byte that is not poison
// comes from a WRITE that should not have run.
void RecvComm::check_target(uint64_t group) {
  for (uint32_t i = 0; i < kGroupMax && i < layout_.options().group; ++i)
    check_poison(slot_of(group, i), poison_of(group, i), "target",
                 Layout::slot_index(group, layout_.target_slots(), i));
  check_poison(sizes_of(group), sizes_poison(group), "sizes of slot", group % kRing);
}

bool RecvComm::grant_next() {
  if (granted_ >= total_ || granted_ - lowest_ >= layout_.options().depth ||
      queues_[0]->room() == 0 || !report_->is_clean())
    return false;
  uint64_t group = granted_++;
  check_target(group);
  shares_left_.push_back(layout_.qp_count());
  uint32_t first = layout_.first_qp(group);
  for (uint32_t qp = first; qp < first + layout_.qp_count(); ++qp)
    if (int error = receives_[qp].post(group, transport_); error != 0)
      report_->error(fmt::format("post_recv: {}", strerror(error)));
  entries_fill(group);
  grant_post(group);
  return true;
}

void RecvComm::entries_fill(uint64_t group) {
  auto* entries = reinterpret_cast<CtsEntry*>(entries_.base) + group % kRing * kGroupMax;
  for (uint32_t i = 0; i < layout_.count(group); ++i) {
    CtsEntry& entry = entries[i];
    entry.tail = group + 1;
    entry.address = reinterpret_cast<uintptr_t>(slot_of(group, i).data());
    entry.rkey = data_.rkey;
    entry.size = layout_.options().size;
    entry.count = layout_.count(group);
    entry.tag = layout_.tag(group, i);
    __atomic_store_n(&entry.head, group + 1, __ATOMIC_RELEASE);
  }
}

void RecvComm::grant_post(uint64_t group) {
  uint64_t offset = group % kRing * kGroupMax * sizeof(CtsEntry);
  SendRequest request{};
  request.is_signaled = (group + 1) % kCtsSignalEvery == 0;
  request.wr_id = queues_[0]->wr_id_next(request.is_signaled);
  request.opcode = IBV_WR_RDMA_WRITE;
  request.local = entries_.base + offset;
  request.length = layout_.count(group) * static_cast<uint32_t>(sizeof(CtsEntry));
  request.is_inline = layout_.options().cts_inline && request.length <= kInlineMax;
  request.lkey = entries_.lkey;
  request.remote = remote_ring_.base + offset;
  request.rkey = remote_ring_.rkey;
  queues_[0]->posted(
      {request.wr_id, WorkKind::kCredit, request.is_signaled, IBV_WC_RDMA_WRITE, 0, group});
  size_t posted = 0;
  if (int error = transport_->post_send(qp_base_, {&request, 1}, &posted); error != 0)
    report_->error(fmt::format("post_send of a clear-to-send entry: {}", strerror(error)));
}

void RecvComm::notification(uint32_t qp, const ibv_wc& wc) {
  auto group = receives_[qp].completion(wc);
  if (!group) return;
  if (--shares_left_[*group - lowest_] != 0) return;
  // Memory of a GPU has all data only when the READ is over, so nobody looks at it before.
  if (!layout_.options().flush || !flush_post(*group)) consume(*group);
}

// Nothing may write to this memory from now on.
void RecvComm::judge_data(uint64_t group) {
  for (uint32_t i = 0; i < layout_.count(group); ++i) {
    auto slot = slot_of(group, i);
    uint32_t size = layout_.size(group, i);
    if (auto wrong = pattern_mismatch(layout_.payload_key(group, i), slot.first(size)))
      report_->violation("payload-mismatch",
                         fmt::format("connection {} group {} message {} byte {} of {}",
                                     layout_.connection(), group, i, *wrong, size));
    if (auto wrong = pattern_mismatch(poison_of(group, i), slot.subspan(size), size))
      report_->violation("stray-write",
                         fmt::format("connection {} group {} message {} of {} bytes, byte {} "
                                     "beyond",
                                     layout_.connection(), group, i, size, *wrong));
  }
  judge_sizes(group);
}

void RecvComm::judge_sizes(uint64_t group) {
  auto bytes = sizes_of(group);
  uint32_t count = layout_.count(group), used = count > 1 ? count * 4 : 0;
  for (uint32_t i = 0; i < count && used != 0; ++i) {
    uint32_t size;
    std::memcpy(&size, bytes.data() + i * 4, sizeof size);
    if (size != layout_.size(group, i))
      report_->violation("sizes-mismatch",
                         fmt::format("connection {} group {} message {}: {}, not {}",
                                     layout_.connection(), group, i, size, layout_.size(group, i)));
  }
  if (auto wrong = pattern_mismatch(sizes_poison(group), bytes.subspan(used), used))
    report_->violation("stray-write", fmt::format("connection {} group {} sizes, byte {}",
                                                  layout_.connection(), group, *wrong));
}

// The last byte of the group's data; if it has none, of its sizes.
std::optional<RecvComm::LastByte> RecvComm::last_byte(uint64_t group) const {
  uint32_t index = layout_.count(group);
  while (index > 0 && layout_.size(group, index - 1) == 0) --index;
  if (index > 0) {
    const uint32_t last = layout_.size(group, index - 1) - 1;
    return LastByte{&slot_of(group, index - 1)[last], data_.rkey,
                    pattern_byte(layout_.payload_key(group, index - 1), last)};
  }
  if (layout_.count(group) == 1) return std::nullopt;
  return LastByte{&sizes_of(group)[layout_.count(group) * sizeof(uint32_t) - 1], sizes_.rkey,
                  std::byte{0}};
}

// READs the last byte back through the NIC, so that all data before it is visible in memory.
bool RecvComm::flush_post(uint64_t group) {
  const auto last = last_byte(group);
  if (!last) return false;
  check_poison(flush_of(group), flush_poison(group), "flush buffer",
               group % layout_.options().depth);
  SendQueue* queue = queues_.back();
  SendRequest request{};
  request.is_signaled = true;
  request.wr_id = queue->wr_id_next(true);
  request.opcode = IBV_WR_RDMA_READ;
  request.local = flush_of(group).data();
  request.length = 1;
  request.lkey = flush_.lkey;
  request.remote = reinterpret_cast<uintptr_t>(last->place);
  request.rkey = last->rkey;
  queue->posted({request.wr_id, WorkKind::kMessage, true, IBV_WC_RDMA_READ, 1, group});
  size_t posted = 0;
  if (int error = transport_->post_send(qp_base_ + layout_.options().qps, {&request, 1}, &posted);
      error != 0)
    report_->error(fmt::format("post_send of a flush: {}", strerror(error)));
  return true;
}

void RecvComm::flush_done(uint64_t group) {
  auto bytes = flush_of(group);
  if (bytes[0] != last_byte(group)->value)
    report_->violation("read-mismatch",
                       fmt::format("connection {} flush of group {}", layout_.connection(), group));
  pattern_fill(flush_poison(group), bytes.first(1));
  check_poison(bytes, flush_poison(group), "flush buffer", group % layout_.options().depth);
  consume(group);
}

void RecvComm::consume(uint64_t group) {
  judge_data(group);
  for (uint32_t i = 0; i < layout_.count(group); ++i)
    pattern_fill(poison_of(group, i), slot_of(group, i).first(layout_.size(group, i)));
  if (layout_.count(group) > 1) pattern_fill(sizes_poison(group), sizes_of(group));
  ++consumed_;
  shares_left_[group - lowest_] = kConsumed;
  while (!shares_left_.empty() && shares_left_.front() == kConsumed) {
    shares_left_.pop_front();
    ++lowest_;
  }
}

void RecvComm::finish() {
  if (!is_done())
    report_->violation("notification-missing",
                       fmt::format("connection {}: {} of {} groups consumed", layout_.connection(),
                                   consumed_, total_));
  for (uint64_t group = 0; group < layout_.target_slots(); ++group)
    for (uint32_t i = 0; i < kGroupMax; ++i)
      check_poison(slot_of(group, i), poison_of(group, i), "target", group * kGroupMax + i);
  for (uint64_t group = 0; group < kRing; ++group)
    check_poison(sizes_of(group), sizes_poison(group), "sizes of slot", group);
  for (uint64_t group = 0; group < layout_.options().depth; ++group)
    check_poison(flush_of(group), flush_poison(group), "flush buffer", group);
}

size_t RecvComm::receives_pending() const {
  size_t sum = 0;
  for (const ReceiveOrder& receives : receives_) sum += receives.pending();
  return sum;
}

}  // namespace traffic::nccl
