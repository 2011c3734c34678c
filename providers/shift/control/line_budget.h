// Bounds the log lines of one incident. A port that goes down moves all of its QPs, thousands of
// them in some processes, and each of them has a line of its own.
#pragma once

#include <cstdint>

#include "net/timer.h"

namespace shift::control {

// Lets kFewLines lines through in each second, and says the number of the others when the second is
// over. Only the control loop uses it.
class LineBudget {
 public:
  using Tell = void (*)(unsigned long long left_out);

  LineBudget(net::Loop& loop, Tell tell) : loop_(loop), tell_(tell), second_is_over_(loop) {}
  ~LineBudget();

  // Whether the line may be written. The caller asks only for lines whose level is enabled.
  bool allow();

 private:
  void tell_left_out();

  net::Loop& loop_;
  const Tell tell_;
  net::Timer second_is_over_;  // runs while lines are left out
  net::Loop::Clock::time_point begin_{};
  uint32_t written_ = 0;
  unsigned long long left_out_ = 0;
};

// The lines that each QP, or each peer, has.
struct Lines {
  explicit Lines(net::Loop& loop);

  LineBudget switched, failed, no_spare;
};

}  // namespace shift::control
