// What an application thread does that polls and finds nothing. For a while it yields to other
// threads and looks again; later it naps for a part of the time that it has waited.
//
// On real NICs a polling thread has a core to itself. Here the waiting threads share a few cores
// with the threads they wait for, and a yield gives nothing to another session where the scheduler
// divides cores among sessions: programs that only waited took most of the time.
#pragma once

#include <cstdint>

namespace cxemu {

class IdlePoller {
 public:
  // There was work.
  void found() { since_ns_ = 0; }
  // There was no work at `now_ns` (CLOCK_MONOTONIC). Returns when it is time to look again. In a
  // crowd (Neighbours::crowding()) naps begin earlier, and last longer.
  void wait(uint64_t now_ns, uint64_t crowding);
  // For how long wait() naps, in ns; 0: it yields.
  uint64_t plan(uint64_t now_ns, uint64_t crowding = 1);
  // A nap ended.
  void woke(uint64_t now_ns) { napped_ns_ = looked_ns_ = now_ns; }

 private:
  static constexpr uint64_t kNapAfterNs = 400'000, kNapMaxNs = 200'000;
  // Time between two naps: a program may have several queues to poll.
  static constexpr uint64_t kLookNs = 50'000;
  // A thread that comes back after this long was doing something else.
  static constexpr uint64_t kAwayNs = 1'000'000;

  uint64_t since_ns_ = 0;  // since when nothing was found; 0: the last look found work
  uint64_t looked_ns_ = 0;
  uint64_t napped_ns_ = 0;
};

}  // namespace cxemu
