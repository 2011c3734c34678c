// A few campaigns. For many more, run cxemu_nic_campaign --seeds N.
#include "campaign.h"

#include <gtest/gtest.h>

namespace cxemu::test {
namespace {

class Campaign : public ::testing::TestWithParam<uint64_t> {};

TEST_P(Campaign, NothingFails) {
  const CampaignReport report = campaign_run({.seed = GetParam()});
  EXPECT_EQ(report.problem, "") << "seed " << GetParam();
  EXPECT_GE(report.messages, 10'000u);
  EXPECT_GT(report.retransmits, 100u) << "the wire was not bad enough to show anything";
}

TEST_P(Campaign, WhatFailsFailsRight) {
  const CampaignReport report =
      campaign_run({.seed = GetParam(), .messages = 3000, .may_fail = true});
  EXPECT_EQ(report.problem, "") << "seed " << GetParam();
  EXPECT_GT(report.failures, 10u) << "too little failed to show anything";
}

#ifdef __SANITIZE_ADDRESS__
constexpr uint64_t kSeeds = 1;  // each takes half a minute with this sanitizer
#else
constexpr uint64_t kSeeds = 3;
#endif
INSTANTIATE_TEST_SUITE_P(Seeds, Campaign, ::testing::Range<uint64_t>(1, 1 + kSeeds));

}  // namespace
}  // namespace cxemu::test
