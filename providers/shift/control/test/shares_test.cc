// Groups spread over the NICs that back theirs, by what these can carry.
#include "control/shares.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "util/test/random.h"

namespace shift::control {
namespace {

using Places = std::array<int, group::kMembersMax>;

// The NICs of these tests are known to this process alone, unless a test says otherwise.
constexpr NicNumbers kUnnumbered{}, kKnown{10, 11, 12, 13, 14, 15, 16, 17};

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
Taken take(Shares& shares, int groups, const Capacities& capacities, int members,
           uint64_t first_serial = 1) {
  Taken taken;
  for (int i = 0; i < groups; i++) {
    const Ranks ranks = shares.take(first_serial + static_cast<uint64_t>(i), context(1), kKnown,
                                    peer(1), capacities);
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
  const Ranks ranks = shares.take(1, context(1), kUnnumbered, peer(1), {200, 10, 0, 90, 40});
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
    return member_of(shares.take(serial, context(1), kUnnumbered, peer(with), capacities), 0, 3);
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
  EXPECT_EQ(shares.take(1, context(1), kUnnumbered, peer(1), {}), (Ranks{0, 0, 1, 2, 3, 4, 5, 6}));
}

// Each peer gets no NIC more often than its share, and in all the NICs carry their shares.
TEST(Shares, NicsOfUnlikeCapacitiesAreSharedOverPeers) {
  Shares shares;
  const Capacities capacities{200, 200, 100, 100};
  Places first{};
  for (uint32_t i = 0; i < 40; i++) {
    const Ranks ranks = shares.take(i + 1, context(1), kUnnumbered, peer(i), capacities);
    first[static_cast<size_t>(member_of(ranks, 0, 4))]++;
  }
  EXPECT_EQ(first, (Places{0, 20, 10, 10}));
  Places of_one{};
  for (uint32_t i = 0; i < 8; i++) {
    const Ranks ranks = shares.take(100 + i, context(1), kUnnumbered, peer(99), capacities);
    of_one[static_cast<size_t>(member_of(ranks, 0, 4))]++;
  }
  EXPECT_EQ(of_one, (Places{0, 4, 2, 2}));
}

// The groups of one follower come from many leaders, of which each sees only its own. When all have
// connected to their peers in the same order, no NIC of a follower gets far more than its share.
TEST(Shares, LeadersOfManyHostsDoNotChooseAlikeForOneFollower) {
  constexpr int kHosts = 64;
  std::array<Places, kHosts> at{};
  Capacities equal;
  equal.fill(200);
  for (uint32_t leader = 0; leader < kHosts; leader++) {
    Shares shares;
    NicNumbers nics;
    for (uint64_t m = 0; m < nics.size(); m++) nics[m] = 0x1234'5678 * (leader + 1) + m;
    for (uint32_t i = 1; leader + i < kHosts; i++) {
      const uint32_t follower = kHosts - i;
      const Ranks ranks = shares.take(i, context(1), nics, peer(follower), equal);
      for (const uint32_t end : {leader, follower})
        at[end][static_cast<size_t>(member_of(ranks, 0, 8))]++;
    }
  }
  for (const Places& places : at) EXPECT_LE(*std::ranges::max_element(places), 2 * kHosts / 7);
}

// Each object stands for a process of one user, all with one table.
class HostShares : public ::testing::Test {
 protected:
  HostShares() {
    char name[] = "/tmp/shift-shares-XXXXXX";
    base_ = ::mkdtemp(name);
    equal_.fill(200);
  }
  ~HostShares() override { std::filesystem::remove_all(base_); }
  std::unique_ptr<Shares> process(int tries = state::SharesTable::kTries) const {
    auto shares = std::make_unique<Shares>();
    shares->table_set(std::make_unique<state::SharesTable>(base_, ::geteuid(), tries));
    return shares;
  }

  std::string base_;
  Capacities equal_;
};

TEST_F(HostShares, ProcessesWithOneGroupEachSpread) {
  std::vector<std::unique_ptr<Shares>> processes;
  Places first{};
  std::array<Places, group::kMembersMax> second{};
  for (int i = 0; i < 84; i++) {
    const Taken taken = take(*processes.emplace_back(process()), 1, equal_, 8);
    for (size_t m = 1; m < 8; m++) {
      first[m] += taken.first[m];
      for (size_t n = 1; n < 8; n++) second[m][n] += taken.first[m] * taken.second[n];
    }
  }
  EXPECT_EQ(first, (Places{0, 12, 12, 12, 12, 12, 12, 12}));
  for (size_t m = 1; m < 8; m++) {
    for (size_t n = 1; n < 8; n++) {
      EXPECT_EQ(second[m][n], m == n ? 0 : 2) << m << " " << n;
    }
  }
}

TEST_F(HostShares, AProcessThatHasEndedCountsNoMore) {
  const auto first_of_one = [&] { return take(*process(), 1, equal_, 8).first; };
  const Places alone = first_of_one();
  auto one = process();
  EXPECT_EQ(take(*one, 1, equal_, 8).first, alone) << "the process before has ended";
  EXPECT_NE(first_of_one(), alone);
  one->give_back(1);
  EXPECT_EQ(first_of_one(), alone);
  EXPECT_EQ(take(*one, 1, equal_, 8).first, alone);
  one.reset();
  EXPECT_EQ(first_of_one(), alone);
}

// Another process may have other NICs in its group, or another default.
TEST_F(HostShares, OnlyGroupsOfTheSameNicCount) {
  auto one = process(), other = process();
  const Capacities few{200, 200, 200, 200};
  const Ranks alone = Shares().take(1, context(1), kKnown, peer(1), few);
  Capacities favourite{};
  favourite[static_cast<size_t>(member_of(alone, 0, 4))] = 200;
  (void)one->take(1, context(1), {20, 11, 12, 13}, peer(1), favourite);
  EXPECT_EQ(other->take(1, context(1), kKnown, peer(1), few), alone);
  other->give_back(1);
  (void)one->take(2, context(1), kKnown, peer(1), favourite);
  EXPECT_NE(other->take(1, context(1), kKnown, peer(1), few), alone);
}

// Processes that choose at the same moment: in turn, however many there are.
TEST_F(HostShares, ProcessesThatChooseAtOnceSpread) {
  constexpr int kProcesses = 28, kTries = 1 << 20;
  int go[2], chosen[2], done[2];
  ASSERT_EQ(::pipe(go) | ::pipe(chosen) | ::pipe(done), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; i++) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    ::close(go[1]);
    ::close(done[1]);
    char byte;
    const auto own = process(kTries);
    (void)!::read(go[0], &byte, 1);  // until the parent closes it
    const Ranks ranks = own->take(1, context(1), kKnown, peer(1), equal_);
    byte = static_cast<char>(member_of(ranks, 0, 8));
    (void)!::write(chosen[1], &byte, 1);
    (void)!::read(done[0], &byte, 1);  // a process that ends counts no more
    ::_exit(0);
  }
  ::close(go[0]);
  ::close(go[1]);
  ::close(chosen[1]);
  ::close(done[0]);
  Places first{};
  for (int i = 0; i < kProcesses; i++) {
    char byte = 0;
    ASSERT_EQ(::read(chosen[0], &byte, 1), 1);
    first[static_cast<size_t>(byte)]++;
  }
  ::close(done[1]);
  ::close(chosen[0]);
  for (const pid_t child : children) ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(first, (Places{0, 4, 4, 4, 4, 4, 4, 4}));
}

}  // namespace
}  // namespace shift::control
