// Waiting on an application's thread that it may cancel.
#pragma once

#include <pthread.h>

namespace shift {

// Put off until the end of the scope: a cancellation unwinds the stack, and where that meets a
// function that throws nothing, C++ ends the process. The stock verbs are no cancellation points
// either, but for those that wait for events.
class Uncancellable {
 public:
  Uncancellable() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~Uncancellable() { pthread_setcancelstate(before_, nullptr); }
  Uncancellable(const Uncancellable&) = delete;
  Uncancellable& operator=(const Uncancellable&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace shift
