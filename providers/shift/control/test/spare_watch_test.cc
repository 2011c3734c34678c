// Tests what is said of groups that have no second path.
#include <gtest/gtest.h>

#include <string>

#include "control/test/two_hosts.h"

namespace shift::control {
namespace {

using std::chrono::seconds;

class SpareWatchTest : public TwoHosts {
 protected:
  SpareWatchTest() : TwoHosts(2) {}

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

}  // namespace
}  // namespace shift::control
