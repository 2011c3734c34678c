// GID tables that change, and the way from addresses back to NICs.
#include "fabric/gid.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>

namespace cxemu {
namespace {

class GidTest : public ::testing::Test {
 protected:
  GidTest() : fabric_(std::make_unique<FabricFile>()), nic_(fabric_->nic[0]) {
    for (uint32_t i = 0; i < kMaxNicsPerHost; i++) {
      fabric_->nic[i].index = i;
      fabric_->nic[i].ipv4_be = htonl(0x7f630101 + i);
      fabric_->nic[i].used = 1;
    }
  }
  void change(GidChange change) { nic_.gids = gids_changed(nic_.gids, change); }

  std::unique_ptr<FabricFile> fabric_;
  FabricNic& nic_;
};

TEST_F(GidTest, EmptyEntriesAreZeroAndNobodys) {
  uint8_t gid[16];
  const uint8_t zero[16] = {};
  for (int i = 4; i < kGidCount; i++) {
    nic_gid(nic_, i, gid);
    EXPECT_EQ(memcmp(gid, zero, 16), 0);
    EXPECT_TRUE(gid_is_empty(nic_, i));
  }
  EXPECT_EQ(gid_find_ipv4_be(*fabric_, zero), 0u);
}

TEST_F(GidTest, EveryChangeOfAddressGivesANewOneThatIsNobodyElses) {
  std::set<uint32_t> seen;
  for (const FabricNic& nic : fabric_->nic)
    if (nic.used != 0 && &nic != &nic_) seen.insert(nic.ipv4_be);
  for (uint32_t i = 0; i < kGidAddresses; i++) {
    uint8_t gid[16];
    nic_gid(nic_, 3, gid);
    const uint32_t address = gid_ipv4_be(nic_, 3);
    EXPECT_TRUE(seen.insert(address).second);
    EXPECT_EQ(address_original_be(address), nic_.ipv4_be);
    EXPECT_EQ(gid_find_ipv4_be(*fabric_, gid), address);
    change(GidChange::kAddress);
    EXPECT_EQ(gid_find_ipv4_be(*fabric_, gid), 0u) << "nobody has the old one";
  }
  EXPECT_EQ(gid_ipv4_be(nic_, 3), nic_.ipv4_be) << "all were used";
}

TEST_F(GidTest, LinkLocalEntriesStay) {
  uint8_t before[16], after[16];
  nic_gid(nic_, 1, before);
  change(GidChange::kAddress);
  change(GidChange::kIndex);
  nic_gid(nic_, 1, after);
  EXPECT_EQ(memcmp(before, after, 16), 0);
  EXPECT_EQ(gid_find_ipv4_be(*fabric_, after), nic_.ipv4_be);
}

TEST_F(GidTest, MovedEntriesAndBack) {
  change(GidChange::kIndex);
  EXPECT_TRUE(gid_is_empty(nic_, 2));
  EXPECT_TRUE(gid_is_empty(nic_, 3));
  EXPECT_EQ(gid_ipv4_be(nic_, 5), nic_.ipv4_be);
  EXPECT_TRUE(gid_is_roce_v2(5));
  EXPECT_FALSE(gids_are_original(nic_.gids));
  const uint32_t moved = nic_.gids;
  change(GidChange::kIndex);
  EXPECT_EQ(gid_ipv4_be(nic_, 3), nic_.ipv4_be);
  EXPECT_NE(nic_.gids, moved);
  change(GidChange::kAddress);
  change(GidChange::kRestore);
  EXPECT_TRUE(gids_are_original(nic_.gids));
  EXPECT_NE(nic_.gids, 0u) << "a change and back is still seen as a change";
}

}  // namespace
}  // namespace cxemu
