// Fault words: parsing, what they change, how they are shown.
#include "fabric/fault.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "fabric/net.h"

namespace cxemu {
namespace {

class FaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string dir = ::testing::TempDir() + "cxemu-fault-XXXXXX";
    ASSERT_NE(mkdtemp(dir.data()), nullptr);
    dir_ = dir;
    std::string error;
    fabric_ = Fabric::open_or_create(dir + "/fabric", &error);
    ASSERT_TRUE(fabric_) << error;
    fabric_.host_ensure("a", 2);
    nic_ = fabric_.nic(0, 0);
  }
  void TearDown() override {
    net_release("/tmp", fabric_->net, dir_ + "/fabric");
    std::filesystem::remove_all(dir_);
  }
  void apply(const std::string& text) {
    FaultCommand command;
    std::string error;
    ASSERT_TRUE(fault_parse(text, &command, &error)) << error;
    const uint32_t before = nic_->generation;
    fault_apply(fabric_, nic_, command);
    EXPECT_EQ(nic_->generation, before + 1);
  }
  std::string dir_;
  Fabric fabric_;
  FabricNic* nic_ = nullptr;
};

TEST_F(FaultTest, SwitchesOnAndOff) {
  apply("link-down");
  apply("drop-acks");
  EXPECT_EQ(nic_->faults, kLinkDown | kDropAcks);
  EXPECT_EQ(fault_describe(*nic_), "link-down,drop-acks");
  apply("link-up");
  EXPECT_EQ(nic_->faults, kDropAcks);
  apply("drop-data");
  apply("loss=0.25");
  apply("delay=2.5");
  EXPECT_EQ(nic_->loss_ppm, 2500u);
  EXPECT_EQ(nic_->delay_us, 2500u);
  EXPECT_EQ(fault_describe(*nic_), "drop-data,drop-acks,loss=0.25,delay=2.5");
  apply("heal");
  EXPECT_EQ(fault_describe(*nic_), "ok");
  EXPECT_EQ(fabric_.nic(0, 1)->generation, 0u);  // the neighbour is not touched
}

TEST_F(FaultTest, KillsAreCountedAndSurviveRevive) {
  apply("kill");
  EXPECT_EQ(nic_->faults, kDead);
  EXPECT_EQ(nic_->kills, 1u);
  apply("revive");
  EXPECT_EQ(nic_->faults, 0u);
  EXPECT_EQ(nic_->kills, 1u);
  apply("kill");
  apply("heal");
  EXPECT_EQ(nic_->kills, 2u);
  EXPECT_EQ(nic_->faults, 0u);
}

TEST(FaultParseTest, Refusals) {
  for (const char* text : {"", "link", "loss", "loss=", "loss=x", "loss=-1", "loss=101", "loss=1e1",
                           "loss=1.2.3", "delay=", "delay=60001", "delay=1s", "kill "}) {
    FaultCommand command;
    std::string error;
    EXPECT_FALSE(fault_parse(text, &command, &error)) << text;
    EXPECT_FALSE(error.empty()) << text;
  }
}

}  // namespace
}  // namespace cxemu
