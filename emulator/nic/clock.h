// The engine's time: from the machine, or from a test's virtual clock.
#pragma once

#include <time.h>

#include <cstdint>

namespace cxemu {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual uint64_t now_ns() = 0;
};

class MonotonicClock final : public Clock {
 public:
  uint64_t now_ns() override {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  }
};

}  // namespace cxemu
