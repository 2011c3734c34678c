// Tests the table of what processes of one user put where: whose slots count, and what is believed
// of the file.
#include "state/shares_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>

#include "state/directory.h"

namespace shift::state {
namespace {

using Lists = std::vector<SharesTable::Spares>;

class SharesTableTest : public ::testing::Test {
 protected:
  SharesTableTest() {
    char name[] = "/tmp/shift-table-XXXXXX";
    base_ = ::mkdtemp(name);
  }
  ~SharesTableTest() override { std::filesystem::remove_all(base_); }
  // Each stands for a process.
  std::unique_ptr<SharesTable> process() const {
    return std::make_unique<SharesTable>(base_, ::geteuid(), 2);
  }
  std::string path() const { return user_directory(base_, ::geteuid()) + "/" + kSharesName; }
  ShareRecord record(size_t place) const {
    ShareRecord found;
    const UniqueFd file(::open(path().c_str(), O_RDONLY));
    EXPECT_EQ(::pread(file.get(), &found, sizeof found, static_cast<off_t>(place * kPlaceSize)),
              static_cast<ssize_t>(sizeof found));
    return found;
  }
  void put(size_t place, const ShareRecord& what) const {
    const UniqueFd file(::open(path().c_str(), O_WRONLY));
    EXPECT_EQ(::pwrite(file.get(), &what, sizeof what, static_cast<off_t>(place * kPlaceSize)),
              static_cast<ssize_t>(sizeof what));
  }

