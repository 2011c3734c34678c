#include "control/turns.h"

#include <gtest/gtest.h>

#include <vector>

#include "net/test/virtual_loop.h"

namespace shift::control {
namespace {

class TurnsTest : public ::testing::Test {
 protected:
  static constexpr int kMost = 3;
  // All turns are taken by sessions that do not matter here.
  void fill() {
    for (int i = 0; i < kMost; i++) {
      ASSERT_TRUE(turns_.ask(1000 + static_cast<uint64_t>(i), false));
      turns_.begin();
    }
  }
  std::vector<uint64_t> end_one() {
    given_.clear();
    turns_.end();
    time_.run_for(std::chrono::milliseconds(1));
    return given_;
  }

  net::VirtualTime time_;
  net::VirtualLoop loop_{time_};
  std::vector<uint64_t> given_;
  // Each session that is given a turn takes it, unless it asks for another one.
  bool takes_ = true;
  int most_ = kMost;
  Turns turns_{loop_,
               [this](uint64_t serial) {
                 given_.push_back(serial);
                 if (takes_) {
                   turns_.begin();
                 } else {
                   EXPECT_TRUE(turns_.ask(serial, false));
                 }
               },
               [this] { return most_; }};
};

TEST_F(TurnsTest, SoManyAtATime) {
  fill();
  EXPECT_FALSE(turns_.ask(1, false));
  EXPECT_EQ(end_one(), (std::vector<uint64_t>{1}));
  EXPECT_FALSE(turns_.ask(2, false));  // session 1 runs now
}

TEST_F(TurnsTest, FirstAskedIsFirstServed) {
  fill();
  for (uint64_t serial : {1, 2, 3}) EXPECT_FALSE(turns_.ask(serial, false));
  EXPECT_EQ(end_one(), (std::vector<uint64_t>{1}));
  EXPECT_EQ(end_one(), (std::vector<uint64_t>{2}));
  EXPECT_EQ(end_one(), (std::vector<uint64_t>{3}));
  EXPECT_TRUE(end_one().empty());
}

TEST_F(TurnsTest, AskingAgainChangesNothing) {
  fill();
  for (uint64_t serial : {1, 2, 1, 1}) EXPECT_FALSE(turns_.ask(serial, false));
  EXPECT_EQ(end_one(), (std::vector<uint64_t>{1}));
  EXPECT_EQ(end_one(), (std::vector<uint64_t>{2}));
  EXPECT_TRUE(end_one().empty());
}

TEST_F(TurnsTest, AnUrgentOneGoesFirstAlsoWhenItHasWaited) {
  fill();
  for (uint64_t serial : {1, 2, 3}) EXPECT_FALSE(turns_.ask(serial, false));
  EXPECT_FALSE(turns_.ask(3, true));
  EXPECT_EQ(end_one(), (std::vector<uint64_t>{3}));
  EXPECT_EQ(end_one(), (std::vector<uint64_t>{1}));
}

TEST_F(TurnsTest, WhoeverCannotUseItsTurnLeavesItToTheNext) {
  fill();
  for (uint64_t serial : {1, 2}) EXPECT_FALSE(turns_.ask(serial, false));
  takes_ = false;
  EXPECT_EQ(end_one(), (std::vector<uint64_t>{1, 2}));
}

// Otherwise a session that always wants a turn would keep those that wait from theirs.
TEST_F(TurnsTest, WhoeverAsksAgainComesAfterThoseThatWait) {
  fill();
  for (uint64_t serial : {1, 2}) EXPECT_FALSE(turns_.ask(serial, false));
  turns_.end();
  EXPECT_FALSE(turns_.ask(1000, false)) << "the turn is session 1's";
  time_.run_for(std::chrono::milliseconds(1));
  EXPECT_EQ(given_, (std::vector<uint64_t>{1}));
  EXPECT_EQ(end_one(), (std::vector<uint64_t>{2}));
  EXPECT_EQ(end_one(), (std::vector<uint64_t>{1000}));
}

TEST_F(TurnsTest, AnUrgentOneNeedNotWaitWhereATurnIsFree) {
  fill();
  EXPECT_FALSE(turns_.ask(1, false));
  turns_.end();
  EXPECT_TRUE(turns_.ask(2, true));
}

TEST_F(TurnsTest, MoreTurnsAreGivenWhenThereAreMore) {
  fill();
  for (uint64_t serial : {1, 2}) EXPECT_FALSE(turns_.ask(serial, false));
  most_ = kMost + 3;
  EXPECT_FALSE(turns_.ask(3, false));
  time_.run_for(std::chrono::milliseconds(1));
  EXPECT_EQ(given_, (std::vector<uint64_t>{1, 2, 3}));
}

// The session whose attempt ends may be about to be forgotten.
TEST_F(TurnsTest, NobodyIsGivenATurnFromInsideEnd) {
  fill();
  EXPECT_FALSE(turns_.ask(1, false));
  turns_.end();
  EXPECT_TRUE(given_.empty());
}

}  // namespace
}  // namespace shift::control
