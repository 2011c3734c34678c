// A group that fails: its application gets the errors when no NIC writes to its memory any more.
#include "control/failing.h"

#include <gtest/gtest.h>

#include "control/test/lone_session.h"

namespace shift::control {
namespace {

using group::kBackup;
using group::kDefault;
using std::chrono::milliseconds;

class FailingTest : public SessionTest {
 protected:
  FailingTest() { group::post_send(session_.group, 1, IBV_WR_SEND); }
  size_t errors() { return group::poll_all(session_.group.send_cq).size(); }
  bool is_stopped(int member) { return group::World::fake(&session_.group, member).in_error(); }

  Session& session_ = make();
};

// C3
TEST_F(FailingTest, TheErrorsComeAfterTheQpsAreStopped) {
  session_.failing.begin();
  session_.failing.begin();  // once is enough
  EXPECT_EQ(errors(), 0u);
  EXPECT_FALSE(is_stopped(kDefault));
  run_for(milliseconds(1));
  EXPECT_TRUE(is_stopped(kDefault) && is_stopped(kBackup));
  EXPECT_EQ(errors(), 1u);
}

// C6
TEST_F(FailingTest, ANicThatIsLateIsNotWaitedFor) {
  commands_.late.insert(0);
  session_.failing.begin();
  EXPECT_EQ(errors(), 1u);
}

TEST_F(FailingTest, ANicThatBecomesLateIsNotWaitedForAnyMore) {
  session_.failing.begin();
  session_.failing.nic_late(kBackup);
  EXPECT_EQ(errors(), 0u) << "the other one may answer";
  session_.failing.nic_late(kDefault);
  EXPECT_EQ(errors(), 1u);
  run_for(milliseconds(1));
  EXPECT_EQ(errors(), 0u) << "the answers that come all the same change nothing";
}

// The system may refuse another thread.
TEST_F(FailingTest, WithoutThreadsTheQpsAreStoppedAllTheSame) {
  commands_.has_threads = false;
  session_.failing.begin();
  run_for(milliseconds(1));
  EXPECT_TRUE(is_stopped(kDefault) && is_stopped(kBackup));
  EXPECT_EQ(errors(), 1u);
}

// The peer is not found yet, and a fault was held back already.
TEST_F(FailingTest, AnErrorOfTheApplicationsGivesAllErrors) {
  for (const auto state : {fsm::State::kUnbound, fsm::State::kActive}) {
    SCOPED_TRACE(fsm::to_string(state));
    Session& session = make();
    session.control.state = state;
    group::post_send(session.group, 1, IBV_WR_SEND);
    session.group.life.errors.members[kDefault].fault_reported = true;
    session.verdict.application(kDefault, "a request was refused");
    run_for(milliseconds(1));
    EXPECT_EQ(errors(), 1u);
  }
}

}  // namespace
}  // namespace shift::control
