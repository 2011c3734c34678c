// When a thread that polls in vain yields, and when it naps.
#include "nic/idle_poller.h"

#include <gtest/gtest.h>

namespace cxemu {
namespace {

constexpr uint64_t kStart = 7'000'000'000, kUs = 1000;

class IdlePollerTest : public ::testing::Test {
 protected:
  // Polls in vain every microsecond until `us` after the first poll; returns the last plan.
  uint64_t look_until(uint64_t us) {
    uint64_t rest = 1;
    for (; looked_us_ <= us; looked_us_++) rest = poller_.plan(kStart + looked_us_ * kUs);
    return rest;
  }

  IdlePoller poller_;
  uint64_t looked_us_ = 0;
};

TEST_F(IdlePollerTest, OnlyYieldsAtFirst) {
  EXPECT_EQ(look_until(0), 0u);
  EXPECT_EQ(look_until(400), 0u);
}

TEST_F(IdlePollerTest, NapsForAPartOfWhatItHasWaited) {
  EXPECT_EQ(look_until(401), 401 * kUs / 8);
  EXPECT_EQ(look_until(800), 800 * kUs / 8);
  EXPECT_EQ(look_until(10'000), 200 * kUs) << "and not longer";
}

TEST_F(IdlePollerTest, NapsEarlierAndLongerInACrowd) {
  EXPECT_EQ(poller_.plan(kStart, 4), 0u);
  EXPECT_EQ(poller_.plan(kStart + 100 * kUs, 4), 0u);
  EXPECT_EQ(poller_.plan(kStart + 104 * kUs, 4), 104 * kUs / 8 * 4);
}

TEST_F(IdlePollerTest, LooksIntoAllItsQueuesBetweenTwoNaps) {
  look_until(800);
  poller_.woke(kStart + 900 * kUs);
  looked_us_ = 901;
  EXPECT_EQ(look_until(949), 0u);
  EXPECT_EQ(look_until(950), 950 * kUs / 8);
}

TEST_F(IdlePollerTest, BeginsAnewWhenThereWasWork) {
  look_until(800);
  poller_.found();
  EXPECT_EQ(look_until(801), 0u);
}

TEST_F(IdlePollerTest, WhoDidSomethingElseMeanwhileHasNotWaited) {
  look_until(800);
  looked_us_ = 1'801;
  EXPECT_EQ(look_until(1'801), 0u);
}

}  // namespace
}  // namespace cxemu
