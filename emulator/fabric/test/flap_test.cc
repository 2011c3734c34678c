// Flapping links: where in the schedule the clock is, and that every change is reported once.
#include "fabric/flap.h"

#include <gtest/gtest.h>

#include <memory>

#include "fabric/fault.h"

namespace cxemu {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kStart = 1000 * kMs;

class FlapTest : public ::testing::Test {
 protected:
  FlapTest() : fabric_(std::make_unique<FabricFile>()), nic_(fabric_->nic[0]) { nic_.used = 1; }
  void apply(const std::string& text, uint64_t now_ns) {
    FaultCommand command;
    std::string error;
    ASSERT_TRUE(fault_parse(*fabric_, text, &command, &error)) << error;
    ASSERT_TRUE(fault_apply(*fabric_, nic_, command, now_ns, &error)) << error;
  }
  bool down(uint64_t ms) const { return (faults_now(nic_, kStart + ms * kMs) & kLinkDown) != 0; }

  std::unique_ptr<FabricFile> fabric_;
  FabricNic& nic_;
};

TEST_F(FlapTest, DownFirstThenUpAndAgain) {
  apply("flap=10/30x2", kStart);
  for (const uint64_t ms : {0, 9, 40, 49}) EXPECT_TRUE(down(ms)) << ms;
  for (const uint64_t ms : {10, 39, 50, 79, 80, 81, 1000}) EXPECT_FALSE(down(ms)) << ms;
  EXPECT_EQ(fault_describe(*fabric_, nic_, kStart + kMs), "flap=10/30x2");
  EXPECT_EQ(fault_describe(*fabric_, nic_, kStart + 80 * kMs), "ok") << "it is over";
}

TEST_F(FlapTest, WithoutEnd) {
  apply("flap=10/10", kStart);
  EXPECT_TRUE(down(20'000'000));
  EXPECT_FALSE(down(20'000'010));
  apply("link-up", kStart + 100 * kMs);
  EXPECT_FALSE(down(20'000'000));
  EXPECT_EQ(flap_next_ns(nic_, kStart), UINT64_MAX);
}

TEST_F(FlapTest, NextChange) {
  EXPECT_EQ(flap_next_ns(nic_, kStart), UINT64_MAX);
  apply("flap=10/30x2", kStart);
  EXPECT_EQ(flap_next_ns(nic_, kStart), kStart + 10 * kMs);
  EXPECT_EQ(flap_next_ns(nic_, kStart + 10 * kMs), kStart + 40 * kMs);
  EXPECT_EQ(flap_next_ns(nic_, kStart + 41 * kMs), kStart + 50 * kMs);
  EXPECT_EQ(flap_next_ns(nic_, kStart + 80 * kMs), UINT64_MAX);
}

TEST_F(FlapTest, ALinkThatIsDownAnywayStaysDown) {
  apply("link-down", kStart);
  apply("flap=10/30x1", kStart);
  EXPECT_TRUE(down(15));
  EXPECT_TRUE(down(100));
}

TEST_F(FlapTest, EveryChangeIsToldOnceWhoeverLooks) {
  apply("flap=10/30x2", kStart);
  const uint64_t before = fabric_->events.written;
  for (const uint64_t ms : {5, 5, 45, 500, 501}) flap_settle(*fabric_, nic_, kStart + ms * kMs);
  EXPECT_EQ(fabric_->events.written, before + 4);
  EXPECT_EQ(nic_.link_downed, 2u);
  Event first, second;
  ASSERT_TRUE(event_read(*fabric_, before + 1, &first));
  ASSERT_TRUE(event_read(*fabric_, before + 2, &second));
  EXPECT_EQ(first.kind, EventKind::kLink);
  EXPECT_EQ(first.text, "down");
  EXPECT_EQ(second.text, "up");
}

TEST_F(FlapTest, HealEndsIt) {
  apply("flap=10/30", kStart);
  apply("heal", kStart + 5 * kMs);
  EXPECT_FALSE(down(6));
  EXPECT_EQ(nic_.faults, 0u);
}

}  // namespace
}  // namespace cxemu
