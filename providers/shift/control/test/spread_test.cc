// What two ends tell each other of their NICs, and what follows for the order of paths.
#include "control/spread.h"

#include <gtest/gtest.h>

#include <bit>
#include <optional>
#include <vector>

#include "control/test/lone_session.h"
#include "util/config.h"

namespace shift::control {
namespace {

constexpr int kMany = 6;

class SpreadTest : public SessionTest {
 protected:
  SpreadTest() : SessionTest(kMany) {
    for (int m = 0; m < kMany; m++) world_.context.capacity[m] = 100;
  }
  // A session that has just heard its peer's first Bind, which names so many NICs.
  Session& bound(uint32_t flags, size_t named = wire::Bind::kMembersMax) {
    Session& session = make();
    session.search.set_proven();
    session.control.state = fsm::State::kActive;
    for (int m = 0; m < kMany; m++) session.qps[m].made = true;
    session.book.peer_members_set(static_cast<int>(named), 0xff);
    wire::Bind bind;
    bind.flags = flags;
    bind.members.resize(named);
    session.spread.peer_bound(bind);
    session.paths.tend();
    return session;
  }
  static wire::Nics nics(const std::vector<uint8_t>& capacities) {
    wire::Nics message;
    for (const uint8_t capacity : capacities)
      message.nics.push_back({wire::Gid::from_ipv4(0x01020304), capacity});
    return message;
  }
  // The members in the order in which the session tries their straight paths.
  static std::vector<int> order(const Session& session) {
    std::vector<int> members;
    for (const PathName path : session.book.candidates()) {
      if (path.leader == path.follower && path.leader != group::kDefault)
        members.push_back(path.leader);
    }
    return members;
  }
};

// An older build that has two and is told of more dies.
TEST_F(SpreadTest, ABindNamesTwoNicsAndSaysThatThereAreMore) {
  Session& session = make();
  session.search.send_bind();
  ASSERT_EQ(channel_.all<wire::Bind>().size(), 1u);
  const wire::Bind bind = channel_.all<wire::Bind>()[0];
  EXPECT_EQ(bind.members.size(), 2u);
  EXPECT_NE(bind.flags & wire::Bind::kHasMore, 0u);
}

// The peer may be the one that has more than two NICs.
TEST_F(SpreadTest, AnEndWithTwoNicsTellsOfThemToOneWithMore) {
  world_.context.member_count = 2;
  (void)bound(wire::Bind::kTellsNics);
  EXPECT_TRUE(channel_.all<wire::Nics>().empty());
  Session& session = bound(wire::Bind::kTellsNics | wire::Bind::kHasMore);
  ASSERT_EQ(channel_.all<wire::Nics>().size(), 1u);
  EXPECT_EQ(channel_.all<wire::Nics>()[0].nics.size(), 2u);
  session.spread.take(nics({1, 1, 1, 1}));
  EXPECT_EQ(session.book.peer_members(), 4);
}

TEST_F(SpreadTest, BothEndsTellOfAllNics) {
  world_.context.capacity[5] = 33;
  (void)bound(wire::Bind::kTellsNics);
  const auto said = channel_.all<wire::Nics>();
  ASSERT_EQ(said.size(), 1u);
  ASSERT_EQ(said[0].nics.size(), size_t{kMany});
  EXPECT_EQ(said[0].nics[5].capacity, 33);
  EXPECT_EQ(said[0].nics[5].gid, world_.nic(5).gid);
}

TEST_F(SpreadTest, NoPathIsMadeBeforeThePeerHasTold) {
  Session& session = bound(wire::Bind::kTellsNics);
  run_for(std::chrono::milliseconds(99));
  EXPECT_FALSE(session.paths.is_trying());
  session.spread.take(nics({1, 1, 1, 1, 1, 1}));
  EXPECT_TRUE(session.paths.is_trying());
  EXPECT_EQ(session.book.peer_members(), kMany);
}

TEST_F(SpreadTest, APeerThatKeepsSilentIsNotWaitedForLong) {
  Session& session = bound(wire::Bind::kTellsNics);
  run_for(std::chrono::milliseconds(101));
  EXPECT_TRUE(session.paths.is_trying());
}

// It would not know the addresses of the others.
TEST_F(SpreadTest, APeerOfAnOlderBuildUsesTheFirstTwo) {
  Session& session = bound(0);
  EXPECT_TRUE(channel_.all<wire::Nics>().empty());
  EXPECT_TRUE(session.paths.is_trying());
  for (uint8_t m = 1; m < kMany; m++) EXPECT_EQ(session.book.works({m, 1}), m < 2) << int{m};
  session.spread.take(nics({1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(session.book.peer_members(), 2) << "it did not say that it would tell";
}

// C7: a QP that is connected to itself may use all NICs, though its own Bind names only two.
TEST_F(SpreadTest, AnEndKnowsItsOwnNics) {
  Session& session = make({}, true);
  session.search.set_proven();
  session.control.state = fsm::State::kActive;
  session.book.peer_members_set(wire::Bind::kMembersMax, 0xff);
  session.book.own_up_set(0xff);
  wire::Bind bind;
  bind.flags = wire::Bind::kTellsNics;
  bind.members.resize(wire::Bind::kMembersMax);
  session.spread.peer_bound(bind);
  EXPECT_EQ(session.book.peer_members(), kMany);
  EXPECT_TRUE(session.book.exists({5, 5}, true));
  EXPECT_TRUE(session.book.works({5, 5}));
  EXPECT_TRUE(session.search.owns(world_.nic(5).gid));
}

TEST_F(SpreadTest, OfBothEndsCapacitiesTheSmallerOneCounts) {
  world_.context.capacity[1] = 10;
  Session& session = bound(wire::Bind::kTellsNics);
  session.spread.take(nics({200, 200, 20, 200, 30, 40}));
  EXPECT_EQ(order(session), (std::vector{3, 5, 4, 2, 1}));
}

// A later Bind follows a new connection, or an address that has changed.
TEST_F(SpreadTest, NicsAreToldAgainWithEachBind) {
  Session& session = bound(wire::Bind::kTellsNics);
  session.search.send_bind();
  EXPECT_EQ(channel_.all<wire::Nics>().size(), 2u);
}

// Paths that are ready would lie where they are no longer wanted.
TEST_F(SpreadTest, TheOrderStaysWhenThePeerSaysTheSameAgain) {
  Session& session = bound(wire::Bind::kTellsNics);
  session.spread.take(nics({1, 1, 1, 1, 1, 1}));
  const std::vector<int> before = order(session);
  // Meanwhile others go to the same NIC, so that another one would be chosen.
  for (uint64_t serial = 100; serial < 104; serial++) {
    Capacities one{};
    one[static_cast<size_t>(before[0])] = 1;
    (void)shares_.take(serial, &world_.context, {}, session.ends.remote.gid, one);
  }
  session.spread.take(nics({1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(order(session), before);
  session.spread.take(nics({1, 1, 1, 1, 1, 2}));
  EXPECT_NE(order(session), before) << "it has said something new";
}

// A copy that comes late says nothing of what works, and a group that is over counts for nothing.
TEST_F(SpreadTest, WhatComesLateUndoesNothing) {
  Session& session = bound(wire::Bind::kTellsNics);
  session.book.peer_up_set(0x0f);
  session.spread.take(nics({1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(session.book.peer_up(), 0x0f);
  session.end();
  const int members = session.book.peer_members();
  session.spread.take(nics({1, 1}));
  EXPECT_EQ(session.book.peer_members(), members);
}

// The command thread registers what there is before it connects. On demand nothing is registered
// before a round leaves the path: then on all members that it may go to.
TEST_F(SpreadTest, APathAsksForTheMemoryOfItsMember) {
  world_.pd.registers_on = 0;
  Session& session = bound(0);
  ASSERT_TRUE(session.paths.is_trying());
  const bool is_on_demand = config().register_on == Config::Register::kDemand;
  EXPECT_EQ(std::popcount(world_.pd.registers_on.load()), is_on_demand ? 0 : 1);
  session.qps[2].is_asked = session.qps[5].is_asked = true;
  const uint8_t before = world_.pd.registers_on;
  session.round.enter_epoch(std::nullopt);
  EXPECT_EQ(world_.pd.registers_on, before | 1 << 2 | 1 << 5);
}

TEST_F(SpreadTest, APathThatIsMadeInARoundAsksForMemoryInAnyCase) {
  world_.pd.registers_on = 0;
  Session& session = make();
  session.control.state = fsm::State::kSeeking;
  session.qps.choose_address(3, {3, 3}, [](Session&, const MemberQps::Address&) {});
  EXPECT_EQ(world_.pd.registers_on, 1 << 3);
  session.qps.choose_and_connect(4, {4, 4}, {}, [](Session&, const MemberQps::Address&) {});
  EXPECT_EQ(world_.pd.registers_on, 1 << 3 | 1 << 4);
}

// A drain gives up after a while, and the next one finds the memory registered.
TEST_F(SpreadTest, ADrainAsksForMemoryBeforeItsRound) {
  world_.pd.registers_on = 0;
  Session& session = make();
  session.qps[2].is_asked = true;
  session.drain.watch();
  EXPECT_EQ(world_.pd.registers_on, 1 << 2);
}

// C11: what is told of a key is the same as when all is registered from the start.
TEST_F(SpreadTest, AQuestionForAKeyAsksForTheMemory) {
  world_.pd.registers_on = 0;
  Session& session = make();
  wire::KeyQuery query;
  query.member = 4;
  session.keys.answer(query);
  EXPECT_EQ(world_.pd.registers_on, 1 << 4);
}

TEST_F(SpreadTest, BadListsAreIgnored) {
  Session& session = bound(wire::Bind::kTellsNics);
  session.spread.take(nics({}));
  session.spread.take(nics(std::vector<uint8_t>(group::kMembersMax + 1, 1)));
  EXPECT_FALSE(session.spread.is_settled());
}

}  // namespace
}  // namespace shift::control
