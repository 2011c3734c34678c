// Posts to QPs whose other end is gone.
#include "farewell.h"

#include <algorithm>
#include <cstring>

namespace traffic {

void Farewell::step() {
  for (const Entry& entry : queues_) {
    if (entry.queue->has_failed() || entry.queue->has_pending(WorkKind::kFarewell) ||
        entry.queue->room() == 0)
      continue;
    SendRequest request{};
    request.is_signaled = true;
    request.wr_id = entry.queue->wr_id_next(true);
    request.opcode = IBV_WR_RDMA_WRITE;
    entry.queue->posted({request.wr_id, WorkKind::kFarewell, true, IBV_WC_RDMA_WRITE, 0, 0});
    size_t posted = 0;
    if (int error = transport_->post_send(entry.qp, {&request, 1}, &posted); error != 0) {
      report_->error(fmt::format("post_send qp {}: {}", entry.qp, strerror(error)));
      entry.queue->take_back();
    }
  }
}

bool Farewell::is_over() const {
  return std::all_of(queues_.begin(), queues_.end(), [](const Entry& entry) {
    return entry.queue->has_failed() && entry.queue->pending() == 0;
  });
}

}  // namespace traffic
