#include "util/backoff.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

#include <atomic>
#include <thread>

namespace shift {
namespace {

// How often the calling thread has given up its processor because it slept. To yield does not
// count.
long sleeps() {
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  return used.ru_nvcsw;
}

TEST(Backoff, SpinsAndYieldsFirstAndThenSleeps) {
  const long before = sleeps();
  Backoff backoff;
  for (int i = 0; i < Backoff::kSpins + Backoff::kYields; i++) backoff.wait();
  EXPECT_EQ(sleeps(), before);
  for (int i = 0; i < 10; i++) backoff.wait();
  EXPECT_GE(sleeps(), before + 10);
}

TEST(Backoff, LeavesErrnoAlone) {
  Backoff backoff;
  errno = ENOSPC;
  for (int i = 0; i < Backoff::kSpins + Backoff::kYields + 2; i++) backoff.wait();
  EXPECT_EQ(errno, ENOSPC);
}

TEST(Backoff, IsNoCancellationPoint) {
  std::atomic<bool> is_cancelled = false, has_waited = false;
  std::thread thread([&] {
    while (!is_cancelled) std::this_thread::yield();
    Backoff backoff;
    for (int i = 0; i < Backoff::kSpins + Backoff::kYields + 2; i++) backoff.wait();
    has_waited = true;
  });
  pthread_cancel(thread.native_handle());
  is_cancelled = true;
  thread.join();
  EXPECT_TRUE(has_waited);
}

}  // namespace
}  // namespace shift
