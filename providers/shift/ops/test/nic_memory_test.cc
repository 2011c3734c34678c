// Tests what is kept of a NIC for later processes, and what of it is believed.
#include "ops/nic_memory.h"

#include <gtest/gtest.h>

namespace shift::ops {
namespace {

ibv_gid_entry gid(uint32_t index, uint8_t last) {
  ibv_gid_entry entry{};
  entry.port_num = 1;
  entry.gid_index = index;
  entry.gid_type = IBV_GID_TYPE_ROCE_V2;
  entry.gid.raw[15] = last;
  return entry;
}

NicMemory example() {
  NicMemory memory;
  memory.saved_s = 1'000'000;
  memory.attr.orig_attr.max_qp = 77;
  memory.ports[1].state = IBV_PORT_ACTIVE;
  memory.ports[1].active_mtu = IBV_MTU_4096;
  memory.gids = {gid(1, 1), gid(3, 3)};
  return memory;
}

TEST(NicMemory, ComesBackAsItWas) {
  const auto back = nic_unpack(nic_pack(example(), 42), 42);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->saved_s, 1'000'000);
  EXPECT_EQ(back->attr.orig_attr.max_qp, 77);
  ASSERT_EQ(back->ports.size(), 1u);
  EXPECT_EQ(back->ports.at(1).active_mtu, IBV_MTU_4096);
  ASSERT_EQ(back->gids.size(), 2u);
  EXPECT_EQ(back->gids[1].gid_index, 3u);
  EXPECT_EQ(back->gids[1].gid.raw[15], 3);
}

TEST(NicMemory, IsNotBelievedOfAnotherNic) {
  EXPECT_FALSE(nic_unpack(nic_pack(example(), 42), 43));
}

TEST(NicMemory, BytesThatDoNotFitAreNothing) {
  const std::string bytes = nic_pack(example(), 42);
  for (size_t size = 0; size < bytes.size(); size++)
    EXPECT_FALSE(nic_unpack(bytes.substr(0, size), 42)) << size;
  EXPECT_FALSE(nic_unpack(bytes + '\0', 42));
  for (size_t at = 0; at < 24; at++) {  // magic, version and sizes
    std::string wrong = bytes;
    wrong[at] = static_cast<char>(wrong[at] ^ 0x40);
    EXPECT_FALSE(nic_unpack(wrong, 42)) << at;
  }
  std::string many = bytes;
  many[44] = many[45] = '\x7f';  // the number of GIDs
  EXPECT_FALSE(nic_unpack(many, 42));
}

TEST(NicMemory, WhatIsNewIsKept) {
  const NicMemory before = example();
  NicMemory now = before;
  EXPECT_TRUE(nic_is_news(now, std::nullopt));
  EXPECT_FALSE(nic_is_news(now, before));
  now.gids.push_back(gid(5, 5));
  EXPECT_TRUE(nic_is_news(now, before)) << "an address more";
  now = before;
  now.saved_s += 600;
  EXPECT_TRUE(nic_is_news(now, before));
  now.saved_s -= 601;
  EXPECT_TRUE(nic_is_news(now, before)) << "the clock was set back";
}

// An address that is gone may be gone for good, or until somebody has mended the link.
TEST(NicMemory, AnAddressThatIsGoneIsRememberedForAnHour) {
  const NicMemory before = example();
  NicMemory now = before;
  now.gids.pop_back();
  now.saved_s += 3599;
  EXPECT_FALSE(nic_is_news(now, before));
  now.saved_s += 1;
  EXPECT_TRUE(nic_is_news(now, before));
}

}  // namespace
}  // namespace shift::ops
