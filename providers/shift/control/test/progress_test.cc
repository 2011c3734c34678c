// Tests what must go on, and what must end: programs that look at nothing, regions that take long
// to be registered, NICs that are slow to stop, paths that carry no data.
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

// The program's CQ has a channel, so only the program may arm it, and the program waits for bytes
// in memory.
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

// The standard lets this NIC take four times the timeout of 67 ms, seven times.
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

// C7: the worker takes seconds to register a large region with the other NICs. The end whose
// requests name the region waits; the other end does not.
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

// A registration that never ends is given up (C6).
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

// A receive that names a region still being registered is taken all the same, and the receives
// after it wait, too.
TEST_F(Rounds, AReceiveInARegionStillBeingRegisteredWaitsForIt) {
  // Both programs are patient.
  for (SimHost* host : {&a_, &b_}) host->group->life.asked.attr.timeout = 20;
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

// Here such a receive is posted while the path is being left: the round does not wait for it.
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

// A registration that fails after all is an error for the group that waits for it (C6).
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

// C7: a round has to put that receive on the new path, and so waits; the round of the other pair
// does not.
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

// A round that would wait for the registration is not begun without need.
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
    run(seconds(30));  // an end that could not drain is asked ever less often
    EXPECT_EQ(host->group->life.control.epoch, epoch + 1);
    EXPECT_EQ(leader().group->life.path.member, kDefault);
  }
}

// Both QPs leave the path together, in one batch.
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

// C6: a group that needs such a receive would wait for ever. A QP beside it has its own receives.
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

// The paths carry no data, as with a switch that takes only smaller packets; but the probe is
// empty.
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

// Here the paths carry no data for a moment only.
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

// Paths are found, but their NICs take no requests.
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

// C7: a receiver that has posted nothing yet is no trouble of the path, however often the path
// breaks meanwhile (shift-sim --seed 900042966).
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

// A request without a signal completes nothing here; only the peer's counter says that it arrived.
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

// No end says that a WRITE arrived, either; but here the port events tell that the paths have
// failed.
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

// Here the paths fail without an event: the group is not given up because they held for longer than
// a NIC goes on without an answer.
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

// The firmware of a NIC hangs, and with it each command of its driver.
class Commands : public Rounds {
 protected:
  Commands() {
    a_.world.context.members[kDefault].nic = 1;
    a_.world.context.members[group::kBackup].nic = 2;
    a_.world.context.members[group::kThird].nic = 3;
  }
  group::FakeCommands& commands() {
    return *static_cast<group::FakeCommands*>(group::command_threads);
  }
};

// C7: the NIC has stopped the QP by itself, since nothing was acknowledged.
TEST_F(Commands, OfANicThatBreaksMayHang) {
  traffic(10);
  commands().late.insert(1);
  a_.port(kDefault, false);
  receive(a_, 2);
  receive(b_, 2);
  send(a_, 2);
  send(b_, 2);
  run(seconds(2));
  EXPECT_EQ(a_.group->life.path.member == kDefault, false);
  expect_all_done();
  commands().answer(1);
  run(seconds(1));
  traffic(10);
  expect_all_done();
}

// No path is tried over a spare NIC that does not answer, and the others are.
TEST_F(Commands, OfASpareMayHang) {
  commands().late.insert(2);
  run(milliseconds(500));
  a_.port(kDefault, false);
  traffic(10);
  run(seconds(1));
  EXPECT_EQ(a_.group->life.path.member, group::kThird);
  expect_all_done();
  commands().answer(2);
  run(seconds(1));
}

// C6: no NIC stops the QP, so nothing is proven. The peer gives up when its program's patience is
// over, and this end's program is not kept waiting for the NIC.
TEST_F(Commands, ThatHangForEverEndInTheOriginalError) {
  traffic(10);
  a_.stay_in_rtr(a_.group);  // it has nothing to send, and no NIC of its own gives up
  commands().late.insert(1);
  a_.port(kDefault, false);
  receive(a_);
  send(b_);
  run(seconds(10));
  EXPECT_FALSE(b_.errors.empty());
  EXPECT_FALSE(a_.errors.empty());
  commands().answer(1);
}

}  // namespace
}  // namespace shift::control
