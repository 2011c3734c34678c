// Tests two coordinators in virtual time: queue pairs that share a path tell each other that it is
// broken.
#include <gtest/gtest.h>

#include <random>

#include "control/test/two_hosts.h"

namespace shift::control {
namespace {

using fsm::State;
using group::kDefault;
using std::chrono::microseconds;
using std::chrono::milliseconds;

class Neighbours : public Rounds {
 protected:
  static constexpr int kPairs = 8;
  Neighbours() : Rounds(kPairs) {}

  // The application writes over one of its QPs.
  void write_on(SimHost& host, size_t pair) {
    ibv_sge sge{0x5000, 8, group::kLkey};
    ibv_send_wr wr{}, *bad;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {0x7000, group::kRkey};
    ASSERT_EQ(ops::post_send(host.groups[pair]->handle(), &wr, &bad), 0);
  }
  void expect_all_moved_once() {
    for (SimHost* host : {&a_, &b_}) {
      for (group::Group* group : host->groups) {
        EXPECT_EQ(group->life.control.state, State::kActive)
            << fsm::to_string(group->life.control.state);
        EXPECT_EQ(group->life.control.epoch, 1u);
        EXPECT_NE(group->life.path.member, kDefault);
      }
    }
  }
};

TEST_F(Neighbours, OneThatNoticesASilentFaultTellsAllOthers) {
  follower().port(kDefault, false, false);
  write_on(leader(), 3);
  run(milliseconds(130));
  expect_all_moved_once();
}

// The peer's word that a QP leaves the path, and the neighbour's word that the path is broken, may
// come in any order. Messages come in batches here, and the loops are busy with them.
class LateWords : public Neighbours, public ::testing::WithParamInterface<unsigned> {};

TEST_P(LateWords, SayNothingOfTheNextPath) {
  std::mt19937 dice(GetParam());
  const auto batch = microseconds(100 + dice() % 2000);
  network_.delay = [this, batch] { return batch - time_.now().time_since_epoch() % batch; };
  a_.loop.lateness = microseconds(dice() % 1000);
  b_.loop.lateness = microseconds(dice() % 1000);
  follower().port(kDefault, false, false);
  for (size_t pair = 0; pair < kPairs; pair++) {
    write_on(dice() % 2 == 0 ? a_ : b_, pair);
    run(microseconds(dice() % 1000));
  }
  run(milliseconds(200));
  expect_all_moved_once();
}

INSTANTIATE_TEST_SUITE_P(Seeds, LateWords, ::testing::Range(1u, 61u));

}  // namespace
}  // namespace shift::control
