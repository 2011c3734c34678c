// Which descriptors are closed, and when.
#include "util/unique_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace shift {
namespace {

bool is_open(int fd) {
  return fcntl(fd, F_GETFD) != -1;
}
int open_any() {
  return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

TEST(UniqueFd, ClosesAtItsEndAndKeepsErrno) {
  const int fd = open_any();
  errno = ENOENT;
  { const UniqueFd owner(fd); }
  EXPECT_EQ(errno, ENOENT);
  EXPECT_FALSE(is_open(fd));
}

// A program may have closed its standard input: then this is a number like any other.
TEST(UniqueFd, ClosesTheDescriptorZeroToo) {
  const int input = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  ASSERT_GE(input, 0) << "the standard input is closed";
  close(STDIN_FILENO);
  UniqueFd owner(open_any());
  EXPECT_EQ(owner.get(), 0);
  EXPECT_TRUE(owner);
  owner.reset();
  EXPECT_FALSE(is_open(0));
  ASSERT_EQ(dup2(input, STDIN_FILENO), STDIN_FILENO);
  close(input);
}

TEST(UniqueFd, HasOneOwner) {
  UniqueFd one(open_any()), two(open_any());
  const int first = one.get(), second = two.get();
  one = std::move(two);
  EXPECT_FALSE(is_open(first));
  EXPECT_TRUE(is_open(second));
  EXPECT_FALSE(two);
  const UniqueFd three(std::move(one));
  EXPECT_FALSE(one);
  EXPECT_EQ(three.get(), second);
}

}  // namespace
}  // namespace shift
