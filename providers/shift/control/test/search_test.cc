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
  milliseconds until_written() {
    const auto begun = time_.now();
    write(leader());
    const uint64_t wanted = leader().sent;
    while (leader().sends_done.size() < wanted && leader().errors.empty()) run(milliseconds(1));
    return std::chrono::duration_cast<milliseconds>(time_.now() - begun);
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

}  // namespace
}  // namespace shift::control
