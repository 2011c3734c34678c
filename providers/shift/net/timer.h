// A timer that its owner starts again and again, and that ends with its owner.
#pragma once

#include <utility>

#include "net/loop.h"

namespace shift::net {

// A Timer may be made, used and destroyed only on its loop's thread.
class Timer {
 public:
  explicit Timer(Loop& loop) : loop_(loop) {}
  ~Timer() { cancel(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Runs `then` once, and cancels what an earlier start was to run. `then` may start the timer
  // again, or destroy it.
  void start_at(Loop::Clock::time_point at, Loop::Task then) {
    cancel();
    id_ = loop_.timer_start(at, [this, then = std::move(then)] {
      id_ = 0;
      then();
    });
  }
  void start(Loop::Clock::duration in, Loop::Task then) {
    start_at(loop_.now() + in, std::move(then));
  }
  void cancel() { loop_.timer_cancel(std::exchange(id_, 0)); }
  bool is_running() const { return id_ != 0; }

 private:
  Loop& loop_;
  Loop::TimerId id_ = 0;
};

}  // namespace shift::net
