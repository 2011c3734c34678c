// One thread for each NIC, and none waits for a thread that hangs.
#include "control/nic_threads.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <vector>

namespace shift::control {
namespace {

using Waited = group::CommandThreads::Waited;

// A command of the NIC that hangs until it is let go, or this object ends.
class Hang {
 public:
  Hang(NicThreads& threads, int nic) {
    EXPECT_TRUE(threads.run(nic, [state = state_] {
      state->is_running = true;
      while (!state->is_over) sched_yield();
    }));
    while (!state_->is_running) sched_yield();
  }
  ~Hang() { end(); }
  void end() { state_->is_over = true; }

 private:
  struct State {
    std::atomic<bool> is_running{false}, is_over{false};
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();  // the task may outlive this
};

class NicThreadsTest : public ::testing::Test {
 protected:
  // Long enough that no machine makes a task late that does nothing.
  static constexpr int kNeverLate = 60000;
  NicThreads threads_{kNeverLate}, strict_{1};
};

TEST_F(NicThreadsTest, NicsAreKnownByName) {
  const int one = threads_.number_of("nic_one"), two = threads_.number_of("nic_two");
  EXPECT_NE(one, two);
  EXPECT_EQ(threads_.number_of("nic_one"), one);
  EXPECT_EQ(strict_.number_of("nic_two"), two) << "of the process";
}

TEST_F(NicThreadsTest, ANicIsSlowWhileATaskTakesLong) {
  EXPECT_FALSE(threads_.is_slow(1)) << "it has no thread yet";
  Hang hang(threads_, 1);
  while (!threads_.is_slow(1)) sched_yield();
  EXPECT_FALSE(threads_.is_late(1));
  EXPECT_FALSE(threads_.is_slow(2));
  hang.end();
  while (threads_.is_slow(1)) sched_yield();
}

TEST_F(NicThreadsTest, TasksOfANicRunInOrder) {
  std::vector<int> ran;
  for (int i = 0; i < 100; i++) threads_.run(0, [&ran, i] { ran.push_back(i); });
  EXPECT_EQ(threads_.run_and_wait(0, [&ran] { ran.push_back(100); }), Waited::kDone);
  ASSERT_EQ(ran.size(), 101u);
  for (int i = 0; i <= 100; i++) EXPECT_EQ(ran[static_cast<size_t>(i)], i);
}

// C7: a firmware command may hang for a minute.
TEST_F(NicThreadsTest, ANicThatHangsHoldsUpNoOther) {
  Hang hang(threads_, 0);
  EXPECT_TRUE(threads_.is_busy(0));
  EXPECT_EQ(threads_.run_and_wait(1, [] {}), Waited::kDone);
  EXPECT_FALSE(threads_.is_late(0)) << "it may take longer";
  hang.end();
  EXPECT_EQ(threads_.run_and_wait(0, [] {}), Waited::kDone);
}

TEST_F(NicThreadsTest, NobodyWaitsForANicThatIsLate) {
  Hang hang(strict_, 0);
  while (!strict_.is_late(0)) sched_yield();
  std::atomic<bool> ran{false};
  EXPECT_EQ(strict_.run_and_wait(0, [&ran] { ran = true; }), Waited::kLate);
  EXPECT_FALSE(ran);
  hang.end();
  while (!ran) sched_yield();  // it does it later all the same
  while (strict_.is_busy(0)) sched_yield();
  EXPECT_FALSE(strict_.is_late(0));
}

// Some tasks, such as a large registration, may take longer than a command.
TEST_F(NicThreadsTest, ATaskMayBeGivenMoreTime) {
  std::atomic<bool> is_over{false}, runs{false};
  strict_.run(
      0,
      [&] {
        runs = true;
        while (!is_over) sched_yield();
      },
      std::chrono::hours(1));
  while (!runs) sched_yield();
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(20)) sched_yield();
  EXPECT_FALSE(strict_.is_late(0));
  is_over = true;
  while (strict_.is_busy(0)) sched_yield();
}

TEST_F(NicThreadsTest, ATaskMayWaitForItsOwnThread) {
  bool inner = false;
  EXPECT_EQ(threads_.run_and_wait(0,
                                  [&] {
                                    EXPECT_TRUE(threads_.in_thread());
                                    EXPECT_EQ(threads_.run_and_wait(0, [&] { inner = true; }),
                                              Waited::kDone);
                                  }),
            Waited::kDone);
  EXPECT_TRUE(inner);
  EXPECT_FALSE(threads_.in_thread());
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// A fork child has none of the threads, and a NIC that was late there is nobody's.
TEST_F(NicThreadsTest, AForkChildDoesNotWait) {
  Hang hang(strict_, 0);
  while (!strict_.is_late(0)) sched_yield();
  const pid_t child = fork();
  if (child == 0) {
    const bool right = !strict_.run(0, [] {}) && !strict_.is_late(0) && !strict_.is_busy(0) &&
                       strict_.run_and_wait(1, [] {}) == Waited::kNever;
    _exit(right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}
#endif

}  // namespace
}  // namespace shift::control
