// What is said of two NICs that back each other.
#include <gtest/gtest.h>

#include "../nics.h"

namespace shift::verify {
namespace {

ops::NicFacts nic(const char* function, double gigabits = 100, int node = 0) {
  return {.kind = "mlx5",
          .link_layer = "Ethernet",
          .gigabits = gigabits,
          .place = {function},
          .numa_node = node};
}

TEST(Pairs, two_cards_have_nothing_against_them) {
  std::string remark;
  const auto seen = pair_compare(nic("0000:10:00.0"), nic("0000:11:00.0"), remark);
  EXPECT_EQ(seen, "100 Gb/s each, cards 0000:10:00 and 0000:11:00, NUMA node 0");
  EXPECT_EQ(remark, "");
}

TEST(Pairs, ports_of_one_card_fail_together) {
  std::string remark;
  pair_compare(nic("0000:10:00.0"), nic("0000:10:00.1"), remark);
  EXPECT_EQ(remark, "they are ports of one card (0000:10:00), which may fail as a whole");
}

TEST(Pairs, differences_are_told) {
  std::string remark;
  auto other = nic("0000:11:00.0", 25, 1);
  pair_compare(nic("0000:10:00.0"), other, remark);
  EXPECT_EQ(remark, "one port has 100 Gb/s, the other 25; NUMA nodes 0 and 1");
  other = nic("0000:11:00.0");
  other.kind = "rxe";
  other.link_layer = "InfiniBand";
  remark.clear();
  pair_compare(nic("0000:10:00.0"), other, remark);
  EXPECT_EQ(remark, "they are of different kinds; one is Ethernet, the other InfiniBand");
}

TEST(Pairs, what_is_not_known_is_no_difference) {
  std::string remark;
  EXPECT_EQ(pair_compare({}, nic("0000:10:00.0"), remark),
            "speeds not both known, cards not known");
  EXPECT_EQ(remark, "");
}

TEST(Pairs, the_first_nic_with_a_partner_is_looked_at) {
  const Nics nics{.names = {"a", "b", "c"}, .partners = {-1, 2, 1}};
  EXPECT_EQ(pair_choose(nics, {}), (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(pair_choose(nics, {"c", "a"}), (std::vector<std::string>{"c", "a"}));
  EXPECT_EQ(pair_choose({.names = {"a"}, .partners = {-1}}, {}), std::vector<std::string>{"a"});
  EXPECT_TRUE(pair_choose({}, {}).empty());
}

}  // namespace
}  // namespace shift::verify
