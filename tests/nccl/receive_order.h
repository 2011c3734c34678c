// Judges one QP's receives. None has memory of its own. Each must be consumed once, in the order of
// posting, by the notification of its group.
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

  // Posts a receive for a group. Returns 0 or errno.
  int post(uint64_t group, Transport* transport);
  // Judges one completion. Returns the group of the notification, unless the completion is wrong.
  std::optional<uint64_t> completion(const ibv_wc& wc);
  size_t pending() const { return waiting_.size(); }

 private:
  uint64_t wr_id_of(uint64_t serial) const {
    return wr_id_make(kReceiveTag, transport_qp_, serial);
  }
  bool check_request(uint64_t wr_id);
  const char* name_of_wrong(uint32_t imm) const;

  const Layout layout_;
  const uint32_t qp_;  // its number in its connection
  const uint32_t transport_qp_;
  Report* const report_;
  std::deque<uint64_t> waiting_;  // groups without a notification yet
  std::deque<uint64_t> past_;     // the last groups with a notification
  uint64_t posted_ = 0;
};

}  // namespace traffic::nccl
