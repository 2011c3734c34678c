// A queue whose completion channel gives an event while the queue is destroyed.
#include <sched.h>

#include <atomic>
#include <thread>

#include "group/test/asleep.h"
#include "ops/test/channel.h"
#include "ops/test/runtime.h"

namespace shift::ops {
namespace {

using group::CompletionQueue;
using group::kDefault;

// One thread has taken an event of a queue and polls that queue while another thread destroys it.
class DyingQueue : public ChannelTest {
 protected:
  void SetUp() override {
    ChannelTest::SetUp();
    in_use = &runtime_;
    is_polled = may_go = is_destroyed = false;
    acknowledged = 0;
    world_.nic(kDefault).verbs.context.ops.poll_cq = [](ibv_cq*, int, ibv_wc*) {
      is_polled = true;
      while (!may_go) sched_yield();
      EXPECT_FALSE(is_destroyed);
      return 0;
    };
    table_.destroy_cq = [](ibv_cq*) {
      is_destroyed = true;
      return 0;
    };
    table_.ack_cq_events = [](ibv_cq*, unsigned count) { acknowledged += count; };
    dying_ = raised = world_.make_cq();
    dying_->channel = &channel_;
    dying_->cq.channel = &channel_.channel;
    channel_.channel.refcnt = 1;
  }
  void TearDown() override {
    in_use = nullptr;
    ChannelTest::TearDown();
  }
  void get() {
    getter_ = std::thread([this] {
      void* context;
      got_ = get_cq_event(&channel_.channel, &event_, &context) == 0;
      is_back_ = true;
    });
    while (!is_polled) sched_yield();
  }
  // Starts destroy_cq(), and returns when it is over or sleeps in a wait.
  void destroy() {
    std::atomic<pid_t> thread{0};
    destroyer_ = std::thread([&] {
      world_.let_go(dying_);
      thread = gettid();
      EXPECT_EQ(destroy_cq(&dying_->cq), 0);
    });
    while (thread == 0) sched_yield();
    while (!is_destroyed && !group::is_asleep(thread)) sched_yield();
  }

  static inline std::atomic<bool> is_polled, may_go, is_destroyed;
  static inline std::atomic<unsigned> acknowledged;
  LazyLoop control_, worker_;
  group::FakeCommands commands_{worker_};
  control::Coordinator coordinator_{control_, commands_};
  control::Runtime runtime_{control_, coordinator_};
  CompletionQueue* dying_ = nullptr;
  std::thread getter_, destroyer_;
  std::atomic<bool> is_back_{false};
  bool got_ = false;
  ibv_cq* event_ = nullptr;
};

TEST_F(DyingQueue, WaitsForWhoPollsIt) {
  dying_->armed = true;
  raise();
  get();
  destroy();
  EXPECT_FALSE(is_destroyed);
  may_go = true;
  getter_.join();
  ASSERT_TRUE(got_);
  EXPECT_FALSE(is_destroyed);  // stock waits for the acknowledgement as well
  ack_cq_events(event_, 1);
  destroyer_.join();
  EXPECT_TRUE(is_destroyed);
}

TEST_F(DyingQueue, WaitsNoLongerThanThat) {
  dying_->armed = true;
  dying_->doubtful_until = stopped_now + std::chrono::seconds(1);
  raise();
  get();
  destroy();
  EXPECT_FALSE(is_destroyed);
  may_go = true;
  destroyer_.join();  // the layer dropped the event
  EXPECT_TRUE(is_destroyed);
  EXPECT_TRUE(channel_.owed.empty());
  while (!is_back_) {
    pthread_kill(getter_.native_handle(), SIGUSR1);
    sched_yield();
  }
  getter_.join();
  EXPECT_FALSE(got_);
}

TEST_F(DyingQueue, GivesNoFurtherEvent) {
  nonblocking();
  dying_->armed = true;
  dying_->gives_events = false;
  raise();
  EXPECT_FALSE(event());
  EXPECT_EQ(acknowledged, 1u);  // else the NIC's own queue could never be destroyed
  channel_.injected.push_back(dying_);
  const uint64_t one = 1;
  ASSERT_EQ(write(channel_.inject_fd, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  EXPECT_FALSE(event());
  channel_.owed.push_back({dying_, stopped_now, stopped_now, false});
  EXPECT_FALSE(event());
  EXPECT_EQ(dying_->events_delivered, 0u);
}

}  // namespace
}  // namespace shift::ops
