// C11: a peer can lead this end's QPs only to NICs whose addresses it has been seen at.
#include "control/test/two_hosts.h"

namespace shift::control {
namespace {

using std::chrono::milliseconds;

class ForeignGid : public TwoHosts {
 protected:
  ForeignGid() {
    network_.is_reached = [this](uint32_t ip_be) {
      const auto is_default = [ip_be](SimHost& host) {
        return host.group->life.ends.local.gid.ipv4() == ip_be;
      };
      return is_default(a_) || is_default(b_) || is_open_;
    };
  }
  bool is_open_ = false;
};

// There is no path to go on over, and no QP is connected to anything else.
TEST_F(ForeignGid, NoPathLeadsToAnAddressThatWasNotSeen) {
  run(milliseconds(200));
  traffic(5);
  expect_all_done();
  leader().port(group::kDefault, false);
  run(milliseconds(200));
  EXPECT_EQ(a_.group->life.control.state, fsm::State::kSeeking);
  EXPECT_EQ(b_.group->life.control.state, fsm::State::kSeeking);
}

// As on a network that carries no TCP: the hosts have met elsewhere, and a store says whose NICs
// they are.
TEST_F(ForeignGid, APathLeadsToAnAddressThatTheStoreNames) {
  for (SimHost* host : {&a_, &b_})
    for (const wire::Gid& gid : host->coordinator.nics().addresses_of(*host->group))
      network_.stored.insert(gid);
  run(milliseconds(200));
  leader().port(group::kDefault, false);
  run(milliseconds(50));
  traffic(5);
  expect_all_done();
  EXPECT_NE(a_.group->life.path.member, group::kDefault);
}

TEST_F(ForeignGid, TheNextPathIsThereAsSoonAsTheAddressIsSeen) {
  run(milliseconds(20));
  leader().port(group::kDefault, false);
  run(milliseconds(20));
  is_open_ = true;
  network_.restore();  // a connection joins
  run(milliseconds(20));
  traffic(5);
  expect_all_done();
  for (const SimHost* host : {&a_, &b_}) {
    EXPECT_EQ(host->group->life.control.state, fsm::State::kActive);
    EXPECT_NE(host->group->life.path.member, group::kDefault);
  }
}

}  // namespace
}  // namespace shift::control
