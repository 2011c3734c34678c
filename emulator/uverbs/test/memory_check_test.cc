// Which memory can be registered.
#include "uverbs/memory_check.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "fabric/populate.h"

namespace cxemu {
namespace {

class MemoryCheckTest : public ::testing::Test {
 protected:
  void SetUp() override {
    page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* memory =
        mmap(nullptr, 4 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    at_ = reinterpret_cast<uint64_t>(memory);
  }
  void TearDown() override { munmap(reinterpret_cast<void*>(at_), 4 * page_); }
  void* page(size_t n) const { return reinterpret_cast<void*>(at_ + n * page_); }
  size_t page_ = 0;
  uint64_t at_ = 0;
};

TEST_F(MemoryCheckTest, MappedMemory) {
  EXPECT_EQ(memory_check(at_, 4 * page_, true), 0);
  EXPECT_EQ(memory_check(at_ + 1, 4 * page_ - 1, true), 0);
  EXPECT_EQ(memory_check(at_ + page_ - 1, 2, false), 0);
}

TEST_F(MemoryCheckTest, Holes) {
  munmap(page(2), page_);
  EXPECT_EQ(memory_check(at_, 4 * page_, true), EFAULT);
  EXPECT_EQ(memory_check(at_, 2 * page_ + 1, false), EFAULT);
  EXPECT_EQ(memory_check(at_, 2 * page_, true), 0);
  EXPECT_EQ(memory_check(0, 8, false), EFAULT);
}

TEST_F(MemoryCheckTest, ReadOnlyMemoryCanOnlyBeRead) {
  if (!populate_supported()) GTEST_SKIP() << "this kernel does not tell what may be written";
  mprotect(page(1), page_, PROT_READ);
  EXPECT_EQ(memory_check(at_, 2 * page_, false), 0);
  EXPECT_EQ(memory_check(at_, 2 * page_, true), EFAULT);
}

TEST_F(MemoryCheckTest, Ranges) {
  EXPECT_EQ(memory_check(at_, 0, false), EINVAL);
  EXPECT_EQ(memory_check(at_, UINT64_MAX, false), EINVAL);
  EXPECT_EQ(memory_check(UINT64_MAX - 8, 4, false), EINVAL);
}

TEST_F(MemoryCheckTest, ReadFromAnywhere) {
  uint64_t value = 0;
  *static_cast<uint64_t*>(page(1)) = 42;
  EXPECT_TRUE(memory_read(&value, at_ + page_, sizeof value));
  EXPECT_EQ(value, 42u);
  EXPECT_FALSE(memory_read(&value, 16, sizeof value));
  munmap(page(2), page_);
  EXPECT_FALSE(memory_read(&value, at_ + 2 * page_ - 4, sizeof value));
}

}  // namespace
}  // namespace cxemu
