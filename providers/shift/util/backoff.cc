#include "util/backoff.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace shift {

void Backoff::wait() {
  if (waits_ < kSpins) {
    waits_++;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
    return;
  }
  if (waits_ < kSpins + kYields) {
    waits_++;
    sched_yield();
    return;
  }
  // The library's nanosleep() is a cancellation point.
  const int error = errno;
  const timespec nap{0, kNapNs};
  if (syscall(SYS_nanosleep, &nap, nullptr) != 0 && errno != EINTR) sched_yield();
  errno = error;
}

}  // namespace shift
