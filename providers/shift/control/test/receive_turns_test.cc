#include "control/receive_turns.h"

#include <gtest/gtest.h>

#include "group/test/shared_receives.h"
#include "net/test/virtual_loop.h"

namespace shift::control {
namespace {

using std::chrono::milliseconds;

// Two groups of a queue, on two NICs, with one receive for both.
class ReceiveTurnsTest : public group::Shared {
 protected:
  void SetUp() override {
    ASSERT_EQ(post({1}), 0);
    ASSERT_TRUE(leave({a_}));
    ASSERT_EQ(go(a_, group::kBackup), group::Commit::kDone);
    ASSERT_EQ(world_.sink.receives_scarce_calls, 1);
    turns_.begin(group::Held(srq_));
  }
  // Runs for so long, and returns how often the receive moved.
  int moves_in(milliseconds time) {
    int moves = 0;
    for (milliseconds t{}; t < time; t += milliseconds(1)) {
      const bool was_there = !on(group::kBackup).empty();
      time_.run_for(milliseconds(1));
      for (int i = 0; i < 2; i++) recall();
      moves += was_there == on(group::kBackup).empty();
    }
    return moves;
  }

  net::VirtualTime time_;
  net::VirtualLoop loop_{time_};
  ReceiveTurns turns_{loop_};
};

TEST_F(ReceiveTurnsTest, ARestingQueuesReceiveMovesEverMoreRarely) {
  EXPECT_EQ(moves_in(milliseconds(600)), 8);  // after 2, 6, 14 ... 510 ms
  EXPECT_EQ(moves_in(milliseconds(2560)), 10);
}

TEST_F(ReceiveTurnsTest, WhatIsReceivedShortensTheTurns) {
  (void)moves_in(milliseconds(600));
  group::Group* there = on(group::kBackup).empty() ? b_ : a_;
  receive(there);
  EXPECT_EQ(poll_all(cq_).size(), 1u);
  ASSERT_EQ(post({2}), 0);
  EXPECT_GE(moves_in(milliseconds(256 + 20)), 3);
}

TEST_F(ReceiveTurnsTest, EndWhenEachNicHasAReceive) {
  ASSERT_EQ(post({2}), 0);
  EXPECT_EQ(moves_in(milliseconds(600)), 0);
  EXPECT_EQ(on(group::kBackup).size(), 1u);
  receive(a_);
  EXPECT_EQ(poll_all(cq_).size(), 1u);
  EXPECT_EQ(world_.sink.receives_scarce_calls, 2) << "and begin anew when one is without";
}

}  // namespace
}  // namespace shift::control
