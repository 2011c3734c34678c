// Shared receive queue.
#include "nic/srq.h"

#include <cstring>

#include "nic/mlx5_layout.h"
#include "nic/planted.h"

namespace cxemu {

uint32_t Srq::posted() const {
  const auto count = static_cast<uint16_t>(doorbell_load(config.db) - taken_);
  return count <= config.wqe_count ? count : 0;  // a correct library never rings such a doorbell
}

bool Srq::take(RecvWqe* wqe) {
  if (posted() == 0) return false;
  const auto* entry = static_cast<const uint8_t*>(config.buffer) +
                      (size_t{next_ & (config.wqe_count - 1)} << config.wqe_shift);
  // The list continues in the entry itself. It must be read before the entry completes: afterwards
  // the application owns the entry and links it after the last free one.
  SrqNextSegment head;
  memcpy(&head, entry, sizeof head);
  wqe->index = next_;
  recv_parts_decode(entry + kSegmentSize, (1u << config.wqe_shift) / kSegmentSize - 1, wqe);
  const uint16_t link = CXEMU_PLANT(srq_list_sorted) ? static_cast<uint16_t>(next_ + 1)
                                                     : be16toh(head.next_wqe_index);
  next_ = static_cast<uint16_t>(link & (config.wqe_count - 1));
  taken_++;
  limit_check();
  return true;
}

void Srq::limit_arm(uint32_t limit) {
  limit_ = limit;
  limit_check();
}

void Srq::limit_check() {
  if (limit_ == 0 || posted() >= limit_ + CXEMU_PLANT(srq_limit_early)) return;
  if (!CXEMU_PLANT(srq_limit_stays)) limit_ = 0;
  async_events_++;
  config.sink->async_event(IBV_EVENT_SRQ_LIMIT_REACHED, config.user_handle);
}

}  // namespace cxemu
