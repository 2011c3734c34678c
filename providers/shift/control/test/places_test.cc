// Tests two whole ends in virtual time: where each says that a fault is.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "control/test/two_hosts.h"
#include "util/test/event_sink.h"

namespace shift::control {
namespace {

using group::FakeNic;
using std::chrono::milliseconds;

class Places : public TwoHosts {
 protected:
  Places() {
    test::event_sink_set([this](const char* name, std::initializer_list<EventField> fields) {
      std::string text;
      for (const EventField& field : fields) {
        const std::string key = field.key;
        if (key == "place" || key == "peer") text += std::string(field.text) + " ";
        if (key == "ready") ready_ += field.number == 1;
      }
      if (std::string(name) == "incident") places_.insert(text);
    });
    fabric_.carries = [this](const FakeNic& from, const FakeNic& to) {
      if (dead_.contains(&from) || dead_.contains(&to)) return false;
      return !cut_.contains({&from, &to}) && !cut_.contains({&to, &from});
    };
    a_.coordinator.locator().begin();
    b_.coordinator.locator().begin();
    run(milliseconds(1500));
  }
  ~Places() override { test::event_sink_set(nullptr); }

  // The application writes until the fault is over for it.
  void meet() {
    write(leader());
    run(milliseconds(300));
    EXPECT_EQ(leader().group->life.control.state, fsm::State::kActive);
    EXPECT_NE(leader().group->life.path.member, group::kDefault);
  }
  std::string address(SimHost& host) {
    const uint32_t ip = *host.world.nic(0).gid.ipv4();
    const auto* byte = reinterpret_cast<const uint8_t*>(&ip);
    return std::to_string(byte[0]) + "." + std::to_string(byte[1]) + "." + std::to_string(byte[2]) +
           "." + std::to_string(byte[3]);
  }
  using Said = std::multiset<std::string>;

  std::set<const FakeNic*> dead_;
  std::set<std::pair<const FakeNic*, const FakeNic*>> cut_;
  Said places_;
  int ready_ = 0;
};

TEST_F(Places, TheWaysOfBothEndsAreReady) {
  EXPECT_EQ(ready_, 8);
  EXPECT_TRUE(places_.empty());
}

TEST_F(Places, ANicThatLosesAllIsLocalHereAndRemoteThere) {
  dead_.insert(&leader().world.nic(0));
  meet();
  EXPECT_EQ(places_, (Said{" local ", address(leader()) + " remote "}));
}

TEST_F(Places, TheOtherEndsNicIsSoToo) {
  dead_.insert(&follower().world.nic(0));
  meet();
  EXPECT_EQ(places_, (Said{" local ", address(follower()) + " remote "}));
}

TEST_F(Places, AWayThatIsCutIsThePathForBoth) {
  cut_.insert({&a_.world.nic(0), &b_.world.nic(0)});
  meet();
  EXPECT_EQ(places_, (Said{address(a_) + " path ", address(b_) + " path "}));
}

TEST_F(Places, APortThatIsDownIsToldByItsEnd) {
  a_.port(0, false);
  run(milliseconds(300));
  EXPECT_EQ(places_, (Said{" local ", address(a_) + " remote "}));
}

TEST_F(Places, AfterTheWayBackAFurtherFaultIsANewIncident) {
  dead_.insert(&leader().world.nic(0));
  meet();
  dead_.clear();
  run(milliseconds(15000));
  ASSERT_EQ(leader().group->life.path.member, group::kDefault);
  places_.clear();
  dead_.insert(&leader().world.nic(0));
  meet();
  EXPECT_EQ(places_, (Said{" local ", address(leader()) + " remote "}));
}

}  // namespace
}  // namespace shift::control
