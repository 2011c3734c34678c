// Checks two ends joined by a channel, in every interleaving of faults, answers and messages.
#include <gtest/gtest.h>

#include "fsm/test/pair.h"

namespace shift::fsm {
namespace {

bool is_working(const Side& side) {
  return side.state == State::kActive && side.epoch != 0;
}

std::string names(const Pair& pair) {
  return std::string(to_string(pair.side[0].state)) + " / " + to_string(pair.side[1].state);
}

// C7: faults of paths (at one end or both, at any moment) and drains beside them always end with
// both ends on one path. Exploration itself checks every replay (C2, C3).
void check_converges(Budget budget) {
  const Exploration all(budget);
  ASSERT_EQ(all.broken(), "");
  EXPECT_GT(all.pairs().size(), 3000u);
  size_t moved = 0;
  for (size_t i = 0; i < all.pairs().size(); i++) {
    const Pair& pair = all.pairs()[i];
    if (!Exploration::is_quiet(pair)) continue;
    ASSERT_EQ(pair.side[0].state, State::kActive) << names(pair) << ": " << all.path_to(i);
    ASSERT_EQ(pair.side[1].state, State::kActive) << names(pair) << ": " << all.path_to(i);
    ASSERT_EQ(pair.side[0].epoch, pair.side[1].epoch) << all.path_to(i);
    moved += is_working(pair.side[0]);
  }
  EXPECT_GT(moved, 5u);
}

TEST(Peers, FaultsConverge) {
  check_converges({.faults = 3});
}
TEST(Peers, FaultsAndWaysBackConverge) {
  check_converges({.faults = 2, .drains = 1});
}

// C6: the deadline is the last resort, for a peer that says nothing. A peer that has given up says
// so, and no end goes on with such a peer.
TEST(Peers, NobodyGoesOnOrWaitsBesideOneThatGaveUp) {
  const Exploration all({.faults = 1, .drains = 1, .ends = 1});
  ASSERT_EQ(all.broken(), "");
  size_t ended = 0;
  for (size_t i = 0; i < all.pairs().size(); i++) {
    const Pair& pair = all.pairs()[i];
    if (!Exploration::is_quiet(pair)) continue;
    for (size_t k = 0; k < 2; k++) {
      ASSERT_FALSE(is_leaving(pair.side[k].state)) << names(pair) << ": " << all.path_to(i);
      if (!is_over(pair.side[k].state)) continue;
      ended++;
      ASSERT_NE(pair.side[1 - k].state, State::kActive) << names(pair) << ": " << all.path_to(i);
    }
  }
  EXPECT_GT(ended, 20u);
}

// A follower that lost its peer's proof, or never had it, refuses; the leader does not wait for it.
TEST(Peers, NobodyWaitsForAPeerThatIsNotProtected) {
  const Exploration all({.faults = 2}, State::kUnbound);
  ASSERT_EQ(all.broken(), "");
  size_t failed = 0;
  for (size_t i = 0; i < all.pairs().size(); i++) {
    const Pair& pair = all.pairs()[i];
    if (!Exploration::is_quiet(pair)) continue;
    ASSERT_FALSE(is_leaving(pair.side[0].state)) << names(pair) << ": " << all.path_to(i);
    failed += pair.side[0].state == State::kFailed;
  }
  EXPECT_GT(failed, 0u);
}

}  // namespace
}  // namespace shift::fsm
