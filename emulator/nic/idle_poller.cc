#include "nic/idle_poller.h"

#include <sched.h>
#include <time.h>

#include <algorithm>

#include "nic/clock.h"

namespace cxemu {

uint64_t IdlePoller::plan(uint64_t now_ns, uint64_t crowding) {
  if (since_ns_ == 0 || now_ns - looked_ns_ > kAwayNs) since_ns_ = now_ns;
  looked_ns_ = now_ns;
  const uint64_t waited_ns = now_ns - since_ns_;
  if (waited_ns <= kNapAfterNs / crowding || now_ns - napped_ns_ < kLookNs) return 0;
  return std::min(waited_ns / 8, kNapMaxNs) * crowding;
}

void IdlePoller::wait(uint64_t now_ns, uint64_t crowding) {
  const uint64_t nap_ns = plan(now_ns, crowding);
  if (nap_ns == 0) {
    sched_yield();
    return;
  }
  const timespec pause = {0, static_cast<long>(nap_ns)};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr);
  woke(MonotonicClock().now_ns());
}

}  // namespace cxemu
