// Shared receive queue: a list of entries that the application posts and several queue pairs take.
#pragma once

#include <cstdint>

#include "nic/nic.h"
#include "nic/wqe.h"

namespace cxemu {

struct Srq {
 public:
  Srq(const SrqConfig& as_created, uint32_t own_number) : config(as_created), number(own_number) {}

  // Takes the oldest entry; wqe->index is its index in the buffer. Returns false if none is posted.
  bool take(RecvWqe* wqe);
  // Raises SRQ_LIMIT_REACHED once, as soon as fewer than `limit` entries are posted. 0: never.
  void limit_arm(uint32_t limit);
  uint32_t limit() const { return limit_; }
  uint32_t async_events() const { return async_events_; }
  // An XRC queue has a CQ of its own; other queues complete through the queue pair that took the
  // entry.
  bool is_xrc() const { return config.cq != nullptr; }

  const SrqConfig config;
  const uint32_t number;
  int users = 0;  // queue pairs that take from it

 private:
  uint32_t posted() const;
  void limit_check();

  uint16_t taken_ = 0;  // number of entries taken, in the doorbell's 16 bits
  uint16_t next_ = 0;   // index of the oldest posted entry
  uint32_t limit_ = 0;
  uint32_t async_events_ = 0;
};

}  // namespace cxemu
