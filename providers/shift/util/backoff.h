// How a thread waits for another thread that will be done in a moment.
#pragma once

namespace shift {

// One wait: wait() is called again and again until what the thread waits for has happened. First it
// spins, since the other thread mostly runs on another processor and is done within a microsecond,
// and Linux makes a thread that yields wait for a whole time slice where others can run. Then it
// yields, for threads that share the processor. At last it sleeps: a thread of higher priority
// (SCHED_FIFO, SCHED_RR) that only yields keeps the processor from the one it waits for.
//
// No cancellation point, and errno stays as it is. Not for threads to share.
class Backoff {
 public:
  [[gnu::cold]] void wait();

  static constexpr int kSpins = 100, kYields = 50;
  static constexpr long kNapNs = 20'000;

 private:
  int waits_ = 0;
};

}  // namespace shift
