// Fault words: how they are parsed, what they change, and how they are shown.
#include "fabric/fault.h"

#include <gtest/gtest.h>

#include <memory>

#include "fabric/gid.h"

namespace cxemu {
namespace {

constexpr uint64_t kNow = 1'000'000'000;

// Two hosts, "a" with two NICs and "b" with one, in plain memory.
class FaultTest : public ::testing::Test {
 protected:
  FaultTest() : fabric_(std::make_unique<FabricFile>()) {
    const auto add = [&](uint32_t host, uint32_t index) {
      FabricNic& nic = fabric_->nic[host * kMaxNicsPerHost + index];
      nic.host = host;
      nic.index = index;
      nic.ipv4_be = __builtin_bswap32(0x7f000001u | (host + 1) << 8 | index);
      nic.used = 1;
    };
    fabric_->host_name[0][0] = 'a';
    fabric_->host_name[1][0] = 'b';
    fabric_->host_count = 2;
    add(0, 0);
    add(0, 1);
    add(1, 0);
    nic_ = &fabric_->nic[0];
    peer_ = &fabric_->nic[kMaxNicsPerHost];
  }
  FaultCommand parse(const std::string& text) {
    FaultCommand command;
    std::string error;
    EXPECT_TRUE(fault_parse(*fabric_, text, &command, &error)) << error;
    return command;
  }
  void apply(const std::string& text) {
    std::string error;
    const uint32_t before = nic_->generation;
    EXPECT_TRUE(fault_apply(*fabric_, *nic_, parse(text), kNow, &error)) << error;
    EXPECT_EQ(nic_->generation, before + 1);
  }
  std::string shown(uint64_t now_ns = kNow) { return fault_describe(*fabric_, *nic_, now_ns); }
  std::string refusal(const std::string& text) {
    FaultCommand command;
    std::string error;
    EXPECT_FALSE(fault_parse(*fabric_, text, &command, &error)) << text;
    EXPECT_EQ(error.find('\n'), std::string::npos);
    return error;
  }
  Event last_event() {
    Event event;
    EXPECT_TRUE(event_read(*fabric_, fabric_->events.written, &event));
    return event;
  }

