// What a session does by itself, and the small tables that sessions share.
#include "control/session.h"

#include <gtest/gtest.h>

#include <optional>

#include "control/test/lone_session.h"

namespace shift::control {
namespace {

using group::kBackup;
using group::kDefault;

// An older word on the peer's members must not undo a newer one, and the numbers wrap around.
TEST_F(SessionTest, OnlyANewerWordOnThePeersMembersCounts) {
  Session& session = make();
  EXPECT_TRUE(session.take_members_sequence(5));
  EXPECT_FALSE(session.take_members_sequence(5));
  EXPECT_FALSE(session.take_members_sequence(4));
  EXPECT_TRUE(session.take_members_sequence(0x7fffffff));
  EXPECT_FALSE(session.take_members_sequence(6));
  EXPECT_TRUE(session.take_members_sequence(0xfffffffe));
  EXPECT_TRUE(session.take_members_sequence(2));
  EXPECT_FALSE(session.take_members_sequence(0xffffffff));
}

// C11: a peer whose NICs come and go all the time sets no pace, and an honest one is not held up.
TEST_F(SessionTest, ConnectionsAreDialedAgainOnceASecond) {
  Session& session = make();
  session.redial_soon();
  EXPECT_EQ(network_.retries, 1) << "at once";
  for (int i = 0; i < 50; i++) {
    session.redial_soon();
    run_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(network_.retries, 1);
  run_for(std::chrono::milliseconds(501));
  EXPECT_EQ(network_.retries, 2) << "none is lost";
  run_for(std::chrono::seconds(5));
  EXPECT_EQ(network_.retries, 2);
  session.redial_soon();
  EXPECT_EQ(network_.retries, 3);
}

class OwnAddress : public SessionTest {
 protected:
  wire::Gid chosen(int member, PathName path) {
    std::optional<wire::Gid> gid;
    session_.qps.choose_address(member, path, [&](Session&, const MemberQps::Address& own) {
      EXPECT_EQ(own.error, 0);
      gid = own.address.gid;
    });
    run_for(std::chrono::milliseconds(1));
    return gid.value();
  }
  wire::Gid first_of(int member) const { return world_.context.members[member].gids.front(); }

  Session& session_ = make();
  static constexpr PathName kOriginal{kDefault, kDefault}, kAcross{kDefault, kBackup};
};

TEST_F(OwnAddress, IsTheOneThatTheApplicationChose) {
  world_.context.members[kDefault].gids.push_back(wire::Gid::from_ipv4(0x0900007f));
  session_.group.life.ends.local.gid = wire::Gid::from_ipv4(0x0900007f);
  EXPECT_EQ(chosen(kDefault, kOriginal), wire::Gid::from_ipv4(0x0900007f));
  EXPECT_EQ(chosen(kDefault, kAcross), wire::Gid::from_ipv4(0x0900007f));
  EXPECT_EQ(chosen(kBackup, {kBackup, kDefault}), first_of(kBackup));
}

// The peer's other NICs cannot be reached from such an address.
TEST_F(OwnAddress, OfTheLinkOnlyIsForTheOriginalPath) {
  wire::Gid link_local;
  link_local.raw[0] = 0xfe;
  link_local.raw[1] = 0x80;
  session_.group.life.ends.local.gid = link_local;
  EXPECT_EQ(chosen(kDefault, kOriginal), link_local);
  EXPECT_EQ(chosen(kDefault, kAcross), first_of(kDefault));
  EXPECT_EQ(chosen(kBackup, {kBackup, kBackup}), first_of(kBackup));
}

TEST_F(OwnAddress, OfAMemberWithoutOneIsZero) {
  world_.nic(kBackup).gid = {};
  nics_.gids_changed(&world_.context, kBackup);
  EXPECT_EQ(chosen(kBackup, {kBackup, kBackup}), wire::Gid{});
}

class NicPairsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const group::Context* context : {&one_, &two_})
      for (const wire::Gid& peer : {kPeer, kOther}) of(context, peer).rest(Time{} + kPause, true);
  }
  NicPair& of(const group::Context* context, const wire::Gid& peer) {
    return pairs_.of(context, peer)[{kDefault, kDefault}];
  }
  bool rests(const group::Context* context, const wire::Gid& peer) {
    return of(context, peer).not_before > Time{};
  }

  static constexpr std::chrono::seconds kPause{1};
  const wire::Gid kPeer = wire::Gid::from_ipv4(1), kOther = wire::Gid::from_ipv4(2);
  group::Context one_, two_;
  NicPairs pairs_;
};

TEST_F(NicPairsTest, APeersChangeGivesItsPathsAnotherChance) {
  pairs_.retry(kPeer);
  EXPECT_FALSE(rests(&one_, kPeer) || rests(&two_, kPeer));
  EXPECT_TRUE(rests(&one_, kOther) && rests(&two_, kOther));
}

TEST_F(NicPairsTest, AnOwnChangeGivesTheContextsPathsAnotherChance) {
  pairs_.retry(&one_);
  EXPECT_FALSE(rests(&one_, kPeer) || rests(&one_, kOther));
  EXPECT_TRUE(rests(&two_, kPeer) && rests(&two_, kOther));
}

TEST_F(NicPairsTest, WhatASessionTriedIsFreeAfterItsEnd) {
  of(&one_, kPeer).trying = 7;
  of(&two_, kPeer).trying = 8;
  pairs_.session_forget(7);
  EXPECT_EQ(of(&one_, kPeer).trying, 0u);
  EXPECT_EQ(of(&two_, kPeer).trying, 8u);
}

TEST_F(NicPairsTest, RestIsNeverShortened) {
  const Time later = of(&one_, kPeer).not_before;
  of(&one_, kPeer).rest(Time{}, true);
  EXPECT_EQ(of(&one_, kPeer).not_before, later);
  of(&one_, kPeer).rest(later, true);
  EXPECT_GT(of(&one_, kPeer).not_before, later);
  EXPECT_EQ(of(&one_, kPeer).failures, 1);
}

}  // namespace
}  // namespace shift::control
