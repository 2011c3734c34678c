// Groups spread over the NICs that back theirs, by what these can carry.
#include "control/shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "util/test/random.h"

namespace shift::control {
namespace {

using Places = std::array<int, group::kMembersMax>;

const group::Context* context(uintptr_t number) {
  return reinterpret_cast<const group::Context*>(number);
}
wire::Gid peer(uint32_t number) {
  return wire::Gid::from_ipv4(number);
}
int member_of(const Ranks& ranks, int rank, int members) {
  for (int m = 1; m < members; m++)
    if (ranks[static_cast<size_t>(m)] == rank) return m;
  return -1;
}

// How many of the groups go to each member first, and second.
struct Taken {
  Places first{}, second{};
};
Taken take(Shares& shares, int groups, const Capacities& capacities, int members) {
  Taken taken;
  for (int i = 0; i < groups; i++) {
    const Ranks ranks = shares.take(static_cast<uint64_t>(i) + 1, context(1), peer(1), capacities);
    taken.first[static_cast<size_t>(member_of(ranks, 0, members))]++;
    taken.second[static_cast<size_t>(member_of(ranks, 1, members))]++;
  }
  return taken;
}

TEST(Shares, EqualNicsGetEqualNumbers) {
  Shares shares;
  Capacities capacities;
  capacities.fill(200);
  const Taken taken = take(shares, 56, capacities, 8);
  for (size_t m = 1; m < 8; m++) {
    EXPECT_EQ(taken.first[m], 8) << m;
    EXPECT_NEAR(taken.second[m], 8, 1) << m;
  }
}

TEST(Shares, EachNicGetsItsShareGiveOrTakeOne) {
  Random random;
  for (int round = 0; round < 300; round++) {
    Shares shares;
    const int members = 3 + static_cast<int>(random.number() % 6);
    Capacities capacities{};
    for (int m = 0; m < members; m++)
      capacities[static_cast<size_t>(m)] = static_cast<uint8_t>(1 + random.number() % 200);
    const double sum = std::accumulate(capacities.begin() + 1, capacities.end(), 0.0);
    for (const int groups : {1, 8, 14, 57}) {
      const Taken taken = take(shares, groups, capacities, members);
      for (size_t m = 1; m < capacities.size(); m++)
        EXPECT_NEAR(taken.first[m], groups * capacities[m] / sum, 1.5) << groups << " " << m;
      for (int i = 0; i < groups; i++) shares.give_back(static_cast<uint64_t>(i) + 1);
    }
  }
}

TEST(Shares, FourToTwoToOneToOne) {
  Shares shares;
  const Capacities capacities{200, 200, 100, 50, 50};
  const Taken taken = take(shares, 16, capacities, 5);
  EXPECT_EQ(taken.first, (Places{0, 8, 4, 2, 2}));
}

// The order names each member once, and one that does not exist comes last.
TEST(Shares, TheOrderIsWhole) {
  Shares shares;
  const Ranks ranks = shares.take(1, context(1), peer(1), {200, 10, 0, 90, 40});
  EXPECT_EQ(member_of(ranks, 0, 8), 3);
  std::vector<int> sorted(ranks.begin() + 1, ranks.end());
  std::ranges::sort(sorted);
  EXPECT_EQ(sorted, (std::vector{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_GT(ranks[2], ranks[4]);
}

// A group that ends makes room, and groups with other peers count where those with this one are
// alike.
TEST(Shares, GroupsThatEndCountNoMore) {
  Shares shares;
  const Capacities capacities{200, 200, 200};
  const auto first_of = [&](uint64_t serial, uint32_t with) {
    return member_of(shares.take(serial, context(1), peer(with), capacities), 0, 3);
  };
  const int one = first_of(1, 1), other = first_of(2, 1);
  EXPECT_NE(one, other);
  shares.give_back(1);
  shares.give_back(1);
  EXPECT_EQ(first_of(3, 1), one);
  EXPECT_NE(first_of(4, 2), first_of(5, 3)) << "in all, one of them has more by then";
}

TEST(Shares, WithoutCapacitiesTheOrderIsThatOfTheMembers) {
  Shares shares;
  EXPECT_EQ(shares.take(1, context(1), peer(1), {}), (Ranks{0, 0, 1, 2, 3, 4, 5, 6}));
}

}  // namespace
}  // namespace shift::control
