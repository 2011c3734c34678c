// No thread works on a queue at the same time as its biased owner, whichever and however many
// threads ask.
#include "group/quiesce.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <set>
#include <thread>
#include <vector>

namespace shift::group {
namespace {

struct Queue {
  FairMutex mutex;
  Bias bias;
  uint64_t work = 0;  // not atomic, so that a lost increment shows two threads at work
};

// Uses the queue as the entry points do: hot if this thread is the owner, else through the mutex.
void use(Queue& queue) {
  ThreadSlot* self = tls_slot;
  if (queue.bias.enter(self, &queue)) {
    queue.work++;
    return Bias::leave(self);
  }
  Bias::leave(self);
  auto lock = lock_queue(queue, true);
  queue.work++;
  queue.bias.adopt(&queue);
}

bool is_hot(Queue& queue) {
  const bool hot = queue.bias.enter(tls_slot, &queue);
  Bias::leave(tls_slot);
  return hot;
}

// Gives other threads many chances to do what they must not do.
void yield_often() {
  for (int i = 0; i < 2000; i++) std::this_thread::yield();
}

class Quiesce : public ::testing::Test {
 protected:
  void SetUp() override {
    if (thread_slot_get() == nullptr) GTEST_SKIP() << "no membarrier(2) here: nothing is biased";
  }
};

TEST_F(Quiesce, TheFirstUserBecomesTheOwner) {
  Queue queue;
  EXPECT_FALSE(is_hot(queue));
  use(queue);
  EXPECT_TRUE(is_hot(queue));
}

TEST_F(Quiesce, AQueueWithTwoUsersIsSharedForGood) {
  Queue queue;
  use(queue);
  std::thread([&] { use(queue); }).join();
  use(queue);
  EXPECT_FALSE(is_hot(queue));
  EXPECT_EQ(queue.work, 3u);
}

// The control thread looks into a queue now and then; the owner must keep its hot path.
TEST_F(Quiesce, LookingInLeavesTheOwnerItsQueue) {
  Queue queue;
  use(queue);
  std::thread([&] { (void)lock_queue(queue); }).join();
  EXPECT_FALSE(is_hot(queue));
  use(queue);
  EXPECT_TRUE(is_hot(queue));
}

TEST_F(Quiesce, MeetingARevocationIsNotSharing) {
  Queue queue;
  use(queue);
  queue.bias.revoke_begin();
  std::atomic<bool> asked{false};
  bool hot = false;
  std::thread user([&] {
    asked = true;
    use(queue);
    use(queue);
    hot = is_hot(queue);
  });
  while (!asked) std::this_thread::yield();
  yield_often();
  queue.bias.revoke_end();
  user.join();
  EXPECT_TRUE(hot);
}

// Two threads want the queue while its owner is in a section. Both must wait: the second one finds
// no owner any more, but the section has not ended.
TEST_F(Quiesce, EveryContenderWaitsForTheRunningSection) {
  Queue queue;
  use(queue);
  ASSERT_TRUE(queue.bias.enter(tls_slot, &queue));
  std::atomic<int> asking{0}, inside{0};
  std::vector<std::thread> others;
  for (int i = 0; i < 2; i++) {
    others.emplace_back([&] {
      asking++;
      auto lock = lock_queue(queue, true);
      inside++;
    });
    while (asking != i + 1) std::this_thread::yield();
    yield_often();
    EXPECT_EQ(inside, 0);
  }
  Bias::leave(tls_slot);
  for (std::thread& other : others) other.join();
  EXPECT_EQ(inside, 2);
}

TEST_F(Quiesce, ABatchUnderConstructionIsASection) {
  Queue queue, other;
  use(queue);
  use(other);
  ASSERT_TRUE(queue.bias.enter_building(tls_slot, &queue));
  EXPECT_FALSE(other.bias.enter_building(tls_slot, &other));  // one batch at a time
  use(other);                                                 // polling in between does no harm
  std::atomic<bool> asking{false}, inside{false};
  std::thread contender([&] {
    asking = true;
    auto lock = lock_queue(queue);
    inside = true;
  });
  while (!asking) std::this_thread::yield();
  yield_often();
  EXPECT_FALSE(inside);
  Bias::leave_building(tls_slot);
  contender.join();
  EXPECT_FALSE(queue.bias.enter_building(tls_slot, &queue));
}

TEST_F(Quiesce, NothingIsLostUnderContention) {
  Queue queue;
  std::atomic<bool> looking{true}, used{false};
  uint64_t expected = 0;
  std::thread looker([&] {
    while (!used) std::this_thread::yield();
    for (int i = 0; i < 100; i++) {
      auto lock = lock_queue(queue);
      queue.work++;
      lock.unlock();
      std::this_thread::yield();
    }
    looking = false;
  });
  std::thread user([&] {
    while (looking) {
      use(queue);
      expected++;
      used = true;
    }
  });
  user.join();
  looker.join();
  EXPECT_EQ(queue.work, expected + 100);
  EXPECT_GT(expected, 0u);
}

// Short races between the first uses of a queue by several threads.
TEST_F(Quiesce, FirstUsesOfManyThreadsExcludeEachOther) {
  constexpr int kRounds = 300, kThreads = 3, kTurns = 20;
  for (int round = 0; round < kRounds; round++) {
    Queue queue;
    std::atomic<int> ready{0};
    std::vector<std::thread> users;
    for (int t = 0; t < kThreads; t++) {
      users.emplace_back([&] {
        ready++;
        while (ready != kThreads) std::this_thread::yield();
        for (int i = 0; i < kTurns; i++) use(queue);
      });
    }
    for (std::thread& user : users) user.join();
    ASSERT_EQ(queue.work, static_cast<uint64_t>(kThreads) * kTurns) << round;
  }
}

// Behaves as if the program had installed a seccomp filter in the meantime.
class WithoutMembarrier : public Quiesce {
 protected:
  static inline int waits_ = 0;
  ~WithoutMembarrier() override { barrier_calls_set({}); }
};

TEST_F(WithoutMembarrier, AnOwnerFromBeforeIsWaitedForAndNobodyFollows) {
  Queue queue;
  use(queue);
  ASSERT_TRUE(is_hot(queue));
  waits_ = 0;
  barrier_calls_set({[](int) { return -1; }, [] { waits_++; }});
  queue.bias.revoke(&queue);
  EXPECT_EQ(waits_, 1) << "its store may still be under way";
  use(queue);
  EXPECT_FALSE(is_hot(queue)) << "nobody could take the queue away again";
  queue.bias.revoke(&queue);
  EXPECT_EQ(waits_, 2) << "other queues may have owners from before";
  barrier_calls_set({});
  use(queue);
  EXPECT_TRUE(is_hot(queue));
}

TEST_F(Quiesce, SlotsOfEndedThreadsAreUsedAgain) {
  std::set<ThreadSlot*> slots;
  for (int i = 0; i < 50; i++) {
    std::thread([&] { slots.insert(thread_slot_get()); }).join();
  }
  EXPECT_EQ(slots.size(), 1u);
  EXPECT_FALSE(slots.contains(thread_slot_get()));
}

// A thread that gets the slot of an ended thread also gets its queues; there is still only one
// owner.
TEST_F(Quiesce, AThreadThatEndsLeavesNoSectionBehind) {
  Queue queue;
  std::thread([&] {
    use(queue);
    (void)queue.bias.enter(tls_slot, &queue);  // the thread ends inside the section
  }).join();
  auto lock = lock_queue(queue);
  EXPECT_TRUE(queue.bias.is_quiet());
}

TEST_F(Quiesce, AForkChildDoesNotWaitForThreadsItDoesNotHave) {
  Queue queue;
  std::atomic<bool> inside{false}, leave{false};
  std::thread owner([&] {
    use(queue);
    (void)queue.bias.enter(tls_slot, &queue);
    inside = true;
    while (!leave) std::this_thread::yield();
    Bias::leave(tls_slot);
  });
  while (!inside) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    (void)lock_queue(queue);
    use(queue);
    _exit(is_hot(queue) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  leave = true;
  owner.join();
}

// A child starts anew: what each process finds out once is not known there yet.
class QuiesceDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  // Installs a seccomp filter that answers this command of membarrier(2). False: this system has no
  // filters.
  static bool membarrier_does(uint32_t command, uint32_t answer) {
    sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, command, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{std::size(lines), lines};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
  }
  // The exit status by which a child reports its result.
  static constexpr int kRight = 10, kWrong = 11;
  static bool is_told(int status) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNoFilter) skipped = true;
    return WIFEXITED(status) && (WEXITSTATUS(status) == kRight || skipped);
  }
  static constexpr int kNoFilter = 12;
  static inline bool skipped = false;
};

