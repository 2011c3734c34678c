// The rule table: which events match, which are affected, and concurrent writers and readers.
#include "fabric/rule.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace cxemu {
namespace {

using Table = std::array<FaultRule, kMaxRules>;

TEST(RuleTest, Matching) {
  const EventTraits packet = {.tick = FaultTick::kPacket,
                              .direction = kDirectionIn,
                              .op = kOpWrite,
                              .peer_ipv4_be = 5,
                              .qpn = 9};
  EXPECT_TRUE(rule_matches({}, packet));
  EXPECT_TRUE(rule_matches({.directions = kDirectionIn, .ops = kOpWrite | kOpAck}, packet));
  EXPECT_FALSE(rule_matches({.directions = kDirectionOut}, packet));
  EXPECT_FALSE(rule_matches({.ops = kOpSend}, packet));
  EXPECT_TRUE(rule_matches({.peer_ipv4_be = 5, .qpn = 9}, packet));
  EXPECT_FALSE(rule_matches({.peer_ipv4_be = 6}, packet));
  EXPECT_FALSE(rule_matches({.qpn = 8}, packet));
  EXPECT_FALSE(rule_matches({.tick = FaultTick::kCqe}, packet));
  const EventTraits completion = {.tick = FaultTick::kCqe, .qpn = 9};
  EXPECT_TRUE(rule_matches({.tick = FaultTick::kCqe, .qpn = 9}, completion));
  EXPECT_FALSE(rule_matches({}, completion));
}

// Which of the first `events` matching events are affected, and after which event the rule ended
// (0: never).
std::vector<int> hits(const RuleSpec& spec, int events, int* end) {
  const auto rule = std::make_unique<FaultRule>();
  std::vector<int> hit;
  *end = 0;
  for (int n = 1; n <= events; n++) {
    bool ended;
    if (rule_strike(*rule, spec, &ended)) hit.push_back(n);
    if (ended && *end == 0) *end = n;
  }
  return hit;
}

TEST(RuleTest, AfterAndCountAreExact) {
  int end;
  EXPECT_EQ(hits({}, 3, &end), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(end, 0);
  EXPECT_EQ(hits({.after = 3, .count = 2}, 9, &end), (std::vector<int>{3, 4}));
  EXPECT_EQ(end, 4);
  EXPECT_EQ(hits({.after = 7}, 8, &end), (std::vector<int>{7, 8}));
}

TEST(RuleTest, ChanceIsAsOftenAsAskedAndRepeatable) {
  int end;
  const RuleSpec spec = {.chance_ppm = 100'000, .seed = 3};
  const std::vector<int> first = hits(spec, 20'000, &end);
  EXPECT_NEAR(static_cast<double>(first.size()), 2000, 150);
  EXPECT_EQ(hits(spec, 20'000, &end), first);
  RuleSpec other = spec;
  other.seed = 4;
  EXPECT_NE(hits(other, 20'000, &end), first);
  other = spec;
  other.salt = 1;
  EXPECT_NE(hits(other, 20'000, &end), first);
  RuleSpec counted = spec;
  counted.count = 3;
  EXPECT_EQ(hits(counted, 20'000, &end), std::vector<int>(first.begin(), first.begin() + 3));
  EXPECT_EQ(end, first[2]);
}

TEST(RuleTest, PlacesAreTakenAndGivenBack) {
  const auto table = std::make_unique<Table>();
  for (uint32_t i = 0; i < kMaxRules; i++) EXPECT_TRUE(rule_arm(*table, {.qpn = i + 1}));
  EXPECT_FALSE(rule_arm(*table, {}));
  RuleCopy copy, again;
  ASSERT_TRUE(rule_read((*table)[4], &copy));
  EXPECT_EQ(copy.spec, (RuleSpec{.qpn = 5}));
  EXPECT_TRUE(rule_end((*table)[4], copy.state));
  EXPECT_FALSE(rule_end((*table)[4], copy.state)) << "only once";
  EXPECT_FALSE(rule_read((*table)[4], &again));
  EXPECT_TRUE(rule_arm(*table, {.qpn = 99}));
  EXPECT_FALSE(rule_end((*table)[4], copy.state)) << "another rule lies there now";
}

// Every copy that a reader gets is one whole rule.
TEST(RuleTest, ReadersNeverSeeHalfARule) {
  const auto table = std::make_unique<Table>();
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint32_t i = 1; i < 20'000; i++) {
      RuleCopy copy;
      if (rule_read((*table)[0], &copy)) rule_end((*table)[0], copy.state);
      rule_arm(*table, {.value = i, .qpn = i, .after = i, .count = i});
    }
    stop = true;
  });
  while (!stop) {
    RuleCopy copy;
    if (!rule_read((*table)[0], &copy)) continue;
    const RuleSpec& spec = copy.spec;
    ASSERT_TRUE(spec.value == spec.qpn && spec.after == spec.qpn && spec.count == spec.qpn);
  }
  writer.join();
}

}  // namespace
}  // namespace cxemu
