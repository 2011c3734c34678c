#include "control/path_probe.h"

#include <gtest/gtest.h>

#include <optional>

#include "group/test/fake.h"
#include "net/test/virtual_loop.h"

namespace shift::control {
namespace {

using group::kBackup;
using group::kDefault;
using group::World;
using std::chrono::milliseconds;

class PathProbeTest : public ::testing::Test {
 protected:
  group::FakeQp& qp(int member) { return World::fake(group_, member); }
  PathProbe::Then keep() {
    return [this](bool passed) { told_ = passed; };
  }

  net::VirtualTime time_;
  net::VirtualLoop loop_{time_};
  World world_{1, 2};
  group::CompletionQueue* cq_ = world_.make_cq();
  group::Group* group_ = world_.make_group(cq_, cq_, {});
  PathProbe probe_{*group_, loop_};
  std::optional<bool> told_;
};

TEST_F(PathProbeTest, ComesThrough) {
  probe_.start(kBackup, PathProbe::kPatience, keep());
  ASSERT_EQ(qp(kBackup).sends.size(), 1u);
  EXPECT_EQ(qp(kBackup).sends[0].wr.opcode, IBV_WR_RDMA_WRITE);
  EXPECT_EQ(qp(kBackup).sends[0].wr.num_sge, 0);
  time_.run_for(milliseconds(2));
  EXPECT_FALSE(told_.has_value());
  qp(kBackup).complete_send();
  time_.run_for(milliseconds(2));
  EXPECT_EQ(told_, true);
}

TEST_F(PathProbeTest, BreaksThePath) {
  probe_.start(kBackup, PathProbe::kPatience, keep());
  qp(kBackup).break_with(IBV_WC_RETRY_EXC_ERR);
  time_.run_for(milliseconds(2));
  EXPECT_EQ(told_, false);
}

TEST_F(PathProbeTest, IsRefusedByTheNic) {
  qp(kBackup).post_error = ENOMEM;
  probe_.start(kBackup, PathProbe::kPatience, keep());
  EXPECT_EQ(told_, false);
}

TEST_F(PathProbeTest, IsSwallowed) {
  probe_.start(kBackup, PathProbe::kPatience, keep());
  time_.run_for(PathProbe::kPatience - milliseconds(5));
  EXPECT_FALSE(told_.has_value());
  time_.run_for(milliseconds(10));
  EXPECT_EQ(told_, false);
}

TEST_F(PathProbeTest, NobodyIsToldOfOneThatWasStopped) {
  probe_.start(kBackup, PathProbe::kPatience, keep());
  probe_.stop();
  qp(kBackup).complete_send();
  time_.run_for(2 * PathProbe::kPatience);
  EXPECT_FALSE(told_.has_value());
}

TEST_F(PathProbeTest, TheNextOneMayBeStartedWhenOneIsOver) {
  probe_.start(kBackup, PathProbe::kPatience,
               [this](bool) { probe_.start(kDefault, PathProbe::kPatience, keep()); });
  qp(kBackup).break_with(IBV_WC_RETRY_EXC_ERR);
  time_.run_for(milliseconds(5));
  qp(kDefault).complete_send();
  time_.run_for(milliseconds(5));
  EXPECT_EQ(told_, true);
}

}  // namespace
}  // namespace shift::control
