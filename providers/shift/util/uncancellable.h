// Shields the layer's waits from the application's cancellation of its own threads.
#pragma once

#include <pthread.h>

namespace shift {

// Puts a cancellation off until the end of the scope. A cancellation unwinds the stack, and C++
// ends the process when the unwinding meets a noexcept function. The stock verbs are no
// cancellation points either, except those that wait for events.
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
