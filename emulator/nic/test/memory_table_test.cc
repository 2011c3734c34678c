// Registered memory: what is found, what is refused, and that old keys stay invalid.
#include "nic/memory_table.h"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <vector>

#include "fabric/populate.h"

namespace cxemu {
namespace {

constexpr uint32_t kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

class MemoryTableTest : public ::testing::Test {
 protected:
  uint32_t add(uint64_t length = 100, uint32_t access = kAll) {
    uint32_t key = 0;
    EXPECT_EQ(table_.add(1, start(), length, kIova, access, &key), 0);
    return key;
  }
  uint64_t start() const { return reinterpret_cast<uint64_t>(bytes_.data()); }

  static constexpr uint64_t kIova = 0x10000;
  MemoryTable table_;
  std::vector<uint8_t> bytes_ = std::vector<uint8_t>(100);
};

TEST_F(MemoryTableTest, RangeIsExact) {
  const uint32_t key = add();
  EXPECT_EQ(table_.find(key, 1, kIova, 100, 0), bytes_.data());
  EXPECT_EQ(table_.find(key, 1, kIova + 99, 1, 0), bytes_.data() + 99);
  EXPECT_EQ(table_.find(key, 1, kIova + 99, 2, 0), nullptr);
  EXPECT_EQ(table_.find(key, 1, kIova - 1, 1, 0), nullptr);
  EXPECT_EQ(table_.find(key, 1, kIova + 100, 1, 0), nullptr);
  EXPECT_EQ(table_.find(key, 1, kIova, 101, 0), nullptr);
  EXPECT_EQ(table_.find(key, 1, UINT64_MAX, 2, 0), nullptr) << "address overflow";
  EXPECT_EQ(table_.find(key, 1, kIova + 1, UINT64_MAX, 0), nullptr) << "length overflow";
}

TEST_F(MemoryTableTest, KeyDomainAndRightsMustMatch) {
  const uint32_t key = add();
  EXPECT_EQ(table_.find(key, 2, kIova, 1, 0), nullptr);
  EXPECT_EQ(table_.find(key + 1, 1, kIova, 1, 0), nullptr);
  EXPECT_EQ(table_.find(0, 1, kIova, 1, 0), nullptr);
  EXPECT_EQ(table_.find(0xffffffff, 1, kIova, 1, 0), nullptr);
  EXPECT_EQ(table_.find(key, 1, kIova, 1, IBV_ACCESS_REMOTE_READ), nullptr);
  EXPECT_NE(table_.find(key, 1, kIova, 1, IBV_ACCESS_REMOTE_WRITE), nullptr);
}

TEST_F(MemoryTableTest, EmptyAccessIsNeverChecked) {
  EXPECT_NE(table_.find(0x777700, 9, 0, 0, IBV_ACCESS_REMOTE_WRITE), nullptr);
}

TEST_F(MemoryTableTest, RemovedKeyIsDead) {
  const uint32_t key = add();
  EXPECT_EQ(table_.remove(key), 0);
  EXPECT_EQ(table_.find(key, 1, kIova, 1, 0), nullptr);
  EXPECT_EQ(table_.remove(key), EINVAL);
  EXPECT_EQ(table_.remove(0x100), EINVAL);
}

TEST_F(MemoryTableTest, KeysAreNotReusedSoonAndNeverEndLists) {
  std::set<uint32_t> seen;
  for (int i = 0; i < 10'000; i++) {
    const uint32_t key = add();
    EXPECT_NE(key, 0x100u);
    EXPECT_NE(key, 0u);
    EXPECT_TRUE(seen.insert(key).second) << key;
    EXPECT_EQ(table_.remove(key), 0);
  }
}

TEST_F(MemoryTableTest, KeysComeAgainAtOnceInTheOrderAskedFor) {
  for (const KeyReuse reuse : {KeyReuse::kNewestFirst, KeyReuse::kOldestFirst}) {
    MemoryTable table(1000, reuse);
    const auto next = [&] {
      uint32_t key = 0;
      EXPECT_EQ(table.add(1, start(), 100, kIova, kAll, &key), 0);
      return key;
    };
    const uint32_t first = next(), second = next();
    EXPECT_NE(first, second);
    EXPECT_EQ(table.remove(first), 0);
    EXPECT_EQ(table.find(first, 1, kIova, 1, 0), nullptr);
    EXPECT_EQ(table.remove(second), 0);
    const bool newest = reuse == KeyReuse::kNewestFirst;
    EXPECT_EQ(next(), newest ? second : first);
    EXPECT_EQ(next(), newest ? first : second);
    EXPECT_NE(table.find(first, 1, kIova, 1, 0), nullptr);
  }
}

TEST_F(MemoryTableTest, TablesWithOtherFirstKeysShareNone) {
  MemoryTable other(1000);
  for (int i = 0; i < 100; i++) {
    const uint32_t key = add();
    EXPECT_EQ(other.find(key, 1, kIova, 1, 0), nullptr);
    EXPECT_EQ(other.remove(key), EINVAL);
    uint32_t other_key = 0;
    ASSERT_EQ(other.add(1, start(), 100, kIova, kAll, &other_key), 0);
    EXPECT_GE(other_key, 1000u << 8);
    EXPECT_EQ(other.find(other_key, 1, kIova, 1, 0), bytes_.data());
    EXPECT_EQ(table_.find(other_key, 1, kIova, 1, 0), nullptr);
  }
}

TEST_F(MemoryTableTest, RefusesWhatTheKernelRefuses) {
  uint32_t key = 0;
  EXPECT_EQ(table_.add(1, start(), 1, 0, IBV_ACCESS_REMOTE_WRITE, &key), EINVAL);
  EXPECT_EQ(table_.add(1, start(), 1, 0, IBV_ACCESS_REMOTE_ATOMIC, &key), EINVAL);
  EXPECT_EQ(table_.add(1, UINT64_MAX - 5, 10, 0, 0, &key), EINVAL);
  EXPECT_EQ(table_.add(1, start(), 10, 0, IBV_ACCESS_RELAXED_ORDERING, &key), 0);
  void* hole = mmap(nullptr, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(hole, MAP_FAILED);
  munmap(hole, 1 << 16);
  EXPECT_EQ(table_.add(1, reinterpret_cast<uint64_t>(hole), 1 << 16, 0, 0, &key), EFAULT);
}

TEST_F(MemoryTableTest, ChangesKeepTheKeyAndWhatTheyDoNotName) {
  const uint32_t key = add();
  uint32_t now = 0;
  ASSERT_EQ(table_.change(key, {.pd = true, .new_pd = 7}, &now), 0);
  EXPECT_EQ(now, key);
  EXPECT_EQ(table_.find(key, 1, kIova, 1, 0), nullptr);
  EXPECT_EQ(table_.find(key, 7, kIova, 100, kAll), bytes_.data());
  ASSERT_EQ(table_.change(key, {.access = true, .new_access = IBV_ACCESS_REMOTE_READ}, &now), 0);
  EXPECT_EQ(now, key);
  EXPECT_EQ(table_.find(key, 7, kIova, 1, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_NE(table_.find(key, 7, kIova, 1, IBV_ACCESS_REMOTE_READ), nullptr);
  ASSERT_EQ(table_.change(
                key, {.translation = true, .start = start() + 50, .length = 50, .iova = 9}, &now),
            0);
  EXPECT_EQ(now, key);
  EXPECT_EQ(table_.find(key, 7, kIova, 1, 0), nullptr);
  EXPECT_EQ(table_.find(key, 7, 9, 50, 0), bytes_.data() + 50);
}

TEST_F(MemoryTableTest, GrowingBeyondTheTranslationGivesANewKey) {
  std::vector<uint8_t> large(40 * 4096);
  const uint64_t page = (reinterpret_cast<uint64_t>(large.data()) + 4095) & ~uint64_t{4095};
  uint32_t key = 0, now = 0;
  ASSERT_EQ(table_.add(1, page, 5 * 4096, page, kAll, &key), 0);
  const RegionChange fits = {.translation = true, .start = page, .length = 8 * 4096, .iova = page};
  ASSERT_EQ(table_.change(key, fits, &now), 0);
  EXPECT_EQ(now, key);
  const RegionChange grows = {.translation = true, .start = page, .length = 9 * 4096, .iova = page};
  ASSERT_EQ(table_.change(key, grows, &now), 0);
  EXPECT_NE(now, key);
  EXPECT_EQ(table_.find(key, 1, page, 1, 0), nullptr);
  EXPECT_NE(table_.find(now, 1, page, 9 * 4096, kAll), nullptr);
  EXPECT_EQ(table_.remove(now), 0);
}

TEST_F(MemoryTableTest, RefusedChangesChangeNothing) {
  const uint32_t key = add();
  uint32_t now = 0;
  EXPECT_EQ(table_.change(key + 1, {.pd = true, .new_pd = 7}, &now), EINVAL);
  EXPECT_EQ(
      table_.change(
          key, {.pd = true, .access = true, .new_pd = 7, .new_access = IBV_ACCESS_REMOTE_WRITE},
          &now),
      EINVAL);
  EXPECT_EQ(
      table_.change(key, {.translation = true, .pd = true, .start = UINT64_MAX, .length = 9}, &now),
      EINVAL);
  EXPECT_EQ(table_.find(key, 1, kIova, 100, kAll), bytes_.data());
}

class OnDemandTest : public ::testing::Test {
 protected:
  OnDemandTest() {
    bytes_ = static_cast<uint8_t*>(
        mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    madvise(bytes_, kSize, MADV_NOHUGEPAGE);  // the test checks single pages
  }
  ~OnDemandTest() override { munmap(bytes_, kSize); }
  bool present(size_t page) const {
    unsigned char there = 0;
    EXPECT_EQ(mincore(bytes_ + page * kPage, kPage, &there), 0);
    return (there & 1) != 0;
  }
  uint64_t start() const { return reinterpret_cast<uint64_t>(bytes_); }

  const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE)), kSize = 64 * kPage;
  MemoryTable table_;
  uint8_t* bytes_;
};

TEST_F(OnDemandTest, PagesComeWhenTheyAreUsed) {
  if (!populate_supported()) GTEST_SKIP() << "this kernel brings no pages on demand";
  uint32_t key = 0;
  ASSERT_EQ(table_.add(1, start(), kSize, 0, kAll | IBV_ACCESS_ON_DEMAND, &key), 0);
  EXPECT_FALSE(present(2));
  EXPECT_EQ(table_.find(key, 1, 0, kSize, 0), bytes_);
  EXPECT_FALSE(present(2)) << "too large to be one packet's";
  EXPECT_EQ(table_.find(key, 1, 3 * kPage - 1, 2, IBV_ACCESS_LOCAL_WRITE), bytes_ + 3 * kPage - 1);
  EXPECT_TRUE(present(2));
  EXPECT_TRUE(present(3));
  EXPECT_FALSE(present(4));
}

TEST_F(OnDemandTest, WhatIsNotMappedIsRefusedAndComesBackWithItsMapping) {
  if (!populate_supported()) GTEST_SKIP() << "this kernel does not tell what may be read";
  uint32_t key = 0;
  ASSERT_EQ(table_.add(1, start(), kSize, 0, kAll | IBV_ACCESS_ON_DEMAND, &key), 0);
  ASSERT_EQ(mprotect(bytes_ + kPage, kPage, PROT_NONE), 0);
  EXPECT_EQ(table_.find(key, 1, kPage, 8, IBV_ACCESS_LOCAL_WRITE), nullptr);
  ASSERT_EQ(mprotect(bytes_ + kPage, kPage, PROT_READ), 0);
  EXPECT_EQ(table_.find_remote(key, 1, 0, kPage, 8, IBV_ACCESS_REMOTE_WRITE), nullptr);
  EXPECT_NE(table_.find(key, 1, kPage, 8, 0), nullptr);
}

TEST_F(OnDemandTest, ARegionCanBeTheWholeAddressSpace) {
  uint32_t key = 0;
  ASSERT_EQ(table_.add(1, 0, UINT64_MAX, 0, kAll | IBV_ACCESS_ON_DEMAND, &key), 0);
  EXPECT_EQ(table_.find(key, 1, start() + 5, 100, IBV_ACCESS_LOCAL_WRITE), bytes_ + 5);
  EXPECT_EQ(table_.find(key, 1, 0, 100, 0), nullptr);
}

}  // namespace
}  // namespace cxemu
