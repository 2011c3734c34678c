// The memory orders of quiesce.h, on whatever processor runs this: loops that would show a thread
// and a queue's owner at work at the same time. A processor may show a wrong order rarely or never,
// so the loops prove nothing where they pass; docs/limits.md says what is known of which processor.
//
// SHIFT_ORDERING_MS: how long each loop runs.
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "group/quiesce.h"

namespace shift::group {
namespace {

using std::memory_order_relaxed;
using std::chrono::steady_clock;

steady_clock::time_point loop_end() {
  const char* given = std::getenv("SHIFT_ORDERING_MS");
  return steady_clock::now() + std::chrono::milliseconds(given != nullptr ? std::atoi(given) : 150);
}

// How often each loop goes round at least, on a machine that is busy with something else.
constexpr uint64_t kLeast = 10;

// Shifts the threads against each other.
void dawdle(uint64_t steps) {
  for (volatile uint64_t i = 0; i < steps;) i = i + 1;
}

// Waits for another thread, which may need this one's processor.
template <typename Condition>
void spin_until(const Condition& condition) {
  for (int i = 0; !condition(); i++) {
    if (i % 256 == 255) std::this_thread::yield();
  }
}

// A queue, and a count that is advanced in two steps: where two threads are inside at a time, one
// of them undoes what the other has done.
struct alignas(128) CountedQueue {
  Bias bias;
  alignas(128) std::atomic<uint64_t> work{0};
  alignas(128) std::atomic<bool> locked{false};

  static constexpr uint64_t kStep = 8;
  void advance() {
    for (uint64_t i = 0; i < kStep; i++) {
      work.store(work.load(memory_order_relaxed) + 1, memory_order_relaxed);
    }
  }
  // Stands for the queue's mutex. No thread sleeps in it, which would make the loops slow.
  void lock() {
    spin_until([this] { return !locked.exchange(true, std::memory_order_acquire); });
  }
  void unlock() { locked.store(false, std::memory_order_release); }
};

// Keeps a thread on one of two processors. Two threads on one processor would see each other's
// stores in order.
class OnProcessor {
 public:
  explicit OnProcessor(int which) {
    CPU_ZERO(&before_);
    if (sched_getaffinity(0, sizeof before_, &before_) != 0 || CPU_COUNT(&before_) < 2) return;
    int processor = 0;
    for (int left = which + 1; left > 0; processor++)
      left -= CPU_ISSET(processor, &before_) ? 1 : 0;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor - 1, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
  }
  ~OnProcessor() { (void)sched_setaffinity(0, sizeof before_, &before_); }
  OnProcessor(const OnProcessor&) = delete;
  OnProcessor& operator=(const OnProcessor&) = delete;

 private:
  cpu_set_t before_;
};

class Ordering : public ::testing::Test {
 protected:
  void SetUp() override {
    if (thread_slot_get() == nullptr) GTEST_SKIP() << "no membarrier(2) here: nothing is biased";
  }
  ~Ordering() override { barrier_calls_set({}); }

