#include "util/fair_mutex.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>
#include <vector>

namespace shift {
namespace {

// The greedy thread acts like a program that polls: it holds the mutex nearly always, and takes it
// again at once.
TEST(FairMutexTest, AThreadThatComesAgainAndAgainIsBehindOneThatWaits) {
  FairMutex mutex;
  std::atomic<bool> is_over{false}, is_held{false};
  uint64_t taken_while_waited = 0;  // guarded by the mutex
  std::jthread greedy([&] {
    while (!is_over) {
      mutex.lock_behind();
      is_held = true;
      if (mutex.has_waiters()) taken_while_waited++;
      sched_yield();
      is_held = false;
      mutex.unlock();
    }
  });
  constexpr uint64_t kWaits = 1000;
  for (uint64_t i = 0; i < kWaits; i++) {
    while (!is_held) sched_yield();
    std::lock_guard lock(mutex);
  }
  is_over = true;
  greedy.join();
  // The greedy thread passes a waiting thread only when that thread loses its processor before it
  // has the turn, or when the greedy thread loses its own before it looks for waiting threads.
  EXPECT_LE(taken_while_waited, kWaits / 10);
}

TEST(FairMutexTest, ExcludesAllFromAll) {
  FairMutex mutex;
  uint64_t count = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; t++) {
      threads.emplace_back([&mutex, &count, behind = t % 2 == 0] {
        for (int i = 0; i < 20'000; i++) {
          behind ? mutex.lock_behind() : mutex.lock();
          count++;
          mutex.unlock();
        }
      });
    }
  }
  EXPECT_EQ(count, 80'000u);
}

}  // namespace
}  // namespace shift
