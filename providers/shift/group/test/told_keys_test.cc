// Which numbers are withheld from the application, and what peers have to forget.
#include "group/told_keys.h"

#include <gtest/gtest.h>

#include "group/keys.h"
#include "group/test/fake.h"

namespace shift::group {
namespace {

constexpr uint64_t kPeer = 1, kOther = 2;
constexpr uint32_t kKey = 0x100;

class Told : public ::testing::Test {
 protected:
  std::vector<uint32_t> said_to(uint64_t peer) {
    const auto gone = told_.say(peer);
    return gone && !gone->all ? gone->rkeys : std::vector<uint32_t>{};
  }
  bool is_free(uint32_t rkey) { return !told_.withholds(rkey); }

  ToldKeys told_;
};

TEST_F(Told, AKeyThatNobodyWasToldIsFree) {
  told_.tell(kPeer, kKey + 1);
  EXPECT_FALSE(told_.withdraw(kKey));
  EXPECT_TRUE(is_free(kKey));
  EXPECT_FALSE(told_.withholds_any());
  EXPECT_TRUE(told_.listeners().empty());
}

TEST_F(Told, AKeyIsWithheldUntilThePeerHasForgottenIt) {
  told_.tell(kPeer, kKey);
  told_.tell(kPeer, kKey);
  EXPECT_TRUE(is_free(kKey));
  EXPECT_TRUE(told_.withdraw(kKey));
  EXPECT_FALSE(is_free(kKey));
  EXPECT_TRUE(is_free(kKey + 1));
  EXPECT_TRUE(told_.withholds_any());
  EXPECT_EQ(told_.listeners(), std::vector{kPeer});
  EXPECT_EQ(said_to(kPeer), std::vector{kKey});
  EXPECT_FALSE(is_free(kKey));
  EXPECT_TRUE(told_.forgotten(kPeer));
  EXPECT_TRUE(is_free(kKey));
  EXPECT_FALSE(told_.withholds_any());
  EXPECT_FALSE(told_.withdraw(kKey)) << "it was told once";
}

TEST_F(Told, AKeyIsWithheldUntilAllPeersHaveForgottenIt) {
  told_.tell(kPeer, kKey);
  told_.tell(kOther, kKey);
  EXPECT_TRUE(told_.withdraw(kKey));
  EXPECT_EQ(said_to(kPeer), std::vector{kKey});
  EXPECT_EQ(said_to(kOther), std::vector{kKey});
  EXPECT_TRUE(told_.forgotten(kOther));
  EXPECT_FALSE(is_free(kKey));
  EXPECT_FALSE(told_.forgotten(kOther)) << "nothing was said to it";
  EXPECT_FALSE(is_free(kKey));
  EXPECT_TRUE(told_.forgotten(kPeer));
  EXPECT_TRUE(is_free(kKey));
}

TEST_F(Told, WhatGoesMeanwhileIsSaidAfterTheAnswer) {
  for (uint32_t key : {kKey, kKey + 1, kKey + 2}) told_.tell(kPeer, key);
  EXPECT_TRUE(told_.withdraw(kKey));
  EXPECT_EQ(said_to(kPeer), std::vector{kKey});
  EXPECT_TRUE(told_.withdraw(kKey + 1));
  EXPECT_TRUE(told_.withdraw(kKey + 2));
  EXPECT_TRUE(told_.listeners().empty());
  EXPECT_FALSE(told_.say(kPeer).has_value());
  ASSERT_TRUE(told_.unanswered(kPeer).has_value());
  EXPECT_EQ(told_.unanswered(kPeer)->rkeys, std::vector{kKey});
  EXPECT_TRUE(told_.forgotten(kPeer));
  EXPECT_FALSE(told_.unanswered(kPeer).has_value());
  EXPECT_TRUE(is_free(kKey));
  EXPECT_FALSE(is_free(kKey + 1));
  EXPECT_EQ(said_to(kPeer), (std::vector{kKey + 1, kKey + 2}));
  EXPECT_TRUE(told_.forgotten(kPeer));
  EXPECT_FALSE(told_.withholds_any());
}

TEST_F(Told, NothingIsWithheldForAPeerThatReachesNothing) {
  told_.tell(kPeer, kKey);
  told_.tell(kPeer, kKey + 1);
  told_.tell(kPeer, kKey + 2);
  EXPECT_TRUE(told_.withdraw(kKey));
  EXPECT_EQ(said_to(kPeer), std::vector{kKey});
  EXPECT_TRUE(told_.withdraw(kKey + 1));
  told_.forget(kPeer);
  EXPECT_FALSE(told_.withholds_any());
  EXPECT_FALSE(told_.unanswered(kPeer).has_value());
  EXPECT_FALSE(told_.say(kPeer).has_value());
  EXPECT_FALSE(told_.withdraw(kKey + 2));
  EXPECT_FALSE(told_.forgotten(kPeer));
}

// C11: however many keys a peer asks for, what is kept is bounded.
TEST_F(Told, APeerThatWasToldTooManyMustForgetAll) {
  const uint32_t last = kKey + ToldKeys::kToldMax;
  for (uint32_t key = kKey; key < last; key++) told_.tell(kPeer, key);
  EXPECT_FALSE(told_.withdraw(last));
  told_.tell(kPeer, last);
  EXPECT_TRUE(told_.withdraw(1)) << "it may have been told this one, too";
  EXPECT_FALSE(is_free(1));
  EXPECT_TRUE(is_free(2));
  auto gone = told_.say(kPeer);
  ASSERT_TRUE(gone.has_value());
  EXPECT_TRUE(gone->all);
  EXPECT_TRUE(gone->rkeys.empty());
  EXPECT_FALSE(told_.withdraw(kKey)) << "it will have forgotten this one";
  told_.tell(kPeer, 3);
  EXPECT_TRUE(told_.forgotten(kPeer));
  EXPECT_FALSE(told_.withholds_any());
  EXPECT_TRUE(told_.withdraw(3)) << "it was told this one after that";
  EXPECT_EQ(said_to(kPeer), std::vector{3u});
}

// A peer that never answers: what is withheld for it is bounded, and nothing of it is given out.
TEST_F(Told, WhenTooMuchIsWithheldEveryNumberIs) {
  told_.tell(kPeer, 1);
  EXPECT_TRUE(told_.withdraw(1));
  EXPECT_EQ(said_to(kPeer), std::vector{1u});
  for (uint32_t i = 0; i < ToldKeys::kGoneMax; i++) {
    told_.tell(kPeer, kKey + i);
    EXPECT_TRUE(told_.withdraw(kKey + i));
  }
  EXPECT_TRUE(is_free(2));
  told_.tell(kPeer, 3);
  EXPECT_TRUE(told_.withdraw(3));
  EXPECT_FALSE(is_free(2));
  EXPECT_TRUE(told_.withholds_every());
  EXPECT_TRUE(told_.forgotten(kPeer));
  EXPECT_FALSE(is_free(2)) << "that was the first";
  const auto gone = told_.say(kPeer);
  ASSERT_TRUE(gone.has_value());
  EXPECT_TRUE(gone->all);
  EXPECT_TRUE(told_.forgotten(kPeer));
  EXPECT_FALSE(told_.withholds_any());
}

TEST_F(Told, AWaitEndsWhenTheNumberIsFree) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  told_.tell(kPeer, kKey);
  EXPECT_TRUE(told_.withdraw(kKey));
  const auto never = std::chrono::steady_clock::time_point::max();
  const std::chrono::steady_clock::time_point now{};
  EXPECT_FALSE(told_.await(lock, now, [&] { return is_free(kKey); }));
  told_.forget(kPeer);
  EXPECT_TRUE(told_.await(lock, never, [&] { return is_free(kKey); }));
}

TEST(ToldByGroup, OnlyAKeyThatIsThereIsTold) {
  World world;
  Group* group = world.make_group(world.make_cq());
  world.make_region(0x30, 0x40, MemoryRegion::Twin::kRunning);
  uint32_t out = 0;
  EXPECT_EQ(tell_key(*group, kBackup, kRkey, &out), KeyState::kReady);
  EXPECT_EQ(out, kBackupRkey);
  EXPECT_EQ(tell_key(*group, kBackup, 0x40, &out), KeyState::kPending);
  EXPECT_EQ(tell_key(*group, kBackup, 0x666, &out), KeyState::kMissing);
  ToldKeys& told = world.context.told_keys;
  EXPECT_FALSE(told.withdraw(0x40));
  EXPECT_FALSE(told.withdraw(0x666));
  EXPECT_TRUE(told.withdraw(kRkey));
  EXPECT_EQ(told.listeners(), std::vector{group->life.serial});
  told_keys_forget(*group);
  EXPECT_FALSE(told.withholds_any());
}

}  // namespace
}  // namespace shift::group
