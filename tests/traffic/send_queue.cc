// Judges send completions. A wr_id holds a tag, the QP, a serial, and in its lowest bit whether the
// WR is signaled.
#include "send_queue.h"

#include <algorithm>

#include "wr_id.h"

namespace traffic {

uint64_t SendQueue::wr_id_next(bool is_signaled) {
  return wr_id_make(kSendTag, qp_, serial_++ << 1 | (is_signaled ? 1 : 0));
}

bool SendQueue::has_pending(WorkKind kind) const {
  return std::any_of(pending_.begin(), pending_.end(),
                     [kind](const PostedSend& work) { return work.kind == kind; });
}

bool SendQueue::has_signaled_pending() const {
  return std::any_of(pending_.begin(), pending_.end(),
                     [](const PostedSend& work) { return work.is_signaled; });
}

bool SendQueue::has_signaled_pending(WorkKind kind) const {
  return std::any_of(pending_.begin(), pending_.end(), [kind](const PostedSend& work) {
    return work.is_signaled && work.kind == kind;
  });
}

void SendQueue::take_back() {
  pending_.pop_back();
  has_failed_ = true;
}

void SendQueue::completion_unexpected(const ibv_wc& wc) {
  uint64_t serial = (wc.wr_id & 0xffffffffffu) >> 1;
  bool is_ours = wc.wr_id >> 40 == wr_id_make(kSendTag, qp_, 0) >> 40 && serial < serial_;
  const char* name = !is_ours              ? "completion-unknown"
                     : (wc.wr_id & 1) == 0 ? "completion-unsignaled"
                                           : "completion-duplicate";
  report_->violation(name, fmt::format("qp {} wr_id {:#x}", qp_, wc.wr_id));
}

// Every WR from the failed one on has a completion of its own, also if it is unsignaled. The WRs
// before it were executed; unsignaled ones among them have no completion.
void SendQueue::completion_failed(const ibv_wc& wc) {
  has_failed_ = true;
  report_->error(fmt::format("wc status {} ({}) qp {} wr_id {:#x} vendor {:#x}",
                             static_cast<int>(wc.status), ibv_wc_status_str(wc.status), qp_,
                             wc.wr_id, wc.vendor_err));
  const auto found = std::ranges::find(pending_, wc.wr_id, &PostedSend::wr_id);
  if (found == pending_.end()) return completion_unexpected(wc);
  const auto passed = std::find_if(pending_.begin(), found, [&](const PostedSend& work) {
    return work.is_signaled &&
           std::ranges::find(completed_early_, work.wr_id) == completed_early_.end();
  });
  if (passed != found)
    report_->violation("completion-order", fmt::format("qp {} error of wr_id {:#x} before {:#x}",
                                                       qp_, wc.wr_id, passed->wr_id));
  pending_.erase(pending_.begin(), found + 1);
}

void SendQueue::completion(const ibv_wc& wc, std::vector<PostedSend>* retired) {
  if (wc.status != IBV_WC_SUCCESS) return completion_failed(wc);
  if (has_failed_)
    report_->violation("success-after-error", fmt::format("qp {} wr_id {:#x}", qp_, wc.wr_id));
  auto found = std::find_if(pending_.begin(), pending_.end(),
                            [&](const PostedSend& work) { return work.wr_id == wc.wr_id; });
  bool is_early = std::find(completed_early_.begin(), completed_early_.end(), wc.wr_id) !=
                  completed_early_.end();
  if (found == pending_.end() || is_early) return completion_unexpected(wc);
  if (!found->is_signaled) {
    report_->violation("completion-unsignaled", fmt::format("qp {} wr_id {:#x}", qp_, wc.wr_id));
    return;
  }
  if (wc.qp_num != qp_num_)
    report_->violation("completion-qp-num", fmt::format("qp {} wr_id {:#x}: {:#x}, not {:#x}", qp_,
                                                        wc.wr_id, wc.qp_num, qp_num_));
  if (wc.opcode != found->opcode)
    report_->violation("completion-opcode",
                       fmt::format("qp {} wr_id {:#x}: {}, not {}", qp_, wc.wr_id,
                                   static_cast<int>(wc.opcode), static_cast<int>(found->opcode)));
  if (found->fetch_length != 0 && wc.byte_len != found->fetch_length)
    report_->violation("completion-length",
                       fmt::format("qp {} wr_id {:#x}: {}, not {}", qp_, wc.wr_id, wc.byte_len,
                                   found->fetch_length));

  auto first_signaled = std::find_if(pending_.begin(), pending_.end(),
                                     [](const PostedSend& work) { return work.is_signaled; });
  if (first_signaled != found) {
    report_->violation("completion-order", fmt::format("qp {} wr_id {:#x} before {:#x}", qp_,
                                                       wc.wr_id, first_signaled->wr_id));
    completed_early_.push_back(wc.wr_id);
    return;
  }
  retired->insert(retired->end(), pending_.begin(), found + 1);
  pending_.erase(pending_.begin(), found + 1);
}

void SendQueue::finish() {
  for (const PostedSend& work : pending_)
    if (work.is_signaled && std::find(completed_early_.begin(), completed_early_.end(),
                                      work.wr_id) == completed_early_.end())
      report_->violation("completion-missing", fmt::format("qp {} wr_id {:#x}", qp_, work.wr_id));
}

}  // namespace traffic
