// Judges one QP's send completions. Each signaled WR must have exactly one, in the order of
// posting, with the right wr_id, qp_num, opcode and length; an unsignaled WR must have none.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "report.h"

namespace traffic {

enum class WorkKind : uint8_t { kMessage, kCredit, kFarewell };

struct PostedSend {
  uint64_t wr_id;
  WorkKind kind;
  bool is_signaled;
  ibv_wc_opcode opcode;
  uint32_t fetch_length;  // byte_len of a READ or atomic; 0: it is not checked
  uint64_t number;        // of the message or the credit
};

class SendQueue {
 public:
  SendQueue(uint32_t qp, uint32_t qp_num, uint32_t capacity, Report* report)
      : qp_(qp), qp_num_(qp_num), capacity_(capacity), report_(report) {}

  uint64_t wr_id_next(bool is_signaled);
  void posted(const PostedSend& work) { pending_.push_back(work); }
  uint32_t room() const { return capacity_ - static_cast<uint32_t>(pending_.size()); }
  size_t pending() const { return pending_.size(); }
  bool has_failed() const { return has_failed_; }
  bool has_pending(WorkKind kind) const;
  bool has_signaled_pending() const;
  bool has_signaled_pending(WorkKind kind) const;
  // Removes the last WR, whose post was refused. The QP counts as failed from now on.
  void take_back();

  // Judges one completion and appends the WRs that it retires, in the order of posting.
  void completion(const ibv_wc& wc, std::vector<PostedSend>* retired);
  // Checks at the end of the run that every signaled WR has completed.
  void finish();

 private:
  void completion_unexpected(const ibv_wc& wc);
  void completion_failed(const ibv_wc& wc);

  const uint32_t qp_;
  const uint32_t qp_num_;
  const uint32_t capacity_;
  Report* const report_;
  uint64_t serial_ = 0;
  bool has_failed_ = false;  // after an error completion only flushes may follow
  std::deque<PostedSend> pending_;
  std::deque<uint64_t> completed_early_;  // wr_ids of WRs that overtook a signaled one
};

}  // namespace traffic
