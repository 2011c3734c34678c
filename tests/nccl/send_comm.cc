// The sending end of a connection: it sends what the other end has asked for.
#include "send_comm.h"

#include <algorithm>
#include <cstring>

namespace traffic::nccl {

SendComm::SendComm(const Layout& layout, uint32_t qp_base, std::vector<SendQueue*> queues,
                   Transport* transport, Report* report)
    : layout_(layout),
      qp_base_(qp_base),
      queues_(std::move(queues)),
      transport_(transport),
      report_(report),
      ring_(transport->region_add(size_t{kRing} * kGroupMax * sizeof(CtsEntry))),
      sizes_(transport->region_add(size_t{kRing} * kGroupMax * sizeof(uint32_t))),
      source_(
          transport->region_add(size_t{layout.source_slots()} * kGroupMax * layout.slot_size())),
      total_(layout.options().messages != 0 ? layout.options().messages : UINT64_MAX) {
  for (uint64_t i = 0; i < uint64_t{layout_.source_slots()} * kGroupMax; ++i)
    pattern_fill(layout_.poison_key(Domain::kLocalPoison, i), source_.slot(i, layout_.slot_size()));
}

const CtsEntry* SendComm::entries_of(uint64_t group) const {
  return reinterpret_cast<const CtsEntry*>(ring_.base) + group % kRing * kGroupMax;
}

// Whether all entries of the slot are whole and belong to this group.
bool SendComm::is_clear(uint64_t group) const {
  const CtsEntry* entries = entries_of(group);
  for (uint32_t i = 0; i < layout_.count(group); ++i) {
    if (__atomic_load_n(&entries[i].tail, __ATOMIC_ACQUIRE) != group + 1) return false;
    if (__atomic_load_n(&entries[i].head, __ATOMIC_ACQUIRE) != group + 1) return false;
  }
  return true;
}

void SendComm::check_entries(uint64_t group) {
  const CtsEntry* entries = entries_of(group);
  for (uint32_t i = 0; i < layout_.count(group); ++i) {
    const CtsEntry& entry = entries[i];
    uint64_t slot = Layout::slot_index(group, layout_.target_slots(), i);
    if (entry.address != data_.base + slot * layout_.slot_size() || entry.rkey != data_.rkey ||
        entry.count != layout_.count(group) || entry.tag != layout_.tag(group, i) ||
        entry.size != layout_.options().size)
      report_->violation("cts-mismatch",
                         fmt::format("connection {} group {} entry {}: address {:#x} rkey {:#x} "
                                     "size {} count {} tag {:#x}",
                                     layout_.connection(), group, i, entry.address, entry.rkey,
                                     entry.size, entry.count, entry.tag));
  }
}

// Checks the entries that no group uses.
void SendComm::check_unused(uint64_t slot) {
  auto all = ring_.slot(slot, kGroupMax * sizeof(CtsEntry));
  auto unused = all.subspan(layout_.options().group * sizeof(CtsEntry));
  if (std::any_of(unused.begin(), unused.end(), [](std::byte byte) { return byte != std::byte{}; }))
    report_->violation("stray-write", fmt::format("connection {} ring slot {}, beyond its entries",
                                                  layout_.connection(), slot));
}

bool SendComm::send_next() {
  if (next_ >= total_ || next_ - lowest_ >= layout_.options().depth || !is_clear(next_))
    return false;
  uint32_t first = layout_.first_qp(next_);
  for (uint32_t qp = first; qp < first + layout_.qp_count(); ++qp)
    if (queues_[qp]->room() < kGroupMax + 1) return false;
  check_entries(next_);
  check_unused(next_ % kRing);
  if (!report_->is_clean()) return false;
  source_fill(next_);
  shares_left_.push_back(layout_.qp_count());
  uint64_t group = next_++;
  for (uint32_t qp = first; qp < first + layout_.qp_count(); ++qp)
    if (!share_post(group, qp)) break;
  return true;
}

void SendComm::source_fill(uint64_t group) {
  auto* sizes = reinterpret_cast<uint32_t*>(sizes_.base) + group % kRing * kGroupMax;
  for (uint32_t i = 0; i < layout_.count(group); ++i) {
    uint64_t slot = Layout::slot_index(group, layout_.source_slots(), i);
    check_source(slot, "before its reuse");
    pattern_fill(layout_.payload_key(group, i),
                 source_.slot(slot, layout_.slot_size()).first(layout_.size(group, i)));
    sizes[i] = layout_.size(group, i);
  }
}

SendRequest SendComm::data_request(uint64_t group, uint32_t index, uint32_t qp) const {
  Part part = layout_.part(group, index, qp);
  const CtsEntry& entry = entries_of(group)[index];
  uint64_t slot = Layout::slot_index(group, layout_.source_slots(), index);
  SendRequest request{};
  request.opcode = IBV_WR_RDMA_WRITE;
  request.local = source_.base + slot * layout_.slot_size() + part.offset;
  request.length = part.length;
  request.lkey = source_.lkey;
  request.remote = entry.address + part.offset;
  request.rkey = entry.rkey;
  return request;
}

// Posts one list to one QP: the data of all messages, then the notification, which alone is
// signaled. A single message carries the notification itself.
bool SendComm::share_post(uint64_t group, uint32_t qp) {
  std::vector<SendRequest> requests;
  uint32_t count = layout_.count(group);
  for (uint32_t i = 0; i < count; ++i) requests.push_back(data_request(group, i, qp));
  if (count > 1) {
    uint64_t slot = group % kRing * kGroupMax * sizeof(uint32_t);
    SendRequest sizes{};
    sizes.local = sizes_.base + slot;
    sizes.length = count * 4;
    sizes.lkey = sizes_.lkey;
    sizes.remote = remote_sizes_.base + slot;
    sizes.rkey = remote_sizes_.rkey;
    requests.push_back(sizes);
  } else if (layout_.is_separate(group)) {
    requests.push_back({});
  }
  requests.back().opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  requests.back().imm = layout_.imm(group);
  requests.back().is_signaled = true;
  for (SendRequest& request : requests) {
    request.wr_id = queues_[qp]->wr_id_next(request.is_signaled);
    queues_[qp]->posted(
        {request.wr_id, WorkKind::kMessage, request.is_signaled, IBV_WC_RDMA_WRITE, 0, group});
  }
  size_t posted = 0;
  int error = transport_->post_send(qp_base_ + qp, requests, &posted);
  if (error != 0)
    report_->error(fmt::format("post_send {} connection {} qp {} after {} of {}", strerror(error),
                               layout_.connection(), qp, posted, requests.size()));
  return error == 0;
}

void SendComm::share_done(uint64_t group) {
  if (--shares_left_[group - lowest_] != 0) return;
  ++completed_;
  for (uint32_t i = 0; i < layout_.count(group); ++i) {
    // The memory belongs to the program again: nothing may be sent from it any more.
    uint64_t slot = Layout::slot_index(group, layout_.source_slots(), i);
    pattern_fill(layout_.poison_key(Domain::kLocalPoison, slot),
                 source_.slot(slot, layout_.slot_size()));
    bytes_ += layout_.size(group, i);
  }
  while (!shares_left_.empty() && shares_left_.front() == 0) {
    shares_left_.pop_front();
    ++lowest_;
  }
}

void SendComm::check_source(uint64_t slot, const char* when) {
  uint64_t key = layout_.poison_key(Domain::kLocalPoison, slot);
  auto bytes = source_.slot(slot, layout_.slot_size());
  if (auto wrong = pattern_mismatch(key, bytes)) {
    report_->violation("ghost-write", fmt::format("source {} of connection {} at byte {} {}", slot,
                                                  layout_.connection(), *wrong, when));
    pattern_fill(key, bytes);
  }
}

void SendComm::finish() {
  for (uint64_t slot = 0; slot < kRing; ++slot) check_unused(slot);
  for (uint64_t i = 0; i < uint64_t{layout_.source_slots()} * kGroupMax; ++i)
    check_source(i, "at the end");
}

}  // namespace traffic::nccl
