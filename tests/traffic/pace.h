// Limits how many messages a second are posted.
#pragma once

#include <cstdint>

#include "report.h"

namespace traffic {

class Pace {
 public:
  explicit Pace(uint32_t rate) : rate_(rate) {}

  bool is_due() const { return rate_ == 0 || now_ns() >= next_ns_; }
  // Counts from now and not from when the messages were due, so no burst follows an outage.
  void took(uint32_t count) {
    if (rate_ != 0) next_ns_ = now_ns() + 1'000'000'000ull * count / rate_;
  }
  // When the next message is due; 0 means at once.
  uint64_t next_ns() const { return next_ns_; }

 private:
  const uint32_t rate_;
  uint64_t next_ns_ = 0;
};

}  // namespace traffic
