// What a verbs program sees of its NIC's faults: events, port state, a dead device, fork.
#include <gtest/gtest.h>

#include "host/test/emulated_test.h"

namespace cxemu {
namespace {

using EventsTest = EmulatedTest;

TEST_F(EventsTest, LinkDownAndUp) {
  Process probe(on("a", {VERBS_PROBE, "mlx5_0"}));
  ASSERT_FALSE(probe.line_wait("ready").empty()) << probe.output();
  fault("a/mlx5_0", "link-down");
  EXPECT_EQ(probe.line_wait("event:"), "event: port error");
  probe.send_line("port");
  EXPECT_EQ(probe.line_wait("port:"), "port: down");
  fault("a/mlx5_0", "link-up");
  EXPECT_EQ(probe.line_wait("event:"), "event: port active");
  probe.send_line("port");
  EXPECT_EQ(probe.line_wait("port:"), "port: active");
  probe.send_line("close");
  EXPECT_EQ(probe.line_wait("closed:"), "closed: 0 0 0 0") << probe.output();
  EXPECT_EQ(probe.end_wait(), 0);
}

// Otherwise a program that polls extended queues has to wait for the engine's thread, which its own
// polling keeps from running.
TEST_F(EventsTest, PollingExtendedQueuesDrivesTheNic) {
  Process probe(on("a", {VERBS_PROBE, "mlx5_0"}));
  ASSERT_FALSE(probe.line_wait("ready").empty()) << probe.output();
  probe.send_line("hooks");
  EXPECT_EQ(probe.line_wait("start_poll:"), "start_poll: ours");
  EXPECT_EQ(probe.line_wait("start_poll:"), "start_poll: ours");
  probe.send_line("close");
  EXPECT_EQ(probe.end_wait(), 0);
}

TEST_F(EventsTest, DevicesCanBeImportedThroughADuplicate) {
  Process probe(on("a", {VERBS_PROBE, "mlx5_1"}));
  ASSERT_FALSE(probe.line_wait("ready").empty()) << probe.output();
  probe.send_line("import");
  EXPECT_EQ(probe.line_wait("import:"), "import: pd ok, cq ok, closed 0, the first one ok");
  probe.send_line("close");
  EXPECT_EQ(probe.line_wait("closed:"), "closed: 0 0 0 0") << probe.output();
  EXPECT_EQ(probe.end_wait(), 0);
}

TEST_F(EventsTest, AFaultOfOneNicIsNoneOfItsNeighbour) {
  Process probe(on("a", {VERBS_PROBE, "mlx5_1"}));
  ASSERT_FALSE(probe.line_wait("ready").empty()) << probe.output();
  fault("a/mlx5_0", "link-down");
  fault("b/mlx5_1", "link-down");
  fault("a/mlx5_1", "link-down");  // no other event may come first
  EXPECT_EQ(probe.line_wait("event:"), "event: port error");
  fault("a/mlx5_1", "heal");
  EXPECT_EQ(probe.line_wait("event:"), "event: port active");
  probe.send_line("close");
  EXPECT_EQ(probe.end_wait(), 0);
  EXPECT_EQ(probe.output().find("port error", probe.output().find("port error") + 1),
            std::string::npos)
      << probe.output();
}

TEST_F(EventsTest, AKilledDeviceStaysDeadForThoseWhoHadItOpen) {
  Process probe(on("a", {VERBS_PROBE, "mlx5_0"}));
  ASSERT_FALSE(probe.line_wait("ready").empty()) << probe.output();
  fault("a/mlx5_0", "kill");
  EXPECT_EQ(probe.line_wait("event:"), "event: local catastrophic error");
  probe.send_line("pd");
  EXPECT_EQ(probe.line_wait("pd:"), "pd: Input/output error");
  Process late(on("a", {VERBS_PROBE, "mlx5_0"}));
  EXPECT_FALSE(late.line_wait("open failed").empty()) << late.output();
  fault("a/mlx5_0", "revive");
  probe.send_line("pd");
  EXPECT_EQ(probe.line_wait("pd:"), "pd: Input/output error");
  Process next(on("a", {VERBS_PROBE, "mlx5_0"}));
  ASSERT_FALSE(next.line_wait("ready").empty()) << next.output();
  next.send_line("pd");
  EXPECT_EQ(next.line_wait("pd:"), "pd: ok");
  probe.send_line("close");
  EXPECT_EQ(probe.line_wait("closed:"), "closed: 0 0 0 0");
}

TEST_F(EventsTest, AForkedChildHasItsOwnDevices) {
  Process probe(on("a", {VERBS_PROBE, "mlx5_0"}));
  ASSERT_FALSE(probe.line_wait("ready").empty()) << probe.output();
  probe.send_line("fork");
  EXPECT_EQ(probe.line_wait("child:"),
            "child: inherited Input/output error, device memory ok, own ok");
  EXPECT_EQ(probe.line_wait("parent:"), "parent: ok");
  probe.send_line("close");
  EXPECT_EQ(probe.line_wait("closed:"), "closed: 0 0 0 0");
}

}  // namespace
}  // namespace cxemu
