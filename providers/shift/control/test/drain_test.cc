#include "control/drain.h"

#include <gtest/gtest.h>

#include <vector>

#include "control/test/lone_session.h"
#include "util/config.h"

namespace shift::control {
namespace {

using fsm::Event;
using fsm::State;
using group::Group;
using group::kBackup;
using std::chrono::milliseconds;
using Kind = wire::Drain::Kind;

class DrainTest : public SessionTest {
 protected:
  DrainTest() {
    Group& group = session_.group;
    group::leave_for(group, kBackup, kBackup);
    EXPECT_EQ(group::replay(group, 0).refusal, nullptr);
  }
  void watch(bool as_leader) {
    session_.control.is_leader = as_leader;
    session_.control.state = as_leader ? State::kDraining : State::kHeld;
    drain_.watch();
  }
  // The application sends a request off the default path, which does not complete yet.
  void send_one() { group::path_send(session_.group, 1, IBV_WR_SEND); }
  group::FakeQp& qp() { return group::World::fake(&session_.group, kBackup); }
  void peer_says(Kind kind, uint32_t attempt) {
    wire::Drain message;
    message.attempt = attempt;
    message.kind = kind;
    drain_.take(message);
  }
  milliseconds patience() const { return milliseconds(config().drain_ms); }
  std::vector<Kind> said() const {
    std::vector<Kind> kinds;
    for (const auto& message : channel_.all<wire::Drain>()) kinds.push_back(message.kind);
    return kinds;
  }

  Session& session_ = make();
  Drain& drain_ = session_.drain;
};

TEST_F(DrainTest, TheLeaderWaitsForBothEnds) {
  drain_.send_ask();
  watch(true);
  run_for(milliseconds(5));
  EXPECT_TRUE(machine_.inputs.empty()) << "the follower has not said that it has drained";
  peer_says(Kind::kDone, 1);
  run_for(milliseconds(1));
  EXPECT_EQ(machine_.events(), std::vector{Event::kDrained});
}

TEST_F(DrainTest, ThePeersWordIsLookedAtAtOnce) {
  drain_.send_ask();
  watch(true);
  run_for(milliseconds(5));  // it is looked at seldom by now
  peer_says(Kind::kDone, 1);
  run_for(std::chrono::microseconds(1));
  EXPECT_EQ(machine_.events(), std::vector{Event::kDrained});
}

TEST_F(DrainTest, TheLeaderWaitsForItsOwnRequests) {
  drain_.send_ask();
  send_one();
  watch(true);
  peer_says(Kind::kDone, 1);
  run_for(milliseconds(5));
  EXPECT_TRUE(machine_.inputs.empty());
  while (qp().complete_send()) {
  }
  run_for(milliseconds(1));
  EXPECT_EQ(machine_.events(), std::vector{Event::kDrained});
}

TEST_F(DrainTest, TheFollowerTellsOnce) {
  watch(false);
  run_for(milliseconds(5));
  EXPECT_EQ(machine_.events(), std::vector{Event::kDrained});
}

TEST_F(DrainTest, AnEarlierAttemptsDoneIsStale) {
  drain_.send_ask();
  drain_.send_cancel();
  drain_.send_ask();
  watch(true);
  peer_says(Kind::kDone, 1);
  run_for(milliseconds(5));
  EXPECT_TRUE(machine_.inputs.empty());
}

TEST_F(DrainTest, HasABound) {
  send_one();
  watch(true);
  run_for(patience() - milliseconds(1));
  EXPECT_TRUE(machine_.inputs.empty());
  run_for(milliseconds(2));
  EXPECT_EQ(machine_.events(), std::vector{Event::kDrainTimeout});
}

// The leader may begin the round once the follower has said that it is done.
TEST_F(DrainTest, TheFollowerIsMorePatient) {
  send_one();
  watch(false);
  run_for(2 * patience());
  EXPECT_TRUE(machine_.inputs.empty());
  run_for(3 * patience());
  EXPECT_EQ(machine_.events(), std::vector{Event::kDrainTimeout});
}

TEST_F(DrainTest, IsNotWatchedInAnotherState) {
  watch(false);
  session_.control.state = State::kFencing;
  run_for(5 * patience());
  EXPECT_TRUE(machine_.inputs.empty());
}

TEST_F(DrainTest, WhatWasCalledOffIsNotBegunByALateCopy) {
  session_.control.is_leader = false;
  peer_says(Kind::kAsk, 1);
  peer_says(Kind::kCancel, 1);
  peer_says(Kind::kAsk, 1);
  EXPECT_EQ(machine_.events(), (std::vector{Event::kPeerDrain, Event::kPeerDrainCancel}));
  peer_says(Kind::kAsk, 2);
  EXPECT_EQ(machine_.inputs.back().event, Event::kPeerDrain);
}

TEST_F(DrainTest, ALateCancelDoesNotEndTheNextAttempt) {
  session_.control.is_leader = false;
  peer_says(Kind::kAsk, 2);
  peer_says(Kind::kCancel, 1);
  EXPECT_EQ(machine_.events(), std::vector{Event::kPeerDrain});
}

TEST_F(DrainTest, NothingIsBetterThanTheDefaultPath) {
  Session& other = make();  // this group has not left the default path
  other.control.is_leader = false;
  wire::Drain ask;
  ask.attempt = 1;
  other.drain.take(ask);
  EXPECT_TRUE(machine_.inputs.empty());
}

TEST_F(DrainTest, ANewConnectionIsToldWhatTheStateNeeds) {
  drain_.say_again();
  EXPECT_TRUE(said().empty()) << "none was ever asked for";
  drain_.send_ask();
  session_.control.state = State::kDraining;
  drain_.say_again();
  session_.control.state = State::kActive;  // the drain was called off while the channel was down
  drain_.say_again();
  EXPECT_EQ(said(), (std::vector{Kind::kAsk, Kind::kAsk, Kind::kCancel}));
  channel_.sent.clear();
  watch(false);
  drain_.say_again();
  EXPECT_TRUE(said().empty()) << "it has not drained yet";
  run_for(milliseconds(1));
  drain_.say_again();
  EXPECT_EQ(said(), std::vector{Kind::kDone});
}

}  // namespace
}  // namespace shift::control
