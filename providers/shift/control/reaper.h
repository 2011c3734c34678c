// What is left to do when the application has destroyed objects. It is done a little later, and for
// many objects together: the thread that destroys them wakes one thread once, and on a busy machine
// it does not share its processor with the threads that clean up behind it.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "net/loop.h"
#include "net/timer.h"

namespace shift::control {

class Reaper {
 public:
  explicit Reaper(net::Loop& loop);

  // Any thread may call it: the loop runs the task later, in the order of the calls. False: it
  // never will, and `task` is left as it is.
  [[nodiscard]] bool add(net::Loop::Task& task) noexcept;

  // The loop runs all that was added by now.
  void run();

 private:
  net::Loop& loop_;
  const uint64_t generation_;
  net::Timer timer_;
  std::mutex mutex_;
  std::vector<net::Loop::Task> tasks_;  // under mutex_
};

}  // namespace shift::control
