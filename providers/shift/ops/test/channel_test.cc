// Completion channels: an event for the application means a completion for the application.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <thread>

#include "group/commit.h"
#include "group/completion.h"
#include "group/completion_events.h"
#include "group/failing.h"
#include "group/member_qp.h"
#include "group/park.h"
#include "group/replay.h"
#include "group/stock.h"
#include "group/test/asleep.h"
#include "group/test/fake.h"
#include "ops/entry.h"
#include "ops/tables.h"
#include "ops/test/runtime.h"

namespace shift::ops {
namespace {

using group::CompletionChannel;
using group::CompletionQueue;
using group::FakeQp;
using group::Group;
using group::kDefault;
using group::World;

// The tests' clock: it stands still however long a test gets no processor.
std::chrono::steady_clock::time_point stopped_now;

// The completion queue for which the default NIC raises events, as many as the eventfd counts.
CompletionQueue* raised = nullptr;

int fake_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** owner) {
  uint64_t one;
  if (read(channel->fd, &one, sizeof one) != sizeof one) return -1;
  *cq = raised->real[kDefault];
  *owner = raised;
  return 0;
}

class ChannelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    on_tick(0);
    table_ = *group::fake_stock();
    table_.get_cq_event = fake_get_cq_event;
    table_.ack_cq_events = [](ibv_cq*, unsigned) {};
    before_ = stock;
    stopped_now = std::chrono::steady_clock::now();
    group::event_clock = [] { return stopped_now; };
    stock = &table_;
    cq_ = raised = world_.make_cq();
    real_.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    channel_.real[kDefault] = &real_;
    channel_.inject_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    channel_.channel.context = world_.context.handle();
    channel_.channel.fd = epoll_create1(EPOLL_CLOEXEC);
    add(real_.fd, kDefault);
    add(channel_.inject_fd, group::kMembersMax);
    cq_->channel = &channel_;
    cq_->cq.channel = &channel_.channel;
    group_ = world_.make_group(cq_);
  }
  void TearDown() override {
    group::event_clock = &std::chrono::steady_clock::now;
    stock = before_;
    for (int fd : {real_.fd, channel_.inject_fd, channel_.channel.fd, closed_fd_}) {
      if (fd >= 0) close(fd);
    }
  }
  void add(int fd, uint64_t tag) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = tag}};
    ASSERT_EQ(epoll_ctl(channel_.channel.fd, EPOLL_CTL_ADD, fd, &event), 0);
  }
  FakeQp& nic() { return World::fake(group_, kDefault); }
  void raise() {
    const uint64_t one = 1;
    ASSERT_EQ(write(real_.fd, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  // Sets what the test's own signal does during a wait.
  static void on_tick(
      int flags, void (*handler)(int) = [](int) {}) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(SIGUSR1, &action, nullptr);
  }
  void arm() { ASSERT_EQ(req_notify_cq(&cq_->cq, 0), 0); }
  // Waits for an event. False: no event came, and the test's signal ended the wait.
  bool event() {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    itimerspec soon{};
    soon.it_value.tv_nsec = 50'000'000;
    soon.it_interval.tv_nsec = 50'000'000;
    timer_t timer{};
    sigevent tick{};
    tick.sigev_notify = SIGEV_SIGNAL;
    tick.sigev_signo = SIGUSR1;
    EXPECT_EQ(timer_create(CLOCK_MONOTONIC, &tick, &timer), 0);
    EXPECT_EQ(timer_settime(timer, 0, &soon, nullptr), 0);
    const int result = get_cq_event(&channel_.channel, &cq, &context);
    const int error = errno;
    timer_delete(timer);
    if (result != 0) {
      EXPECT_TRUE(error == (is_blocking() ? EINTR : EAGAIN)) << error;
      return false;
    }
    EXPECT_EQ(cq, &cq_->cq);
    return true;
  }
  // Acts like the member's driver when it lets go of its device.
  void close_channel(int member) {
    static ibv_comp_channel closed{};
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    close(ends[0]);
    (void)epoll_ctl(channel_.channel.fd, EPOLL_CTL_DEL, real_.fd, nullptr);
    if (member != kDefault) add(real_.fd, kDefault);
    closed.fd = closed_fd_ = ends[1];
    channel_.real[member] = &closed;
    add(closed.fd, member);
  }
  // Takes an event without waiting. Returns 0 or errno.
  int take() {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    return get_cq_event(&channel_.channel, &cq, &context) == 0 ? 0 : errno;
  }
  bool is_readable() {
    pollfd one{channel_.channel.fd, POLLIN, 0};
    return ::poll(&one, 1, 0) == 1;
  }
  bool is_blocking() { return !(fcntl(channel_.channel.fd, F_GETFL) & O_NONBLOCK); }
  void nonblocking() { fcntl(channel_.channel.fd, F_SETFL, O_NONBLOCK); }
  // Polls once, as the application does; returns the number of completions.
  int poll() {
    ibv_wc wc[4];
    return poll_cq(&cq_->cq, 4, wc);
  }
  // The NIC reports by an event that it cannot reach the peer.
  void fail_a_send(bool signaled = true) {
    group::post_send(*group_, 1, IBV_WR_SEND, signaled);
    nic().break_with(IBV_WC_RETRY_EXC_ERR);
    raise();
  }
  void send(uint64_t id) { group::post_send(*group_, id, IBV_WR_SEND); }

  StockVerbs table_;
  const StockVerbs* before_ = nullptr;
  World world_;
  ibv_comp_channel real_{};
  int closed_fd_ = -1;
  CompletionChannel channel_{};
  CompletionQueue* cq_ = nullptr;
  Group* group_ = nullptr;
};

TEST_F(ChannelTest, ACompletionIsTold) {
  for (int turn = 0; turn < 3; turn++) {  // the queues are hot from the second turn on
    arm();
    send(1);
    EXPECT_FALSE(event());
    ASSERT_TRUE(nic().complete_send());
    raise();
    EXPECT_TRUE(event());
    EXPECT_EQ(poll(), 1);
    EXPECT_EQ(poll(), 0);
  }
}

TEST_F(ChannelTest, ABackupsDeviceThatGoesIsNotHeardOfAgain) {
  close_channel(group::kBackup);
  nonblocking();
  EXPECT_TRUE(is_readable());
  EXPECT_EQ(take(), 0) << "who looked finds something";
  EXPECT_FALSE(is_readable());
  EXPECT_EQ(take(), EAGAIN);
  EXPECT_EQ(poll(), 0);
  arm();
  send(1);
  ASSERT_TRUE(nic().complete_send());
  raise();
  EXPECT_EQ(take(), 0);
}

// The application polled the channel's descriptor, and has other work to do after the event.
TEST_F(ChannelTest, WhoSawTheEndOfADeviceDoesNotWaitForEver) {
  arm();
  close_channel(kDefault);
  EXPECT_FALSE(event());
  stopped_now += std::chrono::milliseconds(20);
  EXPECT_TRUE(event());
  EXPECT_EQ(poll(), 0);
}

// The layer does not arm a queue for the sake of such an event: when the path moves, the queues of
// the other NIC are armed as the application's are, and their events would be for nobody.
TEST_F(ChannelTest, TheEndOfADeviceArmsNothing) {
  close_channel(kDefault);
  EXPECT_FALSE(event());
  EXPECT_FALSE(cq_->armed);
  stopped_now += std::chrono::milliseconds(20);
  EXPECT_TRUE(event());
  EXPECT_FALSE(event());
}

// A program that has stopped to arm its queues, and waits for other things, looks at the channel
// when it is readable: a NIC was still armed.
TEST_F(ChannelTest, WhoArmsNothingAndSawTheChannelReadableDoesNotWaitForEver) {
  group::doubt_events(*cq_);
  raise();
  EXPECT_FALSE(event()) << "another event of the same arming would be one too many";
  stopped_now += std::chrono::milliseconds(20);
  EXPECT_TRUE(event());
  EXPECT_FALSE(event());
}

TEST_F(ChannelTest, TheEndOfADeviceIsToldBeforeWhatIsOwedLonger) {
  EXPECT_EQ(poll(), 0);
  arm();
  fail_a_send(false);
  EXPECT_FALSE(event());  // the layer owes the event in 250 ms
  close_channel(kDefault);
  EXPECT_FALSE(event());
  stopped_now += std::chrono::milliseconds(20);
  EXPECT_TRUE(event());
}

// C9: the application polled the descriptor, and takes it for a failure to find no event then.
TEST_F(ChannelTest, WhoSawTheEndOfADeviceAndDoesNotBlockFindsOneEvent) {
  CompletionQueue* other = world_.make_cq();
  other->channel = &channel_;
  other->cq.channel = &channel_.channel;
  arm();
  close_channel(kDefault);
  nonblocking();
  EXPECT_TRUE(is_readable());
  EXPECT_TRUE(event()) << "of the queue that is armed";
  EXPECT_FALSE(is_readable());
  stopped_now += std::chrono::milliseconds(250);
  EXPECT_EQ(take(), EAGAIN);
}

TEST_F(ChannelTest, TheEndOfADeviceOnAChannelWithoutQueuesIsNoEvent) {
  cq_->channel = nullptr;
  close_channel(kDefault);
  nonblocking();
  EXPECT_EQ(take(), EAGAIN);
}

TEST_F(ChannelTest, TheDefaultsDeviceMayGoWhileItsFaultIsMasked) {
  close_channel(kDefault);
  nonblocking();
  EXPECT_EQ(take(), 0);
  EXPECT_EQ(take(), EAGAIN);
  EXPECT_FALSE(is_readable());
  arm();
  group::post_recv(*group_, 7);
  group::fail(*group_);
  EXPECT_EQ(take(), 0);
  EXPECT_EQ(poll(), 1);
  EXPECT_EQ(take(), EIO) << "nothing is masked any more";
}

TEST_F(ChannelTest, WithoutProtectionTheEndOfTheDeviceIsToldAsByStock) {
  group::fail(*group_);
  close_channel(kDefault);
  nonblocking();
  for (int i = 0; i < 2; i++) {
    EXPECT_TRUE(is_readable());
    EXPECT_EQ(take(), EIO);
  }
}

TEST_F(ChannelTest, AHeldBackErrorWakesNobodyAndIsReported) {
  EXPECT_EQ(poll(), 0);
  arm();
  send(1);
  auto& fake = World::fake(cq_, kDefault);
  const int armings = fake.notify_requests;
  nic().break_with(IBV_WC_RETRY_EXC_ERR);
  raise();
  EXPECT_FALSE(event());
  ASSERT_EQ(world_.sink.faults.size(), 1u);
  // The event used up the arming, so the layer armed the CQ again.
  EXPECT_EQ(fake.notify_requests, armings + 1);
  EXPECT_TRUE(cq_->armed);
  EXPECT_EQ(poll(), 0);
}

TEST_F(ChannelTest, TheFirstErrorComesAfterCompletionsOfTheSameArming) {
  arm();
  send(1);
  ASSERT_TRUE(nic().complete_send());
  raise();
  EXPECT_TRUE(event());
  arm();  // programs arm the CQ before they poll
  EXPECT_EQ(poll(), 1);
  send(2);
  nic().break_with(IBV_WC_RETRY_EXC_ERR);
  raise();
  EXPECT_FALSE(event());
}

TEST_F(ChannelTest, WhoNeverWaitsIsToldOfEach) {
  nonblocking();
  EXPECT_FALSE(event());
  arm();
  fail_a_send();
  EXPECT_TRUE(event());
  EXPECT_EQ(poll(), 0);
  EXPECT_EQ(world_.sink.faults.size(), 1u);
}

TEST_F(ChannelTest, ASuccessBehindTheErrorIsTold) {
  EXPECT_EQ(poll(), 0);
  arm();
  group::post_recv(*group_, 7);
  send(1);
  ASSERT_TRUE(nic().complete_recv());
  nic().break_with(IBV_WC_RETRY_EXC_ERR);
  raise();
  EXPECT_TRUE(event());
  EXPECT_EQ(poll(), 1);
}

// ib_send_lat waits for two queues in turn on one channel: it counts on one event for each
// completion, and may wait again before it has polled.
TEST_F(ChannelTest, WhatOneEventHasToldNoOtherTellsAgain) {
  arm();
  group::post_recv(*group_, 7);
  ASSERT_TRUE(nic().complete_recv());
  raise();
  EXPECT_TRUE(event());
  arm();
  fail_a_send();
  EXPECT_FALSE(event());
  group::inspect(*cq_);  // a fence does so
  EXPECT_FALSE(event());
  EXPECT_EQ(poll(), 1);
}

TEST_F(ChannelTest, WhatCameSinceTheLastEventIsTold) {
  arm();
  group::post_recv(*group_, 7);
  group::post_recv(*group_, 8);
  ASSERT_TRUE(nic().complete_recv());
  raise();
  EXPECT_TRUE(event());
  arm();
  ASSERT_TRUE(nic().complete_recv());
  fail_a_send();
  group::inspect(*cq_);
  EXPECT_TRUE(event());
  arm();
  raise();  // the NIC's own event for that completion
  EXPECT_FALSE(event());
  EXPECT_EQ(poll(), 2);
}

// A destroyed QP's completions leave the CQ, and with them the record that an event told of them.
TEST_F(ChannelTest, WhatComesBehindADestroyedQpsIsTold) {
  Group* other = world_.make_group(cq_);
  world_.let_go(other);
  arm();
  group::post_recv(*other, 7);
  ASSERT_TRUE(World::fake(other, kDefault).complete_recv());
  raise();
  EXPECT_TRUE(event());
  group::post_recv(*group_, 8);
  ASSERT_TRUE(nic().complete_recv());
  group::inspect(*cq_);  // the CQ is not armed
  arm();
  group::purge(*cq_, other);
  EXPECT_TRUE(event());
  EXPECT_EQ(poll(), 1);
  delete other;
}

TEST_F(ChannelTest, WhatThePollLeavesIsNoNews) {
  arm();
  for (uint64_t id : {7, 8}) {
    group::post_recv(*group_, id);
    ASSERT_TRUE(nic().complete_recv());
  }
  fail_a_send();
  group::inspect(*cq_);
  EXPECT_TRUE(event());
  ibv_wc wc;
  EXPECT_EQ(poll_cq(&cq_->cq, 1, &wc), 1);
  arm();
  raise();
  EXPECT_FALSE(event());
  EXPECT_EQ(poll(), 1);
}

TEST_F(ChannelTest, WhatWasPolledBeforeIsToldAsByStock) {
  EXPECT_EQ(poll(), 0);
  arm();
  send(1);
  ASSERT_TRUE(nic().complete_send());
  raise();
  EXPECT_EQ(poll(), 1);
  EXPECT_TRUE(event());
  EXPECT_EQ(poll(), 0);
}

// With stock, too, a program that found the completions itself gets an event for the earlier
// arming.
TEST_F(ChannelTest, WithoutAFaultEveryEventIsTold) {
  arm();
  send(1);
  ASSERT_TRUE(nic().complete_send());
  EXPECT_EQ(poll(), 1);
  arm();
  EXPECT_EQ(poll(), 0);
  raise();  // the event of the first arming
  EXPECT_TRUE(event());
}

// An application that finds nothing after an event may know that it has armed the CQ since.
TEST_F(ChannelTest, EachArmingThatACompletionHasMetGivesAnEvent) {
  arm();
  send(1);
  ASSERT_TRUE(nic().complete_send());
  EXPECT_EQ(poll(), 1);
  arm();
  raise();  // the event of the first arming
  EXPECT_TRUE(event());
  EXPECT_EQ(poll(), 0);
  send(2);
  ASSERT_TRUE(nic().complete_send());
  raise();  // that of the second
  EXPECT_TRUE(event());
  EXPECT_EQ(poll(), 1);
}

TEST_F(ChannelTest, DoubtHasAnEnd) {
  EXPECT_EQ(poll(), 0);
  arm();
  fail_a_send();
  EXPECT_FALSE(event());
  raise();
  EXPECT_FALSE(event());
  stopped_now += std::chrono::milliseconds(500);
  raise();
  EXPECT_TRUE(event());
}

// A program that looks whether the channel is readable, and polls without an event as well: with
// stock it gets an event for each arming that a completion has met.
TEST_F(ChannelTest, WhatWasPolledBeforeIsToldInDoubtToo) {
  EXPECT_EQ(poll(), 0);
  group::doubt_events(*cq_);
  for (int turn = 0; turn < 2; turn++) {
    arm();
    send(1);
    ASSERT_TRUE(nic().complete_send());
    EXPECT_EQ(poll(), 1);
  }
  arm();
  for (int events = 0; events < 2; events++) {
    raise();
    EXPECT_TRUE(event());
    arm();
  }
  raise();  // of the layer's own request
  EXPECT_FALSE(event());
  send(1);
  ASSERT_TRUE(nic().complete_send());
  EXPECT_EQ(poll(), 1);
  raise();
  EXPECT_TRUE(event());
}

// It cannot be told whether the completions that came were solicited.
TEST_F(ChannelTest, WhoAskedForSolicitedEventsGetsNoneForWhatWasPolled) {
  EXPECT_EQ(poll(), 0);
  group::doubt_events(*cq_);
  for (int turn = 0; turn < 2; turn++) {
    ASSERT_EQ(req_notify_cq(&cq_->cq, 1), 0);
    send(1);
    ASSERT_TRUE(nic().complete_send());
    EXPECT_EQ(poll(), 1);
  }
  raise();
  EXPECT_FALSE(event());
}

TEST_F(ChannelTest, TheNicsOwnEventBehindOursIsNoNews) {
  EXPECT_EQ(poll(), 0);
  arm();
  group::post_recv(*group_, 7);
  send(1);
  ASSERT_TRUE(nic().complete_recv());
  nic().break_with(IBV_WC_RETRY_EXC_ERR);
  group::inspect(*cq_);
  EXPECT_TRUE(event());  // the layer's own event
  arm();
  EXPECT_EQ(poll(), 1);
  raise();
  EXPECT_FALSE(event());
}

TEST_F(ChannelTest, NorWhenItComesLate) {
  arm();
  group::post_recv(*group_, 7);
  ASSERT_TRUE(nic().complete_recv());
  group::inspect(*cq_);
  EXPECT_TRUE(event());  // the layer's own event
  EXPECT_EQ(poll(), 1);
  arm();
  raise();
  EXPECT_FALSE(event());
}

TEST_F(ChannelTest, WhatIsKeptBackIsToldInTheEnd) {
  arm();
  fail_a_send(false);
  EXPECT_FALSE(event());
  ASSERT_EQ(channel_.owed.size(), 1u);
  stopped_now += std::chrono::milliseconds(250);
  EXPECT_TRUE(event());
  EXPECT_FALSE(event());
  EXPECT_TRUE(channel_.owed.empty());
}

// Afterwards nothing more is to be expected soon, and the application may have other work to do.
TEST_F(ChannelTest, WhatIsKeptBackIsToldSoonAfterTheSwitch) {
  EXPECT_EQ(poll(), 0);
  arm();
  fail_a_send(false);
  EXPECT_FALSE(event());
  stopped_now += std::chrono::milliseconds(100);
  EXPECT_FALSE(event());
  group::leave_for(*group_, group::kBackup, group::kBackup);
  EXPECT_FALSE(event());
  stopped_now += group::kOwedSettled;
  EXPECT_TRUE(event());
}

// ib_read_lat -e posts the next request after each event, and has room for no second one.
TEST_F(ChannelTest, WhatIsKeptBackWaitsForTheCompletionThatComes) {
  EXPECT_EQ(poll(), 0);
  arm();
  send(1);
  close_channel(kDefault);
  EXPECT_FALSE(event());
  stopped_now += std::chrono::milliseconds(20);
  EXPECT_FALSE(event()) << "the request's own event will come";
  group::leave_for(*group_, group::kBackup, group::kBackup);
  stopped_now += 10 * group::kOwedSettled;
  EXPECT_FALSE(event());
  stopped_now += group::kOwedAtMost;
  EXPECT_TRUE(event()) << "the peer may wait for what the application does after the event";
}

// However long no path is found: it looks to the application like a request that takes long.
TEST_F(ChannelTest, WhatIsKeptBackWaitsForThePathOfARequest) {
  EXPECT_EQ(poll(), 0);
  arm();
  fail_a_send();
  EXPECT_FALSE(event());
  stopped_now += 20 * group::kOwedAtMost;
  EXPECT_FALSE(event());
}

// Its errors were events, and nothing more comes. It has no path, which says nothing of others.
TEST_F(ChannelTest, AGroupThatHasFailedKeepsNothingBack) {
  group::Group* failed = world_.make_group(cq_);
  group::post_send(*failed, 1, IBV_WR_SEND);
  group::fail(*failed);
  failed->life.path.member = group::kNoMember;
  EXPECT_EQ(poll(), 1);
  arm();
  channel_.owe(*cq_, stopped_now);
  EXPECT_TRUE(event());
  arm();
  send(2);
  channel_.owe(*cq_, stopped_now);
  EXPECT_FALSE(event());
  stopped_now += 2 * group::kOwedAtMost;
  EXPECT_TRUE(event());
}

TEST_F(ChannelTest, WithoutASwitchWhatIsKeptBackIsToldSoon) {
  EXPECT_EQ(poll(), 0);
  group::doubt_events(*cq_);
  arm();
  raise();
  EXPECT_FALSE(event());
  stopped_now += group::kOwedSettled;
  EXPECT_TRUE(event());
}

// The backup's CQ is not armed before it carries traffic.
TEST_F(ChannelTest, AProbeOfThePathInReserveLeavesEventsAlone) {
  EXPECT_EQ(poll(), 0);
  group::member_qp_probe(*group_, group::kBackup);
  ASSERT_TRUE(World::fake(group_, group::kBackup).complete_send());
  EXPECT_EQ(group::member_qp_probe_look(*group_, group::kBackup), group::Probe::kDone);
  arm();
  raise();
  EXPECT_TRUE(event());
}

// It has not seen the channel readable, and goes on waiting.
TEST_F(ChannelTest, WhoWaitsAlreadyIsOwedNothing) {
  static std::atomic<int> ticks;
  static int nic_fd;
  ticks = 0;
  nic_fd = real_.fd;
  on_tick(SA_RESTART, [](int) {
    const uint64_t one = 1;
    if (++ticks == 2) (void)!write(nic_fd, &one, sizeof one);
    if (ticks == 4) on_tick(0);  // the next one ends the wait
  });
  EXPECT_EQ(poll(), 0);
  group::doubt_events(*cq_);
  arm();
  EXPECT_FALSE(event());
  EXPECT_FALSE(is_readable());
  EXPECT_TRUE(channel_.owed.empty());
}

// Such a handler does not end a wait in stock either, which waits in read(2).
TEST_F(ChannelTest, AHandlerWithSaRestartEndsNoWait) {
  static std::atomic<int> ticks;
  static int nic_fd;
  ticks = 0;
  nic_fd = real_.fd;
  on_tick(SA_RESTART, [](int) {
    if (++ticks != 3) return;
    const uint64_t one = 1;
    (void)!write(nic_fd, &one, sizeof one);
  });
  arm();
  send(1);
  ASSERT_TRUE(nic().complete_send());
  EXPECT_TRUE(event());
  EXPECT_GE(ticks, 3);
}

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

// After a switch the layer arms two NICs for one arming, and each may raise an event.
TEST_F(ChannelTest, InDoubtOneEventForEachArming) {
  EXPECT_EQ(poll(), 0);
  group::doubt_events(*cq_);
  arm();
  send(1);
  ASSERT_TRUE(nic().complete_send());
  raise();
  raise();
  EXPECT_TRUE(event());
  EXPECT_FALSE(event());
}

// Some programs (perftest) post a request for each event. The layer's own event for a completion
// and the NIC's are one, whichever is taken first.
TEST_F(ChannelTest, TheNicsEventBeforeOursIsNoneOfItsOwn) {
  EXPECT_EQ(poll(), 0);
  arm();
  group::post_recv(*group_, 7);
  ASSERT_TRUE(nic().complete_recv());
  fail_a_send();
  group::inspect(*cq_);  // raises an event of the layer's own
  EXPECT_TRUE(event());
  EXPECT_FALSE(event());
  stopped_now += group::kOwedAtMost;
  EXPECT_FALSE(event()) << "nor is one owed";
  EXPECT_EQ(poll(), 1);
}

}  // namespace
}  // namespace shift::ops
