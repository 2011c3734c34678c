// The addresses that members' QPs are connected with, and the regions that they have.
#include "group/member.h"

#include <gtest/gtest.h>
#include <unistd.h>

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

// What the further members' NICs were asked to register.
struct Registered {
  ibv_pd* pd;
  uint64_t offset, length, iova;
  int fd;
  unsigned access;
  bool is_null;
};
std::vector<Registered> registered;
ibv_mr* answer = nullptr;

class Twins : public ::testing::Test {
 protected:
  void SetUp() override {
    registered.clear();
    answer = &mr_;
    table_ = *fake_below();
    table_.reg_mr_iova2 = [](ibv_pd* pd, void*, size_t length, uint64_t iova, unsigned access) {
      registered.push_back({pd, 0, length, iova, -1, access, false});
      return answer;
    };
    table_.reg_dmabuf_mr = [](ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                              int access) {
      registered.push_back({pd, offset, length, iova, fd, static_cast<unsigned>(access), false});
      return answer;
    };
    before_ = std::exchange(below, &table_);
    region_.mr.length = 100;
    region_.iova = 0x5000;
    region_.access = IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_LOCAL_WRITE;
  }
  void TearDown() override { below = before_; }
  bool is_ready(int member) {
    return region_.twin[static_cast<size_t>(member)] == MemoryRegion::Twin::kReady;
  }

  World world_;
  Below table_;
  const Below* before_ = nullptr;
  ibv_mr mr_{};
  MemoryRegion region_{};
};

TEST_F(Twins, AreRegisteredWithAllThatTheApplicationAskedFor) {
  twin_regions_register(region_, world_.pd);
  ASSERT_EQ(registered.size(), 2u);
  for (int member : {kBackup, kThird}) {
    const Registered& one = registered[static_cast<size_t>(member) - 1];
    EXPECT_EQ(one.pd, world_.pd.real[static_cast<size_t>(member)]);
    EXPECT_EQ(one.length, 100u);
    EXPECT_EQ(one.iova, 0x5000u);
    EXPECT_EQ(one.access, region_.access);
    EXPECT_TRUE(is_ready(member));
  }
}

TEST_F(Twins, AreMadeOfTheSameBuffer) {
  region_.kind = MemoryRegion::Kind::kDmabuf;
  region_.fd = UniqueFd(dup(2));
  region_.offset = 4096;
  twin_regions_register(region_, world_.pd);
  ASSERT_EQ(registered.size(), 2u);
  EXPECT_EQ(registered[0].fd, region_.fd.get());
  EXPECT_EQ(registered[0].offset, 4096u);
  EXPECT_EQ(registered[0].iova, 0x5000u);
  EXPECT_TRUE(is_ready(kBackup));
}

TEST_F(Twins, OfANullRegionAreNullRegions) {
  region_.kind = MemoryRegion::Kind::kNull;
  world_.nic(kBackup).verbs.alloc_null_mr = [](ibv_pd* pd) {
    registered.push_back({pd, 0, 0, 0, -1, 0, true});
    return answer;
  };
  twin_regions_register(region_, world_.pd);
  ASSERT_EQ(registered.size(), 1u);
  EXPECT_TRUE(registered[0].is_null);
  EXPECT_TRUE(is_ready(kBackup));
  EXPECT_FALSE(is_ready(kThird)) << "its NIC has none";
}

TEST_F(Twins, OfDeviceMemoryThereAreNone) {
  region_.kind = MemoryRegion::Kind::kOnDefault;
  twin_regions_register(region_, world_.pd);
  EXPECT_TRUE(registered.empty());
  for (int member : {kBackup, kThird}) {
    EXPECT_EQ(region_.twin[static_cast<size_t>(member)], MemoryRegion::Twin::kFailed);
  }
}

}  // namespace
}  // namespace shift::group
