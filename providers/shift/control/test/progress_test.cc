// What must go on, and what must end: programs that look at nothing, regions that take long to be
// registered, NICs that are slow to stop, paths that carry no data.
#include <gtest/gtest.h>

#include <cerrno>

#include "control/test/two_hosts.h"
#include "group/shared_queue.h"
#include "util/config.h"

namespace shift::control {
namespace {

using fsm::State;
using group::kDefault;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Its CQ has a channel, so nobody else may arm it, and it waits for bytes in memory.
class Unpolled : public TwoHosts {
 protected:
  Unpolled() {
    a_.cq->channel = b_.cq->channel = &channel_;
    run(milliseconds(100));
  }

  size_t executed(SimHost& sender) {
    size_t all = 0;
    for (const auto& one : sender.world.context.members) all += executed_[one.real].size();
    return all;
  }

  group::CompletionChannel channel_{};
};

TEST_F(Unpolled, WhoLooksAtNothingIsMovedAllTheSame) {
  traffic(10);
  for (int fault = 1; fault <= 2; fault++) {
    follower().port(follower().group->life.path.member, false, false);
    receive(leader(), 2);
    send(follower(), 2);
    time_.run_for(seconds(1));
    EXPECT_EQ(a_.group->life.control.epoch, static_cast<uint32_t>(fault));
    EXPECT_EQ(executed(follower()), follower().sent);
  }
  run(milliseconds(5));
  expect_all_done();
}

// Four times the timeout of 67 ms, seven times, is what the standard lets this NIC take.
TEST_F(Unpolled, APatientNicIsWaitedFor) {
  traffic(10);
  for (SimHost* host : {&a_, &b_}) {
    ibv_qp_attr& attr = group::World::fake(host->group, kDefault).attr;
    attr.timeout = 14;
    attr.retry_cnt = 6;
  }
  fabric_.patience = milliseconds(1800);
  follower().port(follower().group->life.path.member, false, false);
  receive(leader(), 2);
  send(follower(), 2);
  time_.run_for(seconds(3));
  EXPECT_EQ(a_.group->life.control.epoch, 1u);
  EXPECT_EQ(executed(follower()), follower().sent);
  run(milliseconds(5));
  expect_all_done();
}

// A NIC that does not count a sender's error as solicited must be asked for every completion.
TEST_F(TwoHosts, ACqIsArmedSoThatItsNicTellsOfErrors) {
  b_.world.context.members[kDefault].is_soft_roce = true;
  run(milliseconds(100));
  EXPECT_EQ(group::FakeCq::of(a_.cq->real[kDefault]).last_notify_solicited, 1);
  EXPECT_EQ(group::FakeCq::of(b_.cq->real[kDefault]).last_notify_solicited, 0);
}

// C7: the worker takes seconds to register a large region with the other NICs. Whoever names it
// waits; nobody else does.
TEST_F(Rounds, ARegionStillBeingRegisteredHoldsUpNothingElse) {
  traffic(10);
  SimHost& sender = follower();
  auto* region = sender.world.make_region(0x30, 0x40, group::MemoryRegion::Twin::kRunning);
  receive(leader(), 2);
  leader().port(kDefault, false);
  post(sender, IBV_WR_SEND, 0x30);
  send(leader(), 3);
  receive(sender, 3);
  run(milliseconds(100));
  EXPECT_EQ(leader().sends_done.size(), 13u) << "the other end's go on";
  EXPECT_EQ(sender.sends_done.size(), 10u);
  region->twins_set(group::MemoryRegion::Twin::kReady);
  run(milliseconds(100));
  send(sender);
  run(milliseconds(5));
  expect_all_done();
}

// One that never ends is given up (C6).
TEST_F(Rounds, ARegionThatIsNeverRegisteredEndsInAnError) {
  traffic(10);
  SimHost& sender = follower();
  (void)sender.world.make_region(0x30, 0x40, group::MemoryRegion::Twin::kRunning);
  leader().port(kDefault, false);
  post(sender, IBV_WR_SEND, 0x30);
  run(milliseconds(config().exchange_ms) + seconds(1));
  for (SimHost* host : {&a_, &b_}) EXPECT_EQ(host->group->life.control.state, State::kFailed);
  EXPECT_EQ(sender.errors.size(), 1u);
}

// A receive that names such a region is taken all the same, and those behind it wait, too.
TEST_F(Rounds, AReceiveInARegionStillBeingRegisteredWaitsForIt) {
  for (SimHost* host : {&a_, &b_}) host->group->life.asked.attr.timeout = 20;  // patient
  traffic(10);
  SimHost& receiver = leader();
  receiver.port(kDefault, false);
  run(milliseconds(20));
  ASSERT_NE(receiver.group->life.path.member, kDefault);
  auto* region = receiver.world.make_region(0x30, 0x40, group::MemoryRegion::Twin::kRunning);
  receive(receiver);
  receive(receiver, 1, 0x30);
  receive(receiver);
  send(follower(), 3);
  run(2 * milliseconds(config().exchange_ms));
  EXPECT_EQ(receiver.receives_done.size(), 11u);
  region->twins_set(group::MemoryRegion::Twin::kReady);
  run(milliseconds(100));
  expect_all_done();
}

// The same, posted while the path is being left: the round does not wait for it.
TEST_F(Rounds, NorDoesARoundWaitForAReceiveOfItsOwnTime) {
  traffic(10);
  SimHost& receiver = follower();
  auto* region = receiver.world.make_region(0x30, 0x40, group::MemoryRegion::Twin::kRunning);
  for (int m = 0; m < 3; m++) leader().port(m, false);
  run(milliseconds(50));
  ASSERT_TRUE(fsm::kLeaving.has(receiver.group->life.control.state));
  receive(receiver, 1, 0x30);
  receive(receiver);
  for (int m = 1; m < 3; m++) leader().port(m, true);
  send(leader(), 2);
  run(milliseconds(200));
  for (SimHost* host : {&a_, &b_}) EXPECT_EQ(host->group->life.control.state, State::kActive);
  EXPECT_EQ(receiver.receives_done.size(), 10u);
  region->twins_set(group::MemoryRegion::Twin::kReady);
  run(milliseconds(100));
  expect_all_done();
}

// A registration that fails after all is an error, for whoever waits for it (C6).
TEST_F(Rounds, AReceiveInARegionThatCannotBeRegisteredEndsInAnError) {
  traffic(10);
  SimHost& receiver = leader();
  receiver.port(kDefault, false);
  run(milliseconds(20));
  auto* region = receiver.world.make_region(0x30, 0x40, group::MemoryRegion::Twin::kRunning);
  receive(receiver, 1, 0x30);
  receive(receiver);
  run(milliseconds(20));
  region->twins_set(group::MemoryRegion::Twin::kFailed);
  run(milliseconds(20));
  EXPECT_EQ(receiver.group->life.control.state, State::kFailed);
  EXPECT_EQ(receiver.errors.size(), 2u);
}

// C7: the region takes longer than SHIFT_EXCHANGE_MS, and the program has asked for more patience.
TEST_F(Rounds, APatientProgramWaitsForARegistrationThatTakesLong) {
  SimHost& sender = follower();
  for (SimHost* host : {&a_, &b_}) host->group->life.asked.attr.timeout = 20;
  traffic(10);
  auto* region = sender.world.make_region(0x30, 0x40, group::MemoryRegion::Twin::kRunning);
  receive(leader());
  leader().port(kDefault, false);
  post(sender, IBV_WR_SEND, 0x30);
  run(2 * milliseconds(config().exchange_ms));
  region->twins_set(group::MemoryRegion::Twin::kReady);
  run(milliseconds(100));
  expect_all_done();
}

class TwoPairs : public Rounds {
 protected:
  TwoPairs() : Rounds(2) {}
  State state_of(size_t pair) { return leader().groups[pair]->life.control.state; }
};

// C7: a round has to put that receive on the new path, and so waits; the other pair's does not.
TEST_F(TwoPairs, AReceiveInARegionStillBeingRegisteredHoldsUpItsOwnPairOnly) {
  auto* region = leader().world.make_region(0x30, 0x40, group::MemoryRegion::Twin::kRunning);
  receive(leader(), 1, 0x30);
  leader().port(kDefault, false);
  run(milliseconds(100));
  EXPECT_EQ(state_of(0), State::kFencing) << fsm::to_string(state_of(0));
  EXPECT_EQ(state_of(1), State::kActive) << fsm::to_string(state_of(1));
  region->twins_set(group::MemoryRegion::Twin::kReady);
  run(milliseconds(20));
  EXPECT_EQ(state_of(0), State::kActive) << fsm::to_string(state_of(0));
  EXPECT_NE(leader().group->life.path.member, kDefault);
  send(follower());
  run(milliseconds(5));
  expect_all_done();
}

// No round that would wait for it is begun without need.
TEST_F(Rounds, NobodyGoesBackWhileAReceiveWaitsForItsRegion) {
  uint32_t key = 0x2f;
  for (SimHost* host : {&a_, &b_}) {
    leader().port(kDefault, false);
    run(milliseconds(20));
    ASSERT_NE(leader().group->life.path.member, kDefault);
    key++;
    auto* region = host->world.make_region(key, key, group::MemoryRegion::Twin::kReady);
    receive(*host, 1, key);
    region->twins_set(group::MemoryRegion::Twin::kRunning);
    const uint32_t epoch = host->group->life.control.epoch;
    leader().port(kDefault, true);
    run(milliseconds(config().failback_ms) + seconds(3));
    EXPECT_EQ(host->group->life.control.epoch, epoch);
    region->twins_set(group::MemoryRegion::Twin::kReady);
    run(seconds(30));  // who could not drain is asked ever less often
    EXPECT_EQ(host->group->life.control.epoch, epoch + 1);
    EXPECT_EQ(leader().group->life.path.member, kDefault);
  }
}

// They leave the path together, in one batch.
TEST_F(TwoPairs, AQpThatIsSlowToStopHoldsUpNoOther) {
  group::FakeQp& slow = group::World::fake(leader().groups[1], kDefault);
  slow.flushes = false;
  leader().port(kDefault, false);
  run(milliseconds(20));
  EXPECT_EQ(state_of(0), State::kActive) << fsm::to_string(state_of(0));
  EXPECT_NE(leader().groups[0]->life.path.member, kDefault);
  EXPECT_EQ(state_of(1), State::kFencing) << fsm::to_string(state_of(1));
  slow.flushes = true;
  slow.flush();
  run(milliseconds(20));
  EXPECT_EQ(state_of(1), State::kActive) << fsm::to_string(state_of(1));
}

// C6: who waits for what such a receive holds up would wait for ever. A QP beside it has its own
// receives.
TEST_F(TwoPairs, ASharedReceiveThatCannotBePostedFailsThoseThatNeedIt) {
  leader().port(kDefault, false);
  run(milliseconds(20));
  group::Group* sharing = leader().groups[0];
  const int member = sharing->life.path.member;
  ASSERT_NE(member, kDefault);
  group::SharedQueue* queue = leader().world.make_srq(4);
  sharing->srq = queue;
  ASSERT_EQ(group::receives_join(*sharing, member), group::SharedQueue::Join::kDone);
  leader().coordinator.receives_refused(queue, kDefault);
  run(milliseconds(20));
  EXPECT_EQ(sharing->life.control.state, State::kActive) << "it is not there";
  leader().coordinator.receives_refused(queue, member);
  run(milliseconds(20));
  EXPECT_EQ(sharing->life.control.state, State::kFailed)
      << fsm::to_string(sharing->life.control.state);
  EXPECT_EQ(leader().groups[1]->life.control.state, State::kActive);
}

// As with a switch that takes smaller packets only: the probe is empty.
TEST_F(Rounds, PathsThatCarryNoDataAreGivenUp) {
  traffic(10);
  fabric_.passes = [](const ibv_send_wr& wr) { return wr.opcode != IBV_WR_SEND; };
  receive(leader(), 2);
  send(follower(), 2);
  run(2 * milliseconds(config().exchange_ms) + seconds(1));
  EXPECT_GT(follower().group->life.control.epoch, 4u) << "it tried";
  for (SimHost* host : {&a_, &b_}) EXPECT_EQ(host->group->life.control.state, State::kFailed);
  ASSERT_EQ(follower().errors.size(), 2u);
  EXPECT_EQ(follower().errors.front().status, IBV_WC_RETRY_EXC_ERR) << "the original one";
}

// So for a moment only.
TEST_F(Rounds, PathsThatCarryDataAgainAreNotGivenUp) {
  traffic(10);
  fabric_.passes = [](const ibv_send_wr& wr) { return wr.opcode != IBV_WR_SEND; };
  receive(leader(), 2);
  send(follower(), 2);
  run(milliseconds(config().exchange_ms) - milliseconds(200));
  EXPECT_GT(follower().group->life.control.epoch, 4u);
  fabric_.passes = [](const ibv_send_wr&) { return true; };
  run(seconds(2));
  expect_all_done();
}

// Paths are found, and their NICs take nothing.
TEST_F(Rounds, PathsThatTakeNoRequestsAreGivenUp) {
  traffic(10);
  leader().port(kDefault, false);
  run(milliseconds(20));
  for (int m = 0; m < 3; m++) follower().world.nic(m).post_errors[IBV_WR_SEND] = ENOMEM;
  receive(leader(), 2);
  send(follower(), 2);
  run(2 * milliseconds(config().exchange_ms) + seconds(1));
  EXPECT_GT(follower().group->life.control.epoch, 4u) << "it tried";
  for (SimHost* host : {&a_, &b_}) EXPECT_EQ(host->group->life.control.state, State::kFailed);
  EXPECT_EQ(follower().errors.size(), 2u);
}

// C7: a receiver that has posted nothing yet is no trouble of the path, however often that breaks
// meanwhile (shift-sim --seed 900042966).
TEST_F(Rounds, ASenderThatWaitsForReceivesIsNotGivenUpForItsPathsFaults) {
  send(follower(), 2);
  for (int fault = 1; fault <= 7; fault++) {
    const int member = leader().group->life.path.member;
    leader().port(member, false, false);
    run(milliseconds(800));
    leader().port(member, true);
    EXPECT_EQ(follower().group->life.control.epoch, static_cast<uint32_t>(fault));
  }
  receive(leader(), 2);
  run(milliseconds(20));
  expect_all_done();
}

// What the application got wrong is wrong on every path.
TEST_F(Rounds, ARequestThatNoNicTakesEndsInAnError) {
  traffic(10);
  leader().port(kDefault, false);
  run(milliseconds(20));
  for (int m = 0; m < 3; m++) follower().world.nic(m).post_errors[IBV_WR_SEND] = EINVAL;
  send(follower(), 2);
  run(milliseconds(20));
  for (SimHost* host : {&a_, &b_}) {
    EXPECT_EQ(host->group->life.control.state, State::kFailed);
    EXPECT_EQ(host->group->life.control.epoch, 1u);
  }
  EXPECT_EQ(follower().errors.size(), 2u);
}

// Nothing that has no signal completes here: that it arrives, the peer says.
TEST_F(Rounds, ASenderWithoutSignalsIsNotGivenUpForItsPathsFaults) {
  SimHost& sender = follower();
  for (int fault = 1; fault <= 7; fault++) {
    const int member = leader().group->life.path.member;
    leader().port(member, false, false);
    receive(leader(), 2);
    for (int i = 0; i < 2; i++) post(sender, IBV_WR_SEND, group::kLkey, 0);
    run(milliseconds(800));
    leader().port(member, true);
    EXPECT_EQ(sender.group->life.control.epoch, static_cast<uint32_t>(fault));
  }
  for (SimHost* host : {&a_, &b_}) EXPECT_EQ(host->group->life.control.state, State::kActive);
  EXPECT_EQ(leader().receives_done.size(), 14u);
}

// Nor does anybody say so of a WRITE; but then the paths are known to have failed.
TEST_F(Rounds, AWriterWithoutSignalsIsNotGivenUpForItsPortsFaults) {
  for (int fault = 1; fault <= 7; fault++) {
    post(follower(), IBV_WR_RDMA_WRITE, group::kLkey, 0);
    run(milliseconds(20));
    const int member = leader().group->life.path.member;
    leader().port(member, false);
    run(milliseconds(780));
    leader().port(member, true);
  }
  for (SimHost* host : {&a_, &b_}) EXPECT_EQ(host->group->life.control.state, State::kActive);
  EXPECT_EQ(leader().group->life.control.epoch, 7u);
}

// The paths fail without a word: then it is that they held for longer than a NIC goes on without an
// answer.
TEST_F(Rounds, AWriterWithoutSignalsIsNotGivenUpForItsPathsFaults) {
  for (int fault = 1; fault <= 7; fault++) {
    const int member = leader().group->life.path.member;
    leader().port(member, false, false);
    post(follower(), IBV_WR_RDMA_WRITE, group::kLkey, 0);
    run(milliseconds(800));
    leader().port(member, true);
    EXPECT_EQ(follower().group->life.control.epoch, static_cast<uint32_t>(fault));
  }
  for (SimHost* host : {&a_, &b_}) EXPECT_EQ(host->group->life.control.state, State::kActive);
}

}  // namespace
}  // namespace shift::control
