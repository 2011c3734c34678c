// Rates: how they are written, and what follows for the buckets.
#include "fabric/shape.h"

#include <gtest/gtest.h>

#include "fabric/fabric.h"
#include "fabric/fault.h"

namespace cxemu {
namespace {

TEST(ShapeTest, RatesAreReadAndShown) {
  uint64_t rate = 1;
  for (const char* text : {"200Mbit", "1.5Gbit", "64Kbit", "100Gbit", "off"}) {
    EXPECT_TRUE(rate_parse(text, &rate)) << text;
    EXPECT_EQ(rate_text(rate), text);
  }
  EXPECT_TRUE(rate_parse("200Mbit", &rate));
  EXPECT_EQ(rate, 25'000'000u);
  EXPECT_TRUE(rate_parse("0.5Gbit", &rate));
  EXPECT_EQ(rate_text(rate), "500Mbit");
  for (const char* text : {"", "200", "Mbit", "-1Mbit", "1.2.3Mbit", "1mbit", "1Kbit", "2000Gbit",
                           "1e3Mbit", "5Mbit/s"})
    EXPECT_FALSE(rate_parse(text, &rate)) << text;
}

class ShapeOfNicTest : public ::testing::Test {
 protected:
  ShapeOfNicTest() { nic_.used = 1; }
  bool fault(const std::string& text) {
    FaultCommand command;
    EXPECT_TRUE(fault_parse(*fabric_, text, &command, &error_)) << error_;
    return fault_apply(*fabric_, nic_, command, 0, &error_);
  }
  std::unique_ptr<FabricFile> fabric_ = std::make_unique<FabricFile>();
  FabricNic& nic_ = fabric_->nic[0];
  std::string error_;
};

TEST_F(ShapeOfNicTest, SlowIsAPartOfTheRateAndHealEndsIt) {
  shape_set(*fabric_, nic_, 1'000'000, 4'000'000);
  EXPECT_EQ(nic_.faults, kShaped);
  EXPECT_EQ(fault_describe(*fabric_, nic_, 0), "ok");
  EXPECT_TRUE(fault("slow=25"));
  EXPECT_EQ(nic_.shape.tx.rate, 250'000u);
  EXPECT_EQ(nic_.shape.entry.rate, 1'000'000u);
  EXPECT_EQ(nic_.shape.rx.rate, 1'000'000u);
  EXPECT_EQ(fault_describe(*fabric_, nic_, 0), "slow=25");
  // A new rate is slow, too.
  shape_set(*fabric_, nic_, 2'000'000, 2'000'000);
  EXPECT_EQ(nic_.shape.tx.rate, 500'000u);
  EXPECT_TRUE(fault("heal"));
  EXPECT_EQ(nic_.shape.tx.rate, 2'000'000u);
  EXPECT_EQ(nic_.faults, kShaped);
  shape_set(*fabric_, nic_, 0, 0);
  EXPECT_EQ(nic_.faults, 0u);
}

TEST_F(ShapeOfNicTest, SlowWithoutARateNeedsTheMachines) {
  EXPECT_FALSE(fault("slow=50"));
  EXPECT_NE(error_.find("cxemu calibrate"), std::string::npos) << error_;
  EXPECT_FALSE(fault("slow=50@packet=3"));
  EXPECT_EQ(nic_.faults, 0u);
  shape_set(*fabric_, nic_, 1'000'000, 0);
  EXPECT_FALSE(fault("slow=50")) << "it receives without a rate";
  fabric_->machine_rate = 10'000'000;
  EXPECT_TRUE(fault("slow=50"));
  EXPECT_EQ(nic_.shape.tx.rate, 500'000u);
  EXPECT_EQ(nic_.shape.rx.rate, 5'000'000u);
  EXPECT_TRUE(fault("slow=100"));
  EXPECT_EQ(nic_.shape.rx.rate, 0u);
  EXPECT_EQ(fault_describe(*fabric_, nic_, 0), "ok");
  for (const char* text : {"slow", "slow=0", "slow=101", "slow=x"}) {
    FaultCommand command;
    EXPECT_FALSE(fault_parse(*fabric_, text, &command, &error_)) << text;
  }
}

TEST_F(ShapeOfNicTest, ANewRateForgetsWhatWasBooked) {
  shape_set(*fabric_, nic_, 1000, 1000);
  nic_.shape.tx.booked_ns = 1'000'000'000'000;
  shape_set(*fabric_, nic_, 1000, 2000);
  EXPECT_EQ(nic_.shape.tx.booked_ns, 1'000'000'000'000u) << "it is the same";
  shape_set(*fabric_, nic_, 5000, 2000);
  EXPECT_EQ(nic_.shape.tx.booked_ns, 0u);
}

}  // namespace
}  // namespace cxemu
