// So many messages a second.
#pragma once

#include <cstdint>

#include "report.h"

namespace traffic {

class Pace {
 public:
  explicit Pace(uint32_t rate) : rate_(rate) {}

  bool is_due() const { return rate_ == 0 || now_ns() >= next_ns_; }
  // From now on, not from when it was due: after an outage there is no burst to catch up.
  void took(uint32_t count) {
    if (rate_ != 0) next_ns_ = now_ns() + 1'000'000'000ull * count / rate_;
  }
  // 0: at once.
  uint64_t next_ns() const { return next_ns_; }

 private:
  const uint32_t rate_;
  uint64_t next_ns_ = 0;
};

}  // namespace traffic
