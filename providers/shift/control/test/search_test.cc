// Tests two whole ends of eight NICs in virtual time: how long a group seeks a path among many that
// swallow what is sent.
#include <gtest/gtest.h>

#include <set>

#include "control/test/two_hosts.h"

namespace shift::control {
namespace {

using group::FakeNic;
using std::chrono::milliseconds;

class Search : public TwoHosts {
 protected:
  Search() : TwoHosts(1, group::kMembersMax) {
    fabric_.carries = [this](const FakeNic& from, const FakeNic& to) {
      return !silent_.contains(&from) && !silent_.contains(&to);
    };
  }
  // The NIC that carries the traffic falls silent. Returns how long the traffic stands still.
  milliseconds fail(SimHost& host) {
    silent_.insert(&host.world.nic(host.group->life.path.member));
    return until_written();
  }
  static constexpr milliseconds kEver{10'000};
  milliseconds until_written() {
    const auto begun = time_.now();
    write(leader());
    const uint64_t wanted = leader().sent;
    const auto passed = [&] {
      return std::chrono::duration_cast<milliseconds>(time_.now() - begun);
    };
    while (leader().sends_done.size() < wanted && leader().errors.empty() && passed() < kEver)
      run(milliseconds(1));
    return passed();
  }

  std::set<const FakeNic*> silent_;
};

// The NICs of both ends, one after the other, until one is left at each. None says that it is
// broken, and each takes its time to give a request up.
TEST_F(Search, TheLastNicOfEachEndIsFound) {
  run(milliseconds(100));
  fabric_.patience = milliseconds(260);
  for (int left = group::kMembersMax; left > 1; left--) {
    for (SimHost* host : {&a_, &b_}) {
      EXPECT_LT(fail(*host).count(), 1200) << left << " NICs were left";
      ASSERT_TRUE(a_.errors.empty() && b_.errors.empty());
    }
  }
  EXPECT_EQ(silent_.size(), 2u * (group::kMembersMax - 1));
}

// Real NICs repeat a request for more than a second.
TEST_F(Search, ASilentPathIsGivenUpSoon) {
  run(milliseconds(100));
  (void)fail(a_);
  run(milliseconds(500));
  fabric_.patience = milliseconds(900);
  for (int m = 0; m < 6; m++) silent_.insert(&b_.world.nic(m));
  EXPECT_LT(fail(b_).count(), 2 * 900 + 600);
}

// No spare has become ready, and another attempt is under way.
TEST_F(Search, AnAttemptThatBeganInCalmIsGivenUpSoonAsWell) {
  fabric_.patience = milliseconds(900);
  for (int m = 1; m < 7; m++) silent_.insert(&b_.world.nic(m));
  run(milliseconds(50));
  a_.port(group::kDefault, false);
  EXPECT_LT(until_written().count(), 900);
}

// The leader makes no path before the peer has told of its NICs, so the group has no spare when its
// path breaks.
class SearchWithoutSpare : public Search {
 protected:
  SearchWithoutSpare() {
    network_.copies = [](const wire::Message& message) {
      return std::holds_alternative<wire::Nics>(message) ? 0 : 1;
    };
    run(milliseconds(5));
    fabric_.patience = milliseconds(10);
    silent_.insert(&b_.world.nic(group::kDefault));
    write(leader());
    run(milliseconds(20));
    EXPECT_EQ(leader().group->life.control.state, fsm::State::kSeeking);
    fabric_.patience = milliseconds(900);
  }
};

TEST_F(SearchWithoutSpare, ThePathThatBrokeIsNotTheFirstToBeTried) {
  EXPECT_LT(until_written().count(), 100);
}

// NICs of the leader take long over commands, and none of them is late yet. The group has no spare.
class SlowNics : public Search {
 protected:
  static constexpr int kSlow = group::kMembersMax - 2;  // all but the broken one and the last one
  SlowNics() {
    others(false);
    run(milliseconds(100));
  }
  milliseconds fail() {
    others(true);
    leader().port(group::kDefault, false);
    return until_written();
  }
  void slow_down(int member) {
    leader().world.context.members[member].nic = member;
    commands().slow.insert(member);
  }
  // Those of all hosts of this process.
  group::FakeCommands& commands() { return b_.commands; }
  void others(bool up) {
    for (SimHost* host : {&a_, &b_})
      for (int m = 1; m < group::kMembersMax; m++) host->port(m, up);
  }
};

TEST_F(SlowNics, AreNotWaitedFor) {
  for (int m = 1; m <= kSlow; m++) slow_down(m);
  EXPECT_LT(fail().count(), 100);
  EXPECT_EQ(leader().group->life.path.member, kSlow + 1);
}

TEST_F(SlowNics, AreGivenUpAlsoWhenAnAttemptHasBegun) {
  network_.before = [this](const net::Delegate&, const wire::Message& message) {
    const auto* accept = std::get_if<wire::Accept>(&message);
    if (accept != nullptr && commands().slow.size() < kSlow) slow_down(accept->path.leader);
  };
  EXPECT_LT(fail().count(), 100 * kSlow);
  EXPECT_EQ(commands().slow.size(), static_cast<size_t>(kSlow));
  network_.before = nullptr;
}

// Each of them registers memory, perhaps.
TEST_F(SlowNics, AreWaitedForWhereThereIsNoOther) {
  for (int m = 1; m <= kSlow + 1; m++) slow_down(m);
  others(true);
  leader().port(group::kDefault, false);
  write(leader());
  run(milliseconds(1000));
  for (int m = 1; m <= kSlow + 1; m++) commands().answer(m);
  run(milliseconds(1));
  EXPECT_EQ(leader().sends_done.size(), 1u);
}

// A busy host takes its time for everything.
TEST_F(Search, PathsThatAreSlowToBeMadeAreNotGivenUpOneAfterTheOther) {
  for (SimHost* host : {&a_, &b_})
    for (int m = 1; m < group::kMembersMax; m++) host->port(m, false);
  run(milliseconds(100));
  network_.delay = [] { return milliseconds(80); };
  for (SimHost* host : {&a_, &b_}) {
    for (int m = 1; m < group::kMembersMax; m++) host->port(m, true);
    host->port(group::kDefault, false);
  }
  EXPECT_LT(until_written().count(), 1200);
}

// The peer answers nothing on two NICs, perhaps because it does not know that they are this end's.
TEST_F(Search, PathsThatThePeerDoesNotAnswerForDoNotTakeTurns) {
  std::set<uint8_t> lost;
  network_.copies = [&lost](const wire::Message& message) {
    const auto* offer = std::get_if<wire::Offer>(&message);
    if (offer != nullptr && lost.size() < 2) lost.insert(offer->path.leader);
    return offer != nullptr && lost.contains(offer->path.leader) ? 0 : 1;
  };
  run(milliseconds(1));
  a_.port(group::kDefault, false);
  EXPECT_LT(until_written().count(), 1200);
}

}  // namespace
}  // namespace shift::control
