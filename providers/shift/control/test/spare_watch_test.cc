// Tests what is said of groups that have no second path.
#include <gtest/gtest.h>

#include <string>

#include "control/test/two_hosts.h"

namespace shift::control {
namespace {

using std::chrono::seconds;

class SpareWatchTest : public TwoHosts {
 protected:
  explicit SpareWatchTest(int nics = 3, int nics_of_b = 3) : TwoHosts(2, nics, nics_of_b) {}

  std::string said_in(seconds time) {
    ::testing::internal::CaptureStderr();
    run(time);
    return ::testing::internal::GetCapturedStderr();
  }
  static int count(const std::string& text, const std::string& part) {
    int found = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at++) found++;
    return found;
  }
};

TEST_F(SpareWatchTest, OfAGroupWithASecondPathNothingIsSaid) {
  EXPECT_EQ(said_in(seconds(11)), "");
}

// Each host has two groups and says one line, which names both NICs that could carry a second path.
TEST_F(SpareWatchTest, EachEndSaysOnceWhatItKnows) {
  for (SimHost* host : {&a_, &b_})
    for (const int member : {1, 2}) host->world.nic(member).refuses = true;
  EXPECT_EQ(said_in(seconds(9)), "");
  const std::string text = said_in(seconds(2));
  EXPECT_EQ(count(text, "no second path after 10 s"), 2) << text;
  EXPECT_EQ(count(text, ": the peer cannot use it"), 4) << text;
  EXPECT_EQ(count(text, ": the peer leads, and has not made it ready"), 4) << text;
  EXPECT_EQ(said_in(seconds(20)), "");
}

TEST_F(SpareWatchTest, APortThatIsDownIsTheReason) {
  for (const int member : {1, 2}) a_.port(member, false);
  const std::string text = said_in(seconds(11));
  EXPECT_EQ(count(text, ": its port is down"), 4) << text;
  EXPECT_EQ(count(text, ": the peer's port is down"), 4) << text;
}

TEST_F(SpareWatchTest, APathThatSwallowsIsTold) {
  fabric_.carries = [this](const group::FakeNic& from, const group::FakeNic& to) {
    return &from == &a_.world.nic(0) || &from == &b_.world.nic(0);
  };
  const std::string text = said_in(seconds(11));
  EXPECT_EQ(count(text, ": nothing passes"), 4) << text;
}

// A host with two NICs and one with five, and either may be the one that leads.
class Uneven : public SpareWatchTest, public ::testing::WithParamInterface<std::pair<int, int>> {
 protected:
  Uneven() : SpareWatchTest(GetParam().first, GetParam().second) {}
};
INSTANTIATE_TEST_SUITE_P(Hosts, Uneven, ::testing::Values(std::pair(2, 5), std::pair(5, 2)));

TEST_P(Uneven, EachEndNamesItsOwnNicsFirst) {
  for (SimHost* host : {&a_, &b_}) host->world.nic(1).refuses = true;
  const std::string text = said_in(seconds(11));
  EXPECT_EQ(count(text, "no second path after 10 s"), 2) << text;
  for (int few = 1, many = 1; many < 5; many++) {
    const auto way = [](int own, int peer) {
      return "fake_" + std::to_string(own) + " to the peer's NIC " + std::to_string(peer) + ":";
    };
    EXPECT_EQ(count(text, way(few, many)), many == few ? 2 : 1) << text;
    EXPECT_EQ(count(text, way(many, few)), many == few ? 2 : 1) << text;
  }
}

TEST_P(Uneven, ThePathMovesAndComesBack) {
  run(std::chrono::milliseconds(100));
  traffic(20);
  for (SimHost* host : {&a_, &b_}) {
    host->port(group::kDefault, false);
    run(std::chrono::milliseconds(50));
    traffic(20);
    EXPECT_NE(a_.group->life.path.member, group::kDefault);
    EXPECT_NE(b_.group->life.path.member, group::kDefault);
    host->port(group::kDefault, true);
    run(seconds(3));
    traffic(20);
  }
  expect_all_done();
}

}  // namespace
}  // namespace shift::control
