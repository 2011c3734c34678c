// Tests who gives way when all places for strangers are taken.
#include "net/lobby.h"

#include <gtest/gtest.h>

#include <map>

namespace shift::net::test {
namespace {

// Connections, each with its number and its source.
class LobbyTest : public ::testing::Test {
 protected:
  void come(int number, uint32_t source) {
    seats_[number] = lobby_.sit(source, [this, number] { seats_.erase(number); });
  }
  bool is_here(int number) const { return seats_.contains(number); }

  Lobby lobby_{48};
  std::map<int, Lobby::Seat> seats_;
};

TEST_F(LobbyTest, TheOldestOfACrowdGivesWay) {
  come(0, 1);
  for (int i = 1; i <= 60; i++) come(i, 2);
  EXPECT_EQ(lobby_.taken(), 48u);
  EXPECT_TRUE(is_here(0)) << "it is the oldest, but alone";
  EXPECT_FALSE(is_here(13));
  EXPECT_TRUE(is_here(14));
  EXPECT_TRUE(is_here(60));
}

TEST_F(LobbyTest, WhoComesAfterTheCrowdGetsAPlaceToo) {
  for (int i = 1; i <= 60; i++) come(i, 2);
  come(0, 1);
  EXPECT_EQ(lobby_.taken(), 48u);
  for (int i = 61; i <= 120; i++) come(i, 2);
  EXPECT_TRUE(is_here(0));
}

TEST_F(LobbyTest, OfManySourcesTheOldestGivesWay) {
  for (int i = 0; i < 49; i++) come(i, static_cast<uint32_t>(i));
  EXPECT_FALSE(is_here(0));
  EXPECT_TRUE(is_here(1));
}

TEST_F(LobbyTest, APlaceThatIsGivenBackIsFree) {
  for (int i = 0; i < 48; i++) come(i, 2);
  seats_.erase(30);
  come(48, 2);
  EXPECT_TRUE(is_here(0));
  EXPECT_EQ(lobby_.taken(), 48u);
}

TEST_F(LobbyTest, RoomIsMadeOnlyWhereSomebodySits) {
  EXPECT_FALSE(lobby_.make_room());
  come(0, 1);
  EXPECT_TRUE(lobby_.make_room());
  EXPECT_EQ(lobby_.taken(), 0u);
}

}  // namespace
}  // namespace shift::net::test