TEST_F(QuiesceDeathTest, WithoutMembarrierNoQueueIsBiased) {
  const auto child = [] {
    if (!membarrier_does(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, SECCOMP_RET_ERRNO | EPERM)) {
      _exit(kNoFilter);
    }
    Queue queue;
    use(queue);
    use(queue);
    _exit(thread_slot_get() == nullptr && !is_hot(queue) && queue.work == 2 ? kRight : kWrong);
  };
  EXPECT_EXIT(child(), is_told, "");
  if (skipped) GTEST_SKIP() << "no seccomp filters here";
}

// The owner may run on another processor and still see the old state, and nothing would show this.
TEST_F(Quiesce, ARevocationIsABarrierForAllThreads) {
  static int barriers;
  barriers = 0;
  barrier_calls_set({[](int) { return barriers++ * 0; }, [] {}});
  Queue queue;
  use(queue);
  ASSERT_TRUE(is_hot(queue));
  queue.bias.revoke(&queue);
  EXPECT_EQ(barriers, 1);
  queue.bias.revoke_begin();
  const void* const one = &queue;
  wait_until_left(&one, 1);
  queue.bias.revoke_end();
  EXPECT_EQ(barriers, 2);
  barrier_calls_set({});
}

}  // namespace
}  // namespace shift::group
