// Completion channels: an event for the application means a completion for the application.
#include "ops/test/channel.h"

#include <atomic>

#include "group/commit.h"
#include "group/completion.h"
#include "group/failing.h"
#include "group/member_qp.h"
#include "group/park.h"
#include "group/replay.h"

namespace shift::ops {
namespace {

using group::Group;
using group::kDefault;
using group::World;

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

// An event of any queue is enough for who saw the channel readable.
TEST_F(ChannelTest, OneEventForTheEndOfADeviceWhicheverQueueIsToldOfIt) {
  CompletionQueue* other = world_.make_cq();
  other->channel = &channel_;
  other->cq.channel = &channel_.channel;
  EXPECT_EQ(poll(), 0);
  arm();
  send(1);
  ASSERT_TRUE(nic().complete_send());
  close_channel(kDefault);
  group::inspect(*cq_);  // raises an event of the layer's own: no queue is armed any more
  EXPECT_TRUE(event());
  EXPECT_EQ(poll(), 1);
  stopped_now += std::chrono::milliseconds(20);
  EXPECT_FALSE(event());
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
  receive(2);
  fail_a_send();
  group::inspect(*cq_);
  arm();  // the completions are there already: one event tells of both
  EXPECT_TRUE(event());
  EXPECT_EQ(poll(1), 1);
  arm();
  raise();
  EXPECT_FALSE(event());
  EXPECT_EQ(poll(), 1);
}

// As with a NIC, an event tells of the completion that raised it, and what came behind it raises
// another one at the next arming. Some programs (perftest) poll once for each event.
TEST_F(ChannelTest, WhatCameBehindTheOneThatWasToldIsToldAtTheNextArming) {
  arm();
  receive(3);
  fail_a_send();
  group::inspect(*cq_);
  EXPECT_TRUE(event());
  EXPECT_FALSE(event()) << "the queue is not armed";
  EXPECT_EQ(poll(1), 1);
  arm();
  EXPECT_TRUE(event());
  arm();
  EXPECT_FALSE(event()) << "that event told of both";
  EXPECT_EQ(poll(), 2);
}

TEST_F(ChannelTest, WhatCameWhileTheQueueWasNotArmedIsToldAtTheArming) {
  receive(1);
  fail_a_send();
  group::inspect(*cq_);
  EXPECT_FALSE(event());
  arm();
  EXPECT_TRUE(event());
  EXPECT_EQ(poll(), 1);
  arm();
  EXPECT_FALSE(event());
}

// Threads that share a queue poll under its mutex: what one of them leaves, the layer has taken
// from the NIC.
TEST_F(ChannelTest, WhatAPollLeavesOfASharedQueueIsTold) {
  cq_->bias.set_shared();
  receive(2);
  EXPECT_EQ(poll(1), 1);
  arm();
  EXPECT_TRUE(event());
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
  arm();
  raise();
  EXPECT_TRUE(event());
}

// The event of another NIC has stood for a completion, whose own event comes a little later. It is
// the next call that finds it, and so on: a program that is slower than its NIC is always one event
// behind, when the doubt should have ended long ago.
TEST_F(ChannelTest, DoubtLastsWhileAnEventIsLeft) {
  EXPECT_EQ(poll(), 0);
  arm();
  group::doubt_events(*cq_);
  raise();  // of the layer's own request
  for (uint64_t id = 1; id < 4; id++) {
    send(id);
    ASSERT_TRUE(nic().complete_send());
    EXPECT_TRUE(event());
    raise();
    stopped_now += std::chrono::seconds(1);
    arm();
    EXPECT_EQ(poll(), 1);
  }
  send(4);
  EXPECT_FALSE(event()) << "nothing has completed";
  ASSERT_TRUE(nic().complete_send());
  raise();
  EXPECT_TRUE(event());
  EXPECT_EQ(poll(), 1);
  stopped_now += std::chrono::seconds(1);
  arm();
  raise();
  EXPECT_TRUE(event()) << "in the end, events are as with stock";
}

// Where one event is too many, another may be behind it.
TEST_F(ChannelTest, DoubtLastsForAWhileAfterAnEventOfNothing) {
  EXPECT_EQ(poll(), 0);
  arm();
  group::doubt_events(*cq_);
  stopped_now += std::chrono::milliseconds(400);
  raise();
  EXPECT_FALSE(event());
  stopped_now += std::chrono::milliseconds(400);
  EXPECT_TRUE(event()) << "the layer owes it";
  arm();
  raise();
  EXPECT_FALSE(event());
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

// It has polled the completion, takes its event, and arms again then.
TEST_F(ChannelTest, WhoAskedForSolicitedEventsLongAgoIsToldOfWhatItHasPolled) {
  EXPECT_EQ(poll(), 0);
  group::doubt_events(*cq_);
  ASSERT_EQ(req_notify_cq(&cq_->cq, 1), 0);
  stopped_now += std::chrono::seconds(1);
  send(1);
  ASSERT_TRUE(nic().complete_send());
  EXPECT_EQ(poll(), 1);
  raise();
  EXPECT_TRUE(event());
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
  EXPECT_FALSE(event());
  arm();
  send(1);
  close_channel(kDefault);
  EXPECT_FALSE(event());
  stopped_now += std::chrono::milliseconds(20);
  EXPECT_FALSE(event()) << "the request's own event will come";
  group::leave_for(*group_, group::kBackup, group::kBackup);
  stopped_now += 10 * group::kOwedAtMost;
  EXPECT_FALSE(event()) << "the NIC may send it again";
  stopped_now += group::kOwedToWaiter;
  EXPECT_TRUE(event()) << "the peer may wait for what the application does after the event";
}

// However long no path is found: it looks to the application like a request that takes long.
TEST_F(ChannelTest, WhatIsKeptBackWaitsForThePathOfARequest) {
  EXPECT_EQ(poll(), 0);
  EXPECT_FALSE(event());
  arm();
  fail_a_send();
  EXPECT_FALSE(event());
  stopped_now += 20 * group::kOwedToWaiter;
  EXPECT_FALSE(event());
}

// A program that polls the descriptor first, with a time limit, has other connections to serve.
TEST_F(ChannelTest, WhoAlwaysLooksFirstIsToldOfEach) {
  for (int i = 0; i < 4; i++) complete_one();
  arm();
  fail_a_send();
  EXPECT_TRUE(is_readable());
  EXPECT_TRUE(event());
  EXPECT_TRUE(channel_.owed.empty());
  EXPECT_EQ(poll(), 0);
  close_channel(kDefault);
  EXPECT_TRUE(is_readable());
  EXPECT_TRUE(event());
  EXPECT_FALSE(is_readable());
}

// Many completions are there before the program waits for them, which says nothing of the next one.
TEST_F(ChannelTest, WhoEverHadToWaitDoesNotLookFirst) {
  EXPECT_FALSE(event());
  for (int i = 0; i < 4; i++) complete_one();
  arm();
  fail_a_send();
  EXPECT_FALSE(event());
}

// It finds nothing where it has seen an event, and waits once; it is one that looks nevertheless.
TEST_F(ChannelTest, AWaitForWhatWasKeptBackSaysNothing) {
  EXPECT_EQ(poll(), 0);
  group::doubt_events(*cq_);
  arm();
  raise();
  EXPECT_FALSE(event());
  EXPECT_FALSE(channel_.is_waited_on);
}

// Nothing says yet that this program waits in its calls, so it may have looked first.
TEST_F(ChannelTest, WhatIsKeptBackOfANewChannelWaitsForNoPath) {
  EXPECT_EQ(poll(), 0);
  arm();
  fail_a_send();
  EXPECT_FALSE(event());
  stopped_now += group::kOwedAtMost;
  EXPECT_TRUE(event());
}

// Its errors were events, and nothing more comes. It has no path, which says nothing of others.
TEST_F(ChannelTest, AGroupThatHasFailedKeepsNothingBack) {
  group::Group* failed = world_.make_group(cq_);
  group::post_send(*failed, 1, IBV_WR_SEND);
  group::fail(*failed);
  failed->life.path.member = group::kNoMember;
  EXPECT_EQ(poll(), 1);
  EXPECT_FALSE(event());
  arm();
  channel_.owe(*cq_, stopped_now);
  EXPECT_TRUE(event());
  arm();
  send(2);
  channel_.owe(*cq_, stopped_now);
  EXPECT_FALSE(event());
  stopped_now += group::kOwedToWaiter;
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

// However late it comes: it is nobody's, and so is its event.
TEST_F(ChannelTest, ACompletionOfAPathThatWasLeftIsNoEvent) {
  go_to_backup();
  arm();
  send(2);
  ibv_wc late{};
  late.wr_id = 1;
  late.qp_num = group_->qpn();
  World::fake(cq_, kDefault).waiting.push_back(late);
  raise();
  EXPECT_FALSE(event());
}

TEST_F(ChannelTest, ACompletionOfAQueuePairThatIsGoneIsNoEvent) {
  go_to_backup();
  arm();
  ibv_wc late{};
  late.qp_num = 0xffffff;
  World::fake(cq_, group::kBackup).waiting.push_back(late);
  raise();
  EXPECT_FALSE(event());
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

// The layer's own event comes between a thread's look at the channel and its look at what is owed.
TEST_F(ChannelTest, OurOwnEventStandsForWhatIsOwed) {
  EXPECT_EQ(poll(), 0);
  arm();
  send(1);
  EXPECT_FALSE(group::is_announcing(*cq_));
  ASSERT_TRUE(nic().complete_send());
  group::inspect(*cq_);
  EXPECT_TRUE(group::is_announcing(*cq_));
  channel_.owe(*cq_, stopped_now, true);
  EXPECT_TRUE(event());
  EXPECT_FALSE(group::is_announcing(*cq_));
  EXPECT_FALSE(event());
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
