// Bounds how often a peer may be wrong.
#pragma once

#include <algorithm>
#include <chrono>

#include "net/loop.h"

namespace shift::control {

// An honest peer is wrong now and then, and a false one all the time. Only the control loop uses
// it.
class Budget {
 public:
  struct Rate {
    double most;        // at once, from a full budget
    double per_second;  // in the long run
  };

  Budget(net::Loop& loop, Rate rate)
      : loop_(loop), rate_(rate), left_(rate.most), since_(loop.now()) {}

  bool is_spent() {
    const auto now = loop_.now();
    const std::chrono::duration<double> passed = now - since_;
    since_ = now;
    left_ = std::min(rate_.most, left_ + passed.count() * rate_.per_second);
    return left_ < 1;
  }
  void spend() { left_ -= 1; }

 private:
  net::Loop& loop_;
  const Rate rate_;
  double left_;
  net::Loop::Clock::time_point since_;
};

}  // namespace shift::control
