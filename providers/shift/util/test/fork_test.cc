// Tests that fork children close the layer's descriptors, and know that they are children.
#include "util/fork.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "util/unique_fd.h"

namespace shift {
namespace {

int in_child(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Fork, ChildClosesWhatIsRegistered) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  UniqueFd ours(ends[0]);
  EXPECT_EQ(in_child([&] {
              const bool ours_closed = fcntl(ends[0], F_GETFD) < 0;
              const bool other_open = fcntl(ends[1], F_GETFD) >= 0;
              return ours_closed && other_open ? 0 : 1;
            }),
            0);
  EXPECT_GE(fcntl(ends[0], F_GETFD), 0);
  close(ends[1]);
}

TEST(Fork, ChildsProgramMayReuseTheNumber) {
  UniqueFd ours(open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(in_child([&] {
              const int number = ours.get();
              const int reused = open("/dev/null", O_RDONLY);
              if (reused != number) return 2;
              ours.reset();  // must not close the program's own descriptor
              return fcntl(reused, F_GETFD) >= 0 ? 0 : 1;
            }),
            0);
}

TEST(Fork, GenerationGrowsInTheChildOnly) {
  const uint64_t before = fork_generation();
  EXPECT_EQ(in_child([&] { return fork_generation() == before + 1 ? 0 : 1; }), 0);
  EXPECT_EQ(fork_generation(), before);
}

TEST(Fork, RemovedDescriptorsStayOpenInTheChild) {
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  fork_fd_add(fd);
  fork_fd_remove(fd);
  EXPECT_EQ(in_child([&] { return fcntl(fd, F_GETFD) >= 0 ? 0 : 1; }), 0);
  close(fd);
}

}  // namespace
}  // namespace shift