  std::string base_;
};

TEST_F(SharesTableTest, OthersSeeWhatAProcessHas) {
  const auto one = process(), other = process();
  one->count(1, 2, 3, 1);
  one->count(1, 2, 3, 1);
  one->count(1, 2, 0, 1);
  one->count(9, 2, 3, 1);
  EXPECT_EQ(other->others(1), (Lists{{2, 0, 1}, {2, 3, 2}}));
  EXPECT_EQ(other->others(9), (Lists{{2, 3, 1}}));
  EXPECT_EQ(other->others(2), Lists{});
  EXPECT_EQ(one->others(1), Lists{}) << "it knows its own";
  one->count(1, 2, 3, -1);
  EXPECT_EQ(other->others(1), (Lists{{2, 0, 1}, {2, 3, 1}}));
  struct stat status {};
  ASSERT_EQ(::stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
}

TEST_F(SharesTableTest, TheSlotOfAProcessThatHasEndedCountsNoMoreAndIsUsedAgain) {
  auto one = process();
  const auto other = process();
  one->count(1, 2, 3, 1);
  other->count(1, 4, 0, 1);
  one.reset();
  EXPECT_EQ(other->others(1), Lists{});
  const auto next = process();
  next->count(8, 9, 0, 1);
  EXPECT_EQ(std::filesystem::file_size(path()), 2 * kPlaceSize);
  EXPECT_EQ(other->others(1), Lists{});
  EXPECT_EQ(other->others(8), (Lists{{9, 0, 1}}));
}

// However it ends, and whatever its children do meanwhile.
TEST_F(SharesTableTest, AProcessThatWasKilledCountsNoMore) {
  int ready[2], left[2];
  ASSERT_EQ(::pipe(ready) | ::pipe(left), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto own = process();
    own->count(1, 2, 3, 1);
    ::close(left[1]);
    char byte = 0;
    if (::fork() == 0) {
      (void)!::write(ready[1], &byte, 1);  // its copy of the descriptor is closed by now
      (void)!::read(left[0], &byte, 1);
      ::_exit(0);
    }
    for (;;) ::pause();
  }
  ::close(left[0]);
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const auto other = process();
  EXPECT_EQ(other->others(1), (Lists{{2, 3, 1}}));
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(other->others(1), Lists{});
  for (const int fd : {ready[0], ready[1], left[1]}) ::close(fd);
}

TEST_F(SharesTableTest, OneProcessAtATimeHasItsTurn) {
  const auto one = process(), other = process();
  {
    const SharesTable::Turn first(one.get());
    ASSERT_TRUE(first.is_held());
    EXPECT_FALSE(SharesTable::Turn(other.get()).is_held()) << "it goes on without";
    EXPECT_FALSE(SharesTable::Turn(other.get()).is_held());
  }
  EXPECT_TRUE(SharesTable::Turn(other.get()).is_held());
  EXPECT_FALSE(SharesTable::Turn(nullptr).is_held());
}

TEST_F(SharesTableTest, ADamagedSlotIsLeftOut) {
  const auto one = process(), two = process(), other = process();
  one->count(1, 2, 0, 1);
  two->count(1, 3, 0, 1);
  ShareRecord damaged = record(0);
  damaged.groups[1][0] = 5;
  put(0, damaged);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(other->others(1), (Lists{{3, 0, 1}}));
  EXPECT_EQ(other->others(1), (Lists{{3, 0, 1}}));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("is damaged"), std::string::npos) << said;
  EXPECT_EQ(said.find("is damaged"), said.rfind("is damaged")) << "it is said once";
  one->count(1, 2, 0, 1);
  EXPECT_EQ(other->others(1), (Lists{{2, 0, 2}, {3, 0, 1}})) << "its process has written it anew";
}

// Another build may mean something else by it.
TEST_F(SharesTableTest, ASlotOfAnotherVersionIsLeftOut) {
  const auto one = process(), other = process();
  one->count(1, 2, 0, 1);
  ShareRecord newer = record(0);
  newer.layout_version++;
  seal(newer);
  put(0, newer);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(other->others(1), Lists{});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(SharesTableTest, AFileThatCannotBeBelievedIsLeftAlone) {
  process()->count(1, 2, 0, 1);
  const auto is_refused = [&](const std::string& why) {
    const auto one = process();
    ::testing::internal::CaptureStderr();
    EXPECT_FALSE(SharesTable::Turn(one.get()).is_held());
    one->count(1, 2, 0, 1);
    EXPECT_EQ(one->others(1), Lists{});
    const std::string said = ::testing::internal::GetCapturedStderr();
    return said.find(why) != std::string::npos && said.find('\n') == said.size() - 1;
  };
  ASSERT_EQ(::chmod(path().c_str(), 0622), 0);
  EXPECT_TRUE(is_refused("others may write to it"));
  ASSERT_EQ(::chmod(path().c_str(), 0600), 0);
  ASSERT_EQ(::link(path().c_str(), (base_ + "/second").c_str()), 0);
  EXPECT_TRUE(is_refused("it has a second name"));
  ASSERT_EQ(::unlink(path().c_str()), 0);
  ASSERT_EQ(::symlink((base_ + "/second").c_str(), path().c_str()), 0);
  EXPECT_TRUE(is_refused("Too many levels of symbolic links"));
  ASSERT_EQ(::unlink(path().c_str()), 0);
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  EXPECT_TRUE(is_refused("it is no regular file"));
  ASSERT_EQ(::unlink(path().c_str()), 0);
  ASSERT_EQ(::chmod(user_directory(base_, ::geteuid()).c_str(), 0770), 0);
  EXPECT_TRUE(is_refused("others may enter it"));
}

TEST_F(SharesTableTest, AFileThatWasRemovedIsMadeAnew) {
  const auto one = process(), other = process();
  one->count(1, 2, 0, 1);
  other->count(1, 3, 0, 1);
  ASSERT_EQ(::unlink(path().c_str()), 0);
  one->count(1, 2, 0, 1);
  other->count(1, 3, 0, 1);
  EXPECT_EQ(one->others(1), (Lists{{3, 0, 2}}));
  EXPECT_EQ(other->others(1), (Lists{{2, 0, 2}}));
}

// As when a program starts as a daemon.
TEST_F(SharesTableTest, ADescriptorThatTheProgramHasClosedIsNotUsed) {
  const auto one = process();
  one->count(1, 2, 0, 1);
  struct stat table {
  }, status{};
  ASSERT_EQ(::stat(path().c_str(), &table), 0);
  int number = 0;
  while (::fstat(number, &status) != 0 || status.st_ino != table.st_ino) ASSERT_LT(++number, 1024);
  const std::string name = base_ + "/of-the-program";
  const int own = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::dup3(own, number, O_CLOEXEC), number);
  one->count(1, 2, 0, 1);
  EXPECT_EQ(one->others(1), Lists{});
  EXPECT_FALSE(SharesTable::Turn(one.get()).is_held());
  EXPECT_EQ(std::filesystem::file_size(name), 0u);
  ::close(own);
}

// A limit for files kills whoever writes behind it.
TEST_F(SharesTableTest, WhatCannotBeWrittenCostsOneLine) {
  const auto one = process(), other = process();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  other->count(9, 2, 0, 1);
  // The first slot is below the limit, and so is what the log says.
  const rlimit little{kPlaceSize, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  ::testing::internal::CaptureStderr();
  one->count(1, 2, 0, 1);
  one->count(1, 2, 0, 1);
  const std::string said = ::testing::internal::GetCapturedStderr();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(said.find("File too large"), std::string::npos) << said;
  EXPECT_EQ(said.find('\n'), said.size() - 1);
  EXPECT_EQ(other->others(1), Lists{});
  one->count(1, 2, 0, 1);
  EXPECT_EQ(other->others(1), (Lists{{2, 0, 3}}));
}

// The file is bounded, and so is what a slot holds.
TEST_F(SharesTableTest, WhatFindsNoPlaceIsNotTold) {
  const auto one = process(), other = process();
  for (uint64_t nic = 1; nic <= kShareSlots + 1; nic++) one->count(nic, 5000, 0, 1);
  EXPECT_EQ(std::filesystem::file_size(path()), kShareSlots * kPlaceSize);
  EXPECT_EQ(other->others(kShareSlots), (Lists{{5000, 0, 1}}));
  EXPECT_EQ(other->others(kShareSlots + 1), Lists{});
  for (uint64_t spare = 5001; spare < 5000 + kMembers; spare++) one->count(1, spare, 0, 1);
  EXPECT_EQ(other->others(1).size(), kMembers - 1);
  one->count(2, 5000, 0, 70000);
  EXPECT_EQ(other->others(2), (Lists{{5000, 0, 65535}}));
  one->count(2, 5000, 0, -69993);
  EXPECT_EQ(other->others(2), (Lists{{5000, 0, 8}}));
}

}  // namespace
}  // namespace shift::state
