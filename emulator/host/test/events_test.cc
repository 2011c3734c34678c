// What a verbs program sees of its NIC's faults: events, port state, a dead device, fork.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <memory>

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

// Two programs that are connected; whether their commands hang is known from the counter.
class CommandsOfTheNicTest : public EmulatedTest {
 protected:
  void SetUp() override {
    EmulatedTest::SetUp();
    for (const char* host : {"a", "b"})
      probes_.push_back(std::make_unique<Process>(on(host, {RC_PROBE})));
    const std::string first = a().line_wait("address"), second = b().line_wait("address");
    a().send_line(second);
    b().send_line(first);
    for (const auto& probe : probes_)
      ASSERT_FALSE(probe->line_wait("connected").empty()) << probe->output();
  }
  void TearDown() override {
    probes_.clear();
    EmulatedTest::TearDown();
  }
  Process& a() { return *probes_[0]; }
  Process& b() { return *probes_[1]; }
  // Waits until so many commands of the host's first NIC have had to wait.
  bool held(int host, uint64_t count) {
    return wait_until([&] { return fabric_.nic(host, 0)->held_commands >= count; });
  }
  static bool says(const Process& probe, const char* text) {
    return probe.output().find(text) != std::string::npos;
  }

 private:
  std::vector<std::unique_ptr<Process>> probes_;
};

TEST_F(CommandsOfTheNicTest, AreSlowWhileTrafficGoesOn) {
  fault("a/mlx5_0", "slow-commands=50");
  a().send_line("create");
  const std::string line = a().line_wait("created:");
  long took_us = 0;
  EXPECT_EQ(sscanf(line.c_str(), "created: ok, %ld us", &took_us), 1) << a().output();
  EXPECT_GE(took_us, 50'000);
  const uint64_t before = fabric_.nic(0, 0)->held_commands;
  EXPECT_GT(before, 0u);
  // Now it cannot end by itself as long as the test waits for anything.
  fault("a/mlx5_0", "slow-commands=60000");
  a().send_line("create");
  EXPECT_TRUE(held(0, before + 1));
  a().send_line("write");
  EXPECT_EQ(a().line_wait(""), "written");
  fault("a/mlx5_0", "slow-commands=0");
  EXPECT_TRUE(a().line_wait("created:").starts_with("created: ok")) << a().output();
}

TEST_F(CommandsOfTheNicTest, HangWhileTrafficAndOtherNicsGoOn) {
  for (const char* nic : {"a/mlx5_0", "b/mlx5_0"}) fault(nic, "hang-commands");
  for (Process* probe : {&a(), &b()}) probe->send_line("modify");
  EXPECT_TRUE(held(0, 1) && held(1, 1));
  for (Process* probe : {&a(), &b()}) {
    for (const char* order : {"write", "other", "write"}) probe->send_line(order);
    EXPECT_EQ(probe->line_wait(""), "written");
    EXPECT_EQ(probe->line_wait(""), "other: ok");
    EXPECT_EQ(probe->line_wait(""), "written");
  }
  for (const char* nic : {"a/mlx5_0", "b/mlx5_0"}) fault(nic, "heal");
  for (Process* probe : {&a(), &b()}) EXPECT_EQ(probe->line_wait(""), "modified: ok");
}

TEST_F(CommandsOfTheNicTest, HangInAllProcessesOfTheHostUntilTheNicIsKilled) {
  Process neighbour(on("a", {VERBS_PROBE, "mlx5_0"})), stranger(on("b", {VERBS_PROBE, "mlx5_0"}));
  ASSERT_FALSE(neighbour.line_wait("ready").empty()) << neighbour.output();
  ASSERT_FALSE(stranger.line_wait("ready").empty()) << stranger.output();
  fault("a/mlx5_0", "hang-commands");
  a().send_line("modify");
  EXPECT_TRUE(held(0, 1));
  neighbour.send_line("pd");
  EXPECT_TRUE(held(0, 2));
  Process late(on("a", {"ibv_devinfo", "-d", "mlx5_0"}));
  EXPECT_TRUE(held(0, 3)) << "opening the device hangs";
  stranger.send_line("pd");
  EXPECT_EQ(stranger.line_wait("pd:"), "pd: ok");
  fault("a/mlx5_0", "kill");
  EXPECT_EQ(a().line_wait("modified:"), "modified: Input/output error");
  EXPECT_EQ(neighbour.line_wait("pd:"), "pd: Input/output error");
  EXPECT_NE(late.end_wait(), 0) << late.output();
  neighbour.send_line("close");
  EXPECT_EQ(neighbour.line_wait("closed:"), "closed: 0 0 0 0") << neighbour.output();
}

TEST_F(CommandsOfTheNicTest, DoNotKeepAProcessFromEnding) {
  for (const char* nic : {"a/mlx5_0", "b/mlx5_0"}) fault(nic, "hang-commands");
  for (Process* probe : {&a(), &b()}) probe->send_line("modify");
  EXPECT_TRUE(held(0, 1) && held(1, 1));
  a().send_line("exit");
  EXPECT_EQ(a().end_wait(), 0);
  b().signal_send(SIGKILL);
  EXPECT_EQ(b().end_wait(), 128 + SIGKILL);
  for (Process* probe : {&a(), &b()}) EXPECT_FALSE(says(*probe, "modified")) << probe->output();
}

}  // namespace
}  // namespace cxemu
