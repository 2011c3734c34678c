// Keeps sending when the process at the other end is gone. The program must then get an error on
// every QP, and a completion for everything that it has posted there.
#pragma once

#include <cstdint>
#include <vector>

#include "send_queue.h"
#include "transport.h"

namespace traffic {

class Farewell {
 public:
  Farewell(Transport* transport, Report* report) : transport_(transport), report_(report) {}

  void add(uint32_t qp, SendQueue* queue) { queues_.push_back({qp, queue}); }
  // Posts an empty WRITE on every QP that works, and another one when that succeeds: the QPs at the
  // other end may live a little longer than their process.
  void step();
  // Whether every QP has failed and has completed all that was posted.
  bool is_over() const;

 private:
  struct Entry {
    uint32_t qp;
    SendQueue* queue;
  };
  Transport* const transport_;
  Report* const report_;
  std::vector<Entry> queues_;
};

}  // namespace traffic
