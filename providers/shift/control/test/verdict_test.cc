// Whose an error is that a NIC gives: it is the application's own if the NIC's port is up, and the
// path's if not, or if the NIC does not say.
#include <gtest/gtest.h>

#include "control/test/two_hosts.h"

namespace shift::control {
namespace {

using fsm::State;
using group::kDefault;
using std::chrono::milliseconds;

class VerdictTest : public TwoHosts {
 protected:
  VerdictTest() {
    for (int m = 0; m < 3; m++) a_.world.context.members[m].nic = kFirstNic + m;
    traffic(3);
  }
  // The NIC refuses the oldest request, as for a wrong key of the application's.
  void refuse(uint64_t requests = 1) {
    receive(b_, static_cast<int>(requests));
    for (uint64_t i = 0; i < requests; i++) send(a_);
    a_.qp(kDefault).break_with(IBV_WC_LOC_PROT_ERR);
  }
  static group::FakeCommands& commands() {
    return static_cast<group::FakeCommands&>(*group::command_threads);
  }

  static constexpr int kFirstNic = 1;  // of host a; host b's are others
};

// C1: as the NIC gave it, though the layer has asked in between.
TEST_F(VerdictTest, ANicWithAPortIsBelieved) {
  refuse(3);
  poll(a_);
  EXPECT_TRUE(a_.errors.empty()) << "the NIC has not answered yet";
  run(milliseconds(1));
  ASSERT_EQ(a_.errors.size(), 3u);
  EXPECT_EQ(a_.errors[0].status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(a_.errors[0].wr_id, 4u);
  EXPECT_EQ(a_.errors[1].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(a_.errors[2].wr_id, 6u);
  EXPECT_EQ(a_.group->life.control.state, State::kClosed);
  EXPECT_EQ(a_.group->life.control.epoch, 0u);
}

TEST_F(VerdictTest, ANicWithoutAPortIsNot) {
  a_.port(kDefault, false, false);
  refuse();
  run(milliseconds(500));
  expect_all_done();
  EXPECT_NE(a_.group->life.path.member, kDefault);
}

// The loop goes on while the NIC does not answer, and the program does not wait for ever (C6).
TEST_F(VerdictTest, ANicThatDoesNotAnswerIsNot) {
  commands().late.insert(kFirstNic);
  refuse();
  run(milliseconds(500));
  expect_all_done();
  EXPECT_NE(a_.group->life.path.member, kDefault);
  commands().answer(kFirstNic);
  run(milliseconds(500));
  EXPECT_TRUE(a_.errors.empty()) << "the answer comes too late to change anything";
}

// A path that is left before the answer is no trouble of the application's.
TEST_F(VerdictTest, AFaultThatIsKnownOtherwiseNeedsNoAnswer) {
  refuse();
  poll(a_);
  a_.port(kDefault, false);
  run(milliseconds(500));
  expect_all_done();
}

TEST_F(VerdictTest, TheApplicationsOwnErrorOnAnotherPathIsGivenThere) {
  a_.port(kDefault, false);
  run(milliseconds(500));
  const int member = a_.group->life.path.member;
  ASSERT_NE(member, kDefault);
  receive(b_);
  send(a_);
  a_.qp(member).break_with(IBV_WC_LOC_PROT_ERR);
  run(milliseconds(1));
  ASSERT_EQ(a_.errors.size(), 1u);
  EXPECT_EQ(a_.errors[0].status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(a_.group->life.control.state, State::kClosed);
}

// The application breaks its QP before the answer: it has all errors then.
TEST_F(VerdictTest, AnApplicationThatStopsItsQpIsGivenTheErrors) {
  refuse(2);
  poll(a_);
  EXPECT_TRUE(group::errors_pass(*a_.group, kDefault));
  poll(a_);
  EXPECT_EQ(a_.errors.size(), 2u);
  run(milliseconds(1));
  EXPECT_EQ(a_.errors.size(), 2u);
  EXPECT_EQ(a_.group->life.control.state, State::kClosed);
}

}  // namespace
}  // namespace shift::control