  std::unique_ptr<FabricFile> fabric_;
  FabricNic* nic_ = nullptr;
  FabricNic* peer_ = nullptr;
};

TEST_F(FaultTest, SwitchesOnAndOff) {
  apply("link-down");
  apply("drop-acks");
  EXPECT_EQ(nic_->faults, kLinkDown | kDropAcks);
  EXPECT_EQ(shown(), "link-down,drop-acks");
  EXPECT_EQ(nic_->link_downed, 1u);
  apply("link-down");
  EXPECT_EQ(nic_->link_downed, 1u) << "it was down";
  apply("link-up");
  EXPECT_EQ(nic_->faults, kDropAcks);
  apply("drop-data");
  apply("loss=0.25");
  apply("delay=2.5");
  EXPECT_EQ(shown(), "drop-data,drop-acks,loss=0.25,delay=2.5");
  apply("heal");
  EXPECT_EQ(nic_->faults, 0u);
  EXPECT_EQ(shown(), "ok");
  EXPECT_EQ(fabric_->nic[1].generation, 0u);  // the other NIC is not touched
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

// The text that is shown can be set, and is then shown again unchanged.
TEST_F(FaultTest, RulesAreShownInTheWordsInWhichTheyAreSet) {
  for (const char* text :
       {"loss=1", "loss=0.5 peer=b/mlx5_0", "delay=3 dir=in", "reorder", "reorder=10 op=read",
        "duplicate op=send,write after=7", "corrupt=2.5 qpn=65537 count=3",
        "drop-data peer=b/mlx5_0 after=10 count=1", "drop-acks dir=out", "loss=100 op=ack count=2",
        "link-down@packet=100", "kill@wqe=5", "drop-acks@cqe=3 qpn=9",
        "gid-change=index@packet=4 peer=b/mlx5_0 dir=in", "heal@packet=9", "slow-commands=2.5",
        "hang-commands", "slow-commands=50@wqe=3", "hang-commands@cqe=2"}) {
    apply(text);
    EXPECT_EQ(shown(), text);
    EXPECT_EQ(last_event().text, text);
    apply("heal");
    EXPECT_EQ(nic_->faults, 0u);
    EXPECT_EQ(shown(), "ok");
  }
}

TEST_F(FaultTest, TheSameFaultOfTheSamePacketsReplacesAndZeroEnds) {
  apply("loss=1");
  apply("loss=2 peer=b/mlx5_0");
  apply("loss=3");
  EXPECT_EQ(shown(), "loss=3,loss=2 peer=b/mlx5_0");
  apply("loss=0");
  EXPECT_EQ(shown(), "loss=2 peer=b/mlx5_0");
  EXPECT_EQ(nic_->faults, kRules);
  apply("loss=0 peer=b/mlx5_0");
  EXPECT_EQ(nic_->faults, 0u);
  apply("delay=1");
  apply("delay=0");
  EXPECT_EQ(nic_->faults, 0u);
}

TEST_F(FaultTest, CommandsAreSlowOrHangOrNeither) {
  apply("slow-commands=50");
  EXPECT_EQ(nic_->command_delay_us, 50'000u);
  EXPECT_EQ(nic_->faults, 0u) << "packets keep their fast way";
  apply("hang-commands");
  EXPECT_EQ(nic_->command_delay_us, kCommandsHang);
  EXPECT_EQ(shown(), "hang-commands");
  apply("drop-acks");
  EXPECT_EQ(shown(), "drop-acks,hang-commands");
  apply("slow-commands=60000");
  EXPECT_EQ(shown(), "drop-acks,slow-commands=60000");
  apply("slow-commands=0");
  EXPECT_EQ(shown(), "drop-acks");
  apply("hang-commands");
  apply("slow-commands=0");
  EXPECT_EQ(nic_->command_delay_us, 0u);
  apply("hang-commands");
  fault_switch(*fabric_, *nic_, parse("slow-commands=7@packet=1").rule, kNow);
  EXPECT_EQ(nic_->command_delay_us, 7'000u);
  EXPECT_EQ(last_event().text, "slow-commands=7@packet=1");
  EXPECT_EQ(fabric_->nic[1].command_delay_us, 0u);
  EXPECT_NE(refusal("slow-commands=x").find("wants milliseconds, 0 to 60000"), std::string::npos);
  EXPECT_NE(refusal("hang-commands=1").find("takes no value"), std::string::npos);
}

TEST_F(FaultTest, SeveralFaultsWithTheirModifiers) {
  std::vector<FaultCommand> all;
  std::string error;
  ASSERT_TRUE(faults_parse(*fabric_, {"link-down", "loss=1", "dir=in", "after=5", "drop-acks"}, 7,
                           &all, &error))
      << error;
  ASSERT_EQ(all.size(), 3u);
  EXPECT_FALSE(all[0].selective);
  EXPECT_TRUE(all[1].selective);
  EXPECT_EQ(all[1].rule.directions, kDirectionIn);
  EXPECT_EQ(all[1].rule.after, 5u);
  EXPECT_EQ(all[1].rule.seed, 7u);
  EXPECT_EQ(all[1].text, "loss=1 dir=in after=5");
  EXPECT_FALSE(all[2].selective);
}

TEST_F(FaultTest, AFullTableIsSaid) {
  for (int i = 1; i <= kMaxRules; i++) apply("loss=1 qpn=" + std::to_string(i));
  std::string error;
  EXPECT_FALSE(fault_apply(*fabric_, *nic_, parse("loss=1"), kNow, &error));
  EXPECT_NE(error.find("a/mlx5_0 has its 16 rules"), std::string::npos) << error;
  apply("loss=0 qpn=3");
  apply("loss=1");
}

TEST_F(FaultTest, GidChanges) {
  uint8_t original[16], now[16];
  nic_gid(*nic_, 3, original);
  apply("gid-change");
  EXPECT_EQ(shown(), "gid-change");
  nic_gid(*nic_, 3, now);
  EXPECT_NE(memcmp(original, now, 16), 0);
  apply("gid-restore");
  nic_gid(*nic_, 3, now);
  EXPECT_EQ(memcmp(original, now, 16), 0);
  EXPECT_EQ(shown(), "ok");
  apply("gid-change=index");
  EXPECT_TRUE(gid_is_empty(*nic_, 3));
  nic_gid(*nic_, 5, now);
  EXPECT_EQ(memcmp(original, now, 16), 0);
  apply("heal");
  EXPECT_FALSE(gid_is_empty(*nic_, 3));
}

TEST_F(FaultTest, APeerIsCutOffOnlyByARuleThatTakesEverything) {
  apply("drop-data peer=b/mlx5_0");
  EXPECT_TRUE(rules_cut_peer(*nic_, peer_->ipv4_be));
  EXPECT_FALSE(rules_cut_peer(*nic_, fabric_->nic[1].ipv4_be));
  apply("heal");
  for (const char* partial : {"loss=50 peer=b/mlx5_0", "drop-data peer=b/mlx5_0 count=1",
                              "drop-acks peer=b/mlx5_0 dir=in", "loss=100 peer=b/mlx5_0 op=read"}) {
    apply(partial);
    EXPECT_FALSE(rules_cut_peer(*nic_, peer_->ipv4_be)) << partial;
    apply("heal");
  }
}

TEST_F(FaultTest, Refusals) {
  for (const char* text : {"",
                           "link",
                           "loss",
                           "loss=",
                           "loss=x",
                           "loss=-1",
                           "loss=101",
                           "loss=1e1",
                           "loss=1.2.3",
                           "delay=",
                           "delay=60001",
                           "delay=1s",
                           "link-down=1",
                           "flap",
                           "flap=10",
                           "flap=10/",
                           "flap=0/10",
                           "flap=10/20x0",
                           "flap=10/20y3",
                           "gid-change=value",
                           "slow-commands",
                           "slow-commands=",
                           "slow-commands=60001",
                           "slow-commands=5s",
                           "hang-commands=5",
                           "hang-commands peer=b/mlx5_0",
                           "slow-commands=5 count=1",
                           "link-down@packet",
                           "link-down@packet=0",
                           "link-down@byte=3",
                           "loss=1@packet=3",
                           "flap=1/1@packet=3",
                           "peer=b/mlx5_0",
                           "link-down peer=b/mlx5_0",
                           "loss=1 peer=c/mlx5_0",
                           "loss=1 peer=b/mlx5_1",
                           "loss=1 dir=up",
                           "loss=1 after=0",
                           "loss=1 count=",
                           "loss=1 op=",
                           "loss=1 op=recv",
                           "loss=1 qpn=0",
                           "drop-data op=ack",
                           "kill@wqe=3 dir=in",
                           "kill@wqe=3 after=2",
                           "link-down link-up"})
    EXPECT_FALSE(refusal(text).empty()) << text;
  EXPECT_NE(refusal("jitter=3").find("known are link-down"), std::string::npos);
}

}  // namespace
}  // namespace cxemu
