// The addresses that members' QPs are connected with.
#include "group/member.h"

#include <gtest/gtest.h>

#include <set>

#include "group/test/fake.h"

namespace shift::group {
namespace {

class Address : public ::testing::Test {
 protected:
  static uint32_t psn_of_next(Group* group, int member) {
    wire::QpAddress own;
    EXPECT_EQ(member_qp_address(*group, member, {}, &own), 0);
    return own.psn;
  }
  static Group* group_of(World& world, uint64_t seed) {
    world.context.psn_draws = seed;
    CompletionQueue* cq = world.make_cq();
    return world.make_group(cq);
  }

  World world_;
};

// C8: what is left of the last connection, or of the one before, lies outside what the new one
// takes for its own: half the numbers ahead of it.
TEST_F(Address, StartPsnsAreFarFromThoseOfTheLastConnections) {
  Group* group = group_of(world_, 1);
  group->attr.sq_psn = 0xfffff0;
  uint32_t last = group->attr.sq_psn;
  for (int i = 0; i < 1000; i++) {
    const uint32_t psn = psn_of_next(group, kDefault);
    const uint32_t ahead = (psn - last) & 0xffffff;
    EXPECT_LT(psn, 1u << 24);
    EXPECT_GE(ahead, 1u << 22);
    EXPECT_LT(ahead, (1u << 22) + (1u << 20));
    last = psn;
  }
}

TEST_F(Address, StartPsnsFollowFromTheContextsSeed) {
  std::set<uint32_t> first;
  for (uint64_t seed = 0; seed < 64; seed++) {
    World world, again;
    Group* group = group_of(world, seed);
    Group* same = group_of(again, seed);
    const uint32_t psn = psn_of_next(group, kBackup);
    EXPECT_EQ(psn, psn_of_next(same, kBackup));
    EXPECT_EQ(psn_of_next(group, kThird), psn_of_next(same, kThird));
    first.insert(psn);
  }
  EXPECT_GT(first.size(), 60u) << "different seeds, different numbers";
}

}  // namespace
}  // namespace shift::group