  static void lose_barrier() {
    barrier_calls_set({[](int) { return 0; }, [] {}});
  }
};

struct Outcome {
  uint64_t revocations = 0;
  uint64_t lost = 0;  // steps of `work`, when the queue was taken last
};

// One thread owns two queues and works on them in turn. This one takes the first away again and
// again, as park() does, and works on it, too. The loop ends early when steps are lost.
Outcome revoke_in_a_loop() {
  CountedQueue taken, other;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> by_owner{0};  // belongs to `taken`, like its count
  std::atomic<uint64_t> left{0};      // how often the owner has left a section
  std::thread owner([&] {
    const OnProcessor on(0);
    while (!stop.load(memory_order_relaxed)) {
      for (CountedQueue* queue : {&taken, &other}) {
        const bool is_hot = queue->bias.enter(tls_slot, queue);
        if (is_hot) {
          queue->advance();
          if (queue == &taken)
            by_owner.store(by_owner.load(memory_order_relaxed) + 1, memory_order_relaxed);
        }
        Bias::leave(tls_slot);
        if (is_hot) {
          left.store(left.load(memory_order_relaxed) + 1, memory_order_relaxed);
          continue;
        }
        std::lock_guard lock(*queue);
        queue->bias.adopt(queue);
      }
    }
  });
  const OnProcessor on(1);
  Outcome outcome;
  const void* const queue = &taken;
  const auto end = loop_end();
  while (outcome.lost == 0 && (outcome.revocations < kLeast || steady_clock::now() < end)) {
    const uint64_t seen = left;
    spin_until([&] { return left.load(memory_order_relaxed) != seen; });
    dawdle(outcome.revocations % 16);
    {
      std::lock_guard lock(taken);
      taken.bias.revoke_begin();
    }
    wait_until_left(&queue, 1);
    const uint64_t advances = by_owner.load(memory_order_relaxed) + outcome.revocations;
    outcome.lost = CountedQueue::kStep * advances - taken.work.load(memory_order_relaxed);
    taken.advance();
    outcome.revocations++;
    taken.bias.revoke_end();
  }
  stop = true;
  owner.join();
  return outcome;
}

TEST_F(Ordering, NoSectionRunsAfterItsQueueWasTakenAway) {
  const Outcome outcome = revoke_in_a_loop();
  std::printf("%lu revocations\n", static_cast<unsigned long>(outcome.revocations));
  EXPECT_EQ(outcome.lost, 0u);
}

struct Seen {
  uint64_t rounds = 0, neither = 0;
};

// The shape that quiesce.h is about. The owner stores that it is at work, and loads the owner; the
// revoker stores that there is no owner, and loads whether the owner is at work. `neither`: the
// owner has seen no revoker, and the revoker no owner. The loop ends early then.
Seen store_and_load() {
  CountedQueue queue;
  std::atomic<uint64_t> arrived{0}, entered{0};
  std::atomic<bool> looked{false}, is_hot{false}, stop{false};
  std::atomic<ThreadSlot*> slot{nullptr};
  const auto meet = [&arrived](uint64_t all) {
    arrived.fetch_add(1);
    spin_until([&] { return arrived.load(memory_order_relaxed) >= all; });
  };
  std::thread owner([&] {
    const OnProcessor on(0);
    slot = thread_slot_get();
    for (uint64_t round = 1;; round++) {
      queue.bias.adopt(&queue);
      looked = false;
      meet(2 * round);
      if (stop) return;
      dawdle(round % 8);
      is_hot.store(queue.bias.enter(tls_slot, &queue), memory_order_relaxed);
      entered = round;
      spin_until([&] { return looked.load(); });
      Bias::leave(tls_slot);
    }
  });
  const OnProcessor on(1);
  Seen seen;
  for (const auto end = loop_end();;) {
    if (seen.neither > 0 || (seen.rounds >= kLeast && steady_clock::now() >= end)) stop = true;
    meet(2 * (seen.rounds + 1));
    if (stop) break;
    seen.rounds++;
    dawdle(seen.rounds / 8 % 8);
    queue.bias.revoke_begin();
    barrier_everywhere();
    const bool is_active = slot.load()->active.load(std::memory_order_acquire) == &queue;
    spin_until([&] { return entered == seen.rounds; });
    seen.neither += is_hot && !is_active;
    queue.bias.revoke_end();
    looked = true;
  }
  owner.join();
  return seen;
}

TEST_F(Ordering, OwnerOrRevokerSeesTheOther) {
  const Seen seen = store_and_load();
  std::printf("%lu rounds\n", static_cast<unsigned long>(seen.rounds));
  EXPECT_EQ(seen.neither, 0u);
}

// Chance decides when the loops see it, so it is not asserted.
TEST_F(Ordering, WithoutTheBarrierTheLoopsSeeBothInside) {
  lose_barrier();
  const Seen seen = store_and_load();
  const Outcome outcome = revoke_in_a_loop();
  std::printf("without the barrier: %lu in %lu rounds, and %ld steps lost in %lu revocations\n",
              static_cast<unsigned long>(seen.neither), static_cast<unsigned long>(seen.rounds),
              static_cast<long>(outcome.lost), static_cast<unsigned long>(outcome.revocations));
  if (seen.neither == 0 && outcome.lost == 0) GTEST_SKIP() << "the processor did not show it";
}

}  // namespace
}  // namespace shift::group
