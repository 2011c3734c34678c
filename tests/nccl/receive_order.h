// The judge of one QP's receives: none has memory of its own, each is consumed once, in the order
// of posting, by the notification of its group.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <optional>

#include "layout.h"
#include "report.h"
#include "transport.h"
#include "wr_id.h"

namespace traffic::nccl {

class ReceiveOrder {
 public:
  ReceiveOrder(const Layout& layout, uint32_t qp, uint32_t transport_qp, Report* report)
      : layout_(layout), qp_(qp), transport_qp_(transport_qp), report_(report) {}

  // 0 or errno.
  int post(uint64_t group, Transport* transport);
  // Judges one completion; the group that it notifies of, unless it is wrong.
  std::optional<uint64_t> completion(const ibv_wc& wc);
  size_t pending() const { return waiting_.size(); }

 private:
  uint64_t wr_id_of(uint64_t serial) const {
    return wr_id_make(kReceiveTag, transport_qp_, serial);
  }
  bool check_request(uint64_t wr_id);
  const char* name_of_wrong(uint32_t imm) const;

  const Layout layout_;
  const uint32_t qp_;  // within its connection
  const uint32_t transport_qp_;
  Report* const report_;
  std::deque<uint64_t> waiting_;  // groups
  std::deque<uint64_t> past_;     // the last ones that were notified of
  uint64_t posted_ = 0;
};

}  // namespace traffic::nccl
