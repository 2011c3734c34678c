// Tests how long a group waits for a path or a peer that is gone for now, and for one that never
// comes back: no program has its error earlier than with the stock library, and none waits for ever
// (C6).
#include <gtest/gtest.h>

#include "control/test/two_hosts.h"
#include "group/member_qp.h"
#include "util/config.h"

namespace shift::control {
namespace {

using fsm::State;
using group::kDefault;
using std::chrono::milliseconds;
using std::chrono::seconds;

class Patience : public Rounds {
 protected:
  const milliseconds exchange_{config().exchange_ms};

  // The application asks for 4 s and six retries; the NIC may take four times that.
  static void ask_for_long(SimHost& host) { host.group->life.asked.attr.timeout = 20; }
  void ports(SimHost& host, bool up) {
    for (int m = 0; m < 3; m++) host.port(m, up);
  }
  static State state_of(const SimHost& host) { return host.group->life.control.state; }
  static bool is_waiting(const SimHost& host) {
    return fsm::kLeaving.has(host.group->life.control.state);
  }
  // The process of the host is killed: it says nothing any more, and no process owns its QPs.
  void kill(SimHost& host) {
    for (int m = 0; m < 3; m++) host.world.nic(m).port_up = false;
    network_.host_remove(host.coordinator, milliseconds(1));
  }
};

TEST_F(Patience, AnOutageThatTheProgramWouldBearIsBorne) {
  for (SimHost* host : {&a_, &b_}) ask_for_long(*host);
  traffic(5);
  receive(b_, 2);
  send(a_, 2);
  ports(a_, false);
  run(2 * exchange_);
  for (SimHost* host : {&a_, &b_})
    EXPECT_TRUE(is_waiting(*host)) << fsm::to_string(state_of(*host));
  ports(a_, true);
  run(milliseconds(200));
  expect_all_done();
}

// No connection that is there may work any more.
TEST_F(Patience, MissingConnectionsAreDialedWhileARoundGoesOn) {
  traffic(5);
  ports(a_, false);
  run(milliseconds(300));
  const size_t before = network_.retries;
  run(seconds(2));
  EXPECT_GE(network_.retries - before, 2 * 2u);
  EXPECT_LE(network_.retries - before, 2 * 3u) << "once a second, by each end";
}

// A debugger, a snapshot of a virtual machine or a busy host stops both ends.
TEST_F(Patience, ATimeInWhichNothingRunsDoesNotCount) {
  traffic(5);
  receive(b_, 2);
  send(a_, 2);
  ports(a_, false);
  run(exchange_ - seconds(1));
  time_.stop_for(2 * exchange_);
  run(milliseconds(300));
  for (SimHost* host : {&a_, &b_})
    EXPECT_TRUE(is_waiting(*host)) << fsm::to_string(state_of(*host));
  ports(a_, true);
  run(milliseconds(200));
  expect_all_done();
}

// C6: an end gives up when its own patience is over, and the other end hears of it.
TEST_F(Patience, NoLongerThanTheProgramAskedFor) {
  a_.group->life.asked.attr.timeout = 15;
  const auto asked = group::asked_patience(*a_.group);
  ASSERT_GT(asked, exchange_ + milliseconds(500));
  receive(b_, 2);
  send(a_, 2);
  ports(a_, false);
  run(std::chrono::duration_cast<milliseconds>(asked) - milliseconds(100));
  for (SimHost* host : {&a_, &b_})
    EXPECT_TRUE(is_waiting(*host)) << fsm::to_string(state_of(*host));
  run(milliseconds(600));
  for (SimHost* host : {&a_, &b_}) EXPECT_EQ(state_of(*host), State::kFailed);
  EXPECT_EQ(a_.errors.size(), 2u);
}

// On the stock library nothing tells a program of an outage in which it sends nothing.
TEST_F(Patience, WhoHasNothingUnderWayBearsAnyOutage) {
  traffic(5);
  receive(b_, 1);
  ports(a_, false);
  run(10 * exchange_);
  for (SimHost* host : {&a_, &b_})
    EXPECT_TRUE(is_waiting(*host)) << fsm::to_string(state_of(*host));
  ports(a_, true);
  send(a_);
  run(milliseconds(200));
  expect_all_done();
}

TEST_F(Patience, ARequestOfTheOutageHasAPatienceOfItsOwn) {
  ports(a_, false);
  run(exchange_ - milliseconds(100));
  send(a_);
  run(exchange_ - milliseconds(100));
  EXPECT_TRUE(is_waiting(a_));
  run(milliseconds(600));
  EXPECT_EQ(state_of(a_), State::kFailed);
  EXPECT_EQ(a_.errors.size(), 1u);
}

// Waiting is of no use here, so the bound is as short as for a program that asks for little.
TEST_F(Patience, APeerWhoseProcessIsGoneIsNotWaitedFor) {
  SimHost& survivor = follower();
  ask_for_long(survivor);
  traffic(5);
  send(survivor);
  kill(leader());
  run(exchange_ + milliseconds(600));
  EXPECT_EQ(state_of(survivor), State::kFailed) << fsm::to_string(state_of(survivor));
  EXPECT_EQ(survivor.errors.size(), 1u);
}
TEST_F(Patience, NorIsAFollower) {
  SimHost& survivor = leader();
  ask_for_long(survivor);
  traffic(5);
  send(survivor);
  kill(follower());
  run(exchange_ + milliseconds(600));
  EXPECT_EQ(state_of(survivor), State::kFailed) << fsm::to_string(state_of(survivor));
  EXPECT_EQ(survivor.errors.size(), 1u);
}

// The stock library reports a dead NIC at once, and a program with nothing under way has to hear of
// it, too.
TEST_F(Patience, ADefaultNicThatIsDeadIsNotWaitedFor) {
  ask_for_long(a_);
  a_.world.context.members[kDefault].dead = true;
  ports(a_, false);
  run(exchange_ + milliseconds(500));
  EXPECT_EQ(state_of(a_), State::kFailed) << fsm::to_string(state_of(a_));
}

TEST_F(Patience, ADestroyedQpEndsTheWaitAtOnce) {
  for (SimHost* host : {&a_, &b_}) ask_for_long(*host);
  send(a_);
  ports(a_, false);
  run(exchange_ + milliseconds(500));
  ASSERT_TRUE(is_waiting(a_));
  a_.coordinator.group_forget(a_.group);
  EXPECT_EQ(state_of(a_), State::kClosed);
}

// The network carries no message that has data, for longer than SHIFT_EXCHANGE_MS.
TEST_F(Patience, PathsThatCarryNoDataForAWhileAreBorne) {
  for (SimHost* host : {&a_, &b_}) ask_for_long(*host);
  fabric_.passes = [](const ibv_send_wr& wr) { return wr.opcode != IBV_WR_SEND; };
  receive(leader(), 2);
  send(follower(), 2);
  run(2 * exchange_);
  EXPECT_GT(follower().group->life.control.epoch, 4u);
  fabric_.passes = [](const ibv_send_wr&) { return true; };
  run(seconds(2));
  expect_all_done();
}

}  // namespace
}  // namespace shift::control
