// Tests that traffic leaves NICs that work when an operator says so: at once, by a drain, at either
// end, and back again; and what is done where there is no other way.
#include "control/avoidance.h"

#include <gtest/gtest.h>

#include "control/test/lone_session.h"
#include "control/test/two_hosts.h"

namespace shift::control {
namespace {

using group::kDefault;
using state::Order;
using std::chrono::microseconds;
using std::chrono::milliseconds;

class Drained : public Rounds {
 protected:
  // Bit n: NIC n of the host.
  static void drain(SimHost& host, uint8_t members) {
    host.coordinator.orders().drained_set(&host.world.context, members);
  }
  static int member(const SimHost& host) { return host.group->life.path.member; }
  // The member that carries the traffic, which is the same at both ends.
  int spare() { return member(leader()); }
  // After so long the way home is free.
  static constexpr milliseconds kHome{1100};
  // No request ran twice.
  void expect_once() {
    std::map<uint64_t, int> times[2];
    for (const auto& [context, ids] : executed_) {
      const bool is_a = std::ranges::any_of(a_.world.context.members,
                                            [&](const auto& one) { return one.real == context; });
      for (const uint64_t id : ids) EXPECT_EQ(++times[is_a][id], 1) << "request " << id;
    }
  }
};

TEST_F(Drained, TheLeadersNicIsLeftAtOnceAndTakenAgain) {
  traffic(3);
  drain(leader(), 1);
  run(milliseconds(5));
  expect_on(spare(), 1);
  traffic(3);
  drain(leader(), 0);
  run(kHome);
  expect_on(kDefault, 2);
  traffic(3);
  expect_all_done();
  expect_once();
}

TEST_F(Drained, TheFollowersNicIsLeft) {
  traffic(3);
  drain(follower(), 1);
  run(milliseconds(5));
  expect_on(spare(), 1);
  traffic(3);
  expect_all_done();
  expect_once();
}

// On the hot path nobody knows what has become of requests without a signal, so a marker asks.
TEST_F(Drained, UnsignaledRequestsRunOnce) {
  traffic(1);
  for (int i = 0; i < 5; i++) post(leader(), IBV_WR_RDMA_WRITE, group::kLkey, 0);
  drain(leader(), 1);
  run(milliseconds(5));
  expect_on(spare(), 1);
  expect_once();
}

// Its NIC is all that the program has left.
TEST_F(Drained, ADrainedNicIsTheLastResort) {
  traffic(3);
  drain(leader(), 1);
  run(milliseconds(50));
  ASSERT_NE(spare(), kDefault);
  for (int m : {1, 2}) leader().port(m, false);
  run(milliseconds(100));
  EXPECT_EQ(spare(), kDefault);
  traffic(3);
  for (int m : {1, 2}) leader().port(m, true);
  run(milliseconds(100));
  EXPECT_NE(spare(), kDefault) << "the operator's word counts again";
  traffic(3);
  expect_all_done();
}

TEST_F(Drained, WhereAllNicsAreDrainedTrafficStays) {
  traffic(3);
  drain(leader(), 7);
  drain(follower(), 7);
  run(milliseconds(500));
  expect_on(kDefault, 0);
  traffic(3);
  expect_all_done();
}

// Path 1-1 is the only way out of NIC 0, and this end's NIC 1 is lost: only a path across rails is
// left, which has a NIC in common with the current path.
TEST_F(Drained, APathAcrossRailsWillDo) {
  traffic(3);
  for (int m : {1, 2}) follower().port(m, false);
  run(milliseconds(100));
  drain(leader(), 1);
  run(milliseconds(100));
  EXPECT_NE(member(leader()), kDefault);
  EXPECT_EQ(member(follower()), kDefault);
  traffic(3);
  expect_all_done();
  expect_once();
}

TEST_F(Drained, OneQpIsMovedAndGoesHome) {
  traffic(3);
  SimHost& host = follower();
  const auto order = [&](Order::Kind kind, uint32_t qpn) {
    host.coordinator.orders().take({kind, qpn, host.world.context.device->dev.name});
    run(milliseconds(50));
    return member(host);
  };
  const uint32_t qpn = host.group->qpn();
  EXPECT_EQ(order(Order::Kind::kMove, qpn + 1), kDefault) << "there is no such QP";
  const int first = order(Order::Kind::kMove, qpn);
  EXPECT_NE(first, kDefault);
  const int second = order(Order::Kind::kMove, qpn);
  EXPECT_NE(second, kDefault);
  EXPECT_NE(second, first);
  order(Order::Kind::kHome, qpn);
  run(kHome);
  EXPECT_EQ(member(host), kDefault);
  traffic(3);
  expect_all_done();
  expect_once();
}

// The groups of one program.
class DrainedTogether : public Rounds {
 protected:
  static constexpr int kPairs = 6;
  DrainedTogether() : Rounds(kPairs) {}

  static bool is_moving(const group::Group& one) {
    return one.life.control.is_leader && one.life.control.state != fsm::State::kActive;
  }
  // Runs, and returns how many of a host's groups were on their way at the same time, at most.
  int run_and_count(milliseconds span) {
    int most = 0;
    for (constexpr microseconds kStep{50}; span > milliseconds(0); span -= milliseconds(1)) {
      for (int step = 0; step < milliseconds(1) / kStep; step++) {
        run(kStep);
        for (SimHost* host : {&a_, &b_}) {
          const auto moving = std::ranges::count_if(
              host->groups, [](const group::Group* one) { return is_moving(*one); });
          most = std::max(most, static_cast<int>(moving));
        }
      }
    }
    return most;
  }
  int count_on_default() {
    return static_cast<int>(std::ranges::count_if(
        a_.groups, [](const group::Group* one) { return one->life.path.member == kDefault; }));
  }
};

TEST_F(DrainedTogether, GroupsGoOneAfterTheOther) {
  EXPECT_EQ(count_on_default(), kPairs);
  a_.coordinator.orders().drained_set(&a_.world.context, 1);
  EXPECT_EQ(run_and_count(milliseconds(50)), 1);
  EXPECT_EQ(count_on_default(), 0);
  a_.coordinator.orders().drained_set(&a_.world.context, 0);
  EXPECT_EQ(run_and_count(milliseconds(1100)), 1);
  EXPECT_EQ(count_on_default(), kPairs);
}

TEST_F(DrainedTogether, OneThatTakesItsTimeIsNotWaitedFor) {
  SimHost& host = leader();
  for (group::Group* each : host.groups) {
    host.group = each;
    send(host);  // the peer has no receive for it
  }
  run(milliseconds(1));
  a_.coordinator.orders().drained_set(&a_.world.context, 1);
  EXPECT_EQ(run_and_count(milliseconds(150)), kPairs);
}

// Otherwise the other groups would wait for ever.
TEST_F(DrainedTogether, OneThatEndsOnItsWayGivesItsTurnBack) {
  SimHost& host = leader();
  a_.coordinator.orders().drained_set(&a_.world.context, 1);
  auto moving = host.groups.end();
  for (int step = 0; moving == host.groups.end() && step < 100; step++) {
    run(microseconds(50));
    moving =
        std::ranges::find_if(host.groups, [](const group::Group* one) { return is_moving(*one); });
  }
  ASSERT_NE(moving, host.groups.end());
  host.coordinator.group_forget(*moving);
  host.groups.erase(moving);
  run(milliseconds(50));
  for (const group::Group* one : host.groups) EXPECT_NE(one->life.path.member, kDefault);
}

class AvoidanceTest : public SessionTest {
 protected:
  Session& session_ = make();
  Avoidance& avoidance_ = session_.avoidance;
};

// A peer of an older build would close the connection over the message, and drains no default path.
TEST_F(AvoidanceTest, AnOlderPeerIsToldNothingAndNothingMoves) {
  avoidance_.drained_set(1);
  EXPECT_TRUE(channel_.all<wire::Avoid>().empty());
  EXPECT_FALSE(session_.book.avoids({0, 0}));
  avoidance_.peer_heeds_set(true);
  ASSERT_EQ(channel_.all<wire::Avoid>().size(), 1u);
  EXPECT_EQ(channel_.all<wire::Avoid>()[0].members, 1);
  EXPECT_TRUE(session_.book.avoids({0, 0}));
}

TEST_F(AvoidanceTest, WhatWasSaidIsTakenBackOnANewConnectionToo) {
  avoidance_.peer_heeds_set(true);
  avoidance_.say_again();
  EXPECT_TRUE(channel_.all<wire::Avoid>().empty()) << "there is nothing to say";
  avoidance_.drained_set(2);
  avoidance_.drained_set(0);
  avoidance_.say_again();
  const auto said = channel_.all<wire::Avoid>();
  ASSERT_EQ(said.size(), 3u);
  EXPECT_EQ(said[2].members, 0);
  EXPECT_GT(said[2].seq, said[1].seq);
}

TEST_F(AvoidanceTest, AnOlderMessageUndoesNothing) {
  const auto hear = [this](uint32_t seq, uint8_t members) {
    avoidance_.take({session_.ends.remote, session_.ends.local, seq, members});
  };
  hear(5, 1);
  hear(4, 0);
  hear(5, 0);
  EXPECT_TRUE(session_.book.avoids({0, 0}));
  hear(6, 0);
  EXPECT_FALSE(session_.book.avoids({0, 0}));
}

}  // namespace
}  // namespace shift::control
