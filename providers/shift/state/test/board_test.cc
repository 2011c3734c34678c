// Tests what a process tells of itself, and where: that it is whole, private and bounded, that it
// outlives a crash, and that nothing stops the program.
#include "state/board.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include "state/directory.h"
#include "state/totals.h"

namespace shift::state {
namespace {

namespace fs = std::filesystem;

class BoardTest : public ::testing::Test {
 protected:
  BoardTest() {
    char name[] = "/tmp/shift-board-XXXXXX";
    base_ = ::mkdtemp(name);
  }
  ~BoardTest() override {
    std::error_code ignored;
    fs::remove_all(base_, ignored);
  }

  static ProcessRecord about() {
    ProcessRecord record;
    text_set(record.version, "1.2.3");
    return record;
  }
  std::unique_ptr<Board> board() { return std::make_unique<Board>(base_, about); }
  std::string folder() const { return user_directory(base_, ::geteuid()); }
  std::vector<std::string> files(const char* end = kStateEnd) const {
    std::vector<std::string> found;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder(), ignored))
      if (entry.path().string().ends_with(end)) found.push_back(entry.path());
    return found;
  }
  template <typename Record>
  static Record read(const std::string& path, size_t place) {
    Record record;
    std::memset(static_cast<void*>(&record), 0xff, sizeof record);
    const int fd = ::open(path.c_str(), O_RDONLY);
    const ssize_t n = ::pread(fd, &record, sizeof record, static_cast<off_t>(place * kPlaceSize));
    EXPECT_EQ(n, static_cast<ssize_t>(sizeof record));
    ::close(fd);
    return record;
  }
  TotalsRecord totals() const { return read<TotalsRecord>(folder() + "/" + kTotalsName, 0); }
  static GroupRecord group(uint32_t qpn) {
    GroupRecord record;
    record.qpn = qpn;
    return record;
  }
  static FaultRecord fault(uint32_t qpn) {
    FaultRecord record;
    record.qpn = qpn;
    return record;
  }
  // Runs this in a process of its own, which ends with `status`, or by SIGKILL with -1.
  template <typename What>
  static void in_child(const What& what, int status) {
    const pid_t child = ::fork();
    if (child == 0) {
      what();
      if (status < 0) ::kill(::getpid(), SIGKILL);
      ::_exit(status);
    }
    int ended = 0;
    ASSERT_EQ(::waitpid(child, &ended, 0), child);
    ASSERT_TRUE(status < 0 ? WIFSIGNALED(ended) : WIFEXITED(ended) && WEXITSTATUS(ended) == status);
  }

  std::string base_;
};

TEST_F(BoardTest, NothingIsMadeBeforeTheFirstNotice) {
  const auto one = board();
  one->count([](Counters& counters) { counters.replayed++; });
  one->flush();
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(BoardTest, WithoutAFolderNothingIsTold) {
  Board off("", about);
  off.group_set(1, group(7));
  EXPECT_EQ(off.stem(), "");
}

TEST_F(BoardTest, WhatIsToldIsWholeAndForTheUserAlone) {
  const auto one = board();
  one->count([](Counters& counters) { counters.replayed = 3; });
  DeviceRecord device;
  device.members = 2;
  one->device_set(10, device);
  one->group_set(1, group(0x11));
  one->group_set(2, group(0x12));
  one->group_set(1, group(0x13));  // the same QP again
  one->faults_add(std::vector{fault(0x11)});
  one->flush();
  ASSERT_EQ(files().size(), 1u);
  const std::string path = files()[0];
  EXPECT_EQ(path, one->stem() + kStateEnd);
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  EXPECT_EQ(status.st_size % static_cast<off_t>(kPlaceSize), 0);
  ASSERT_EQ(::stat(folder().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700u);
  const auto process = read<ProcessRecord>(path, 0);
  ASSERT_TRUE(is_whole(process));
  EXPECT_EQ(process.pid, static_cast<uint32_t>(::getpid()));
  EXPECT_EQ(text_of(process.version), "1.2.3");
  EXPECT_FALSE(text_of(process.command).empty());
  EXPECT_EQ(process.faults, 1u);
  EXPECT_EQ(process.counters.replayed, 3u) << "counted before there was a file";
  EXPECT_TRUE(is_whole(read<DeviceRecord>(path, kDevicesBegin)));
  EXPECT_EQ(read<GroupRecord>(path, kGroupsBegin).qpn, 0x13u);
  EXPECT_EQ(read<GroupRecord>(path, kGroupsBegin + 1).qpn, 0x12u);
  EXPECT_TRUE(is_whole(read<FaultRecord>(path, kFaultsBegin)));
}

TEST_F(BoardTest, PlacesAreUsedAgainAndBounded) {
  const auto one = board();
  one->group_set(1, group(1));
  one->group_gone(1);
  const std::string path = one->stem() + kStateEnd;
  EXPECT_EQ(read<GroupRecord>(path, kGroupsBegin).head.kind, Kind::kFree);
  one->group_gone(1);
  one->group_set(2, group(2));
  EXPECT_EQ(read<GroupRecord>(path, kGroupsBegin).qpn, 2u);
  for (uint64_t i = 0; i < kGroups + 5; i++) one->group_set(100 + i, group(9));
  for (uint64_t i = 0; i < kDevices + 1; i++) one->device_set(i, {});
  one->faults_add(std::vector{fault(0)});
  std::vector<FaultRecord> many;
  for (uint32_t i = 1; i < kFaults + 3; i++) many.push_back(fault(i));
  one->faults_add(many);
  one->flush();
  const auto process = read<ProcessRecord>(path, 0);
  EXPECT_EQ(process.lost_groups, 6u);
  EXPECT_EQ(process.lost_devices, 1u);
  EXPECT_EQ(process.faults, kFaults + 3);
  EXPECT_EQ(read<FaultRecord>(path, kFaultsBegin + 2).qpn, kFaults + 2);
  EXPECT_EQ(read<FaultRecord>(path, kFaultsBegin + 3).qpn, 3u);
  EXPECT_LE(fs::file_size(path), kFileMax);
}

TEST_F(BoardTest, ManyQpsAreToldTogether) {
  const auto one = board();
  for (uint64_t serial : {1, 2, 3, 4}) one->group_set(serial, group(9));
  one->group_gone(2);
  // They come in any order, with gaps between their places, and some are new.
  std::vector<Board::GroupNotice> notices;
  for (uint64_t serial : {4, 1, 7, 8, 3})
    notices.push_back({serial, group(static_cast<uint32_t>(serial))});
  one->groups_set(notices);
  one->groups_set({});
  const std::string path = one->stem() + kStateEnd;
  for (const auto& [place, qpn] :
       std::map<size_t, uint32_t>{{0, 1}, {1, 7}, {2, 3}, {3, 4}, {4, 8}}) {
    const auto record = read<GroupRecord>(path, kGroupsBegin + place);
    EXPECT_TRUE(is_whole(record)) << place;
    EXPECT_EQ(record.qpn, qpn) << place;
  }
}

TEST_F(BoardTest, AnOrderlyEndLeavesOnlyItsCounts) {
  for (uint64_t i = 1; i <= 2; i++) {
    const auto one = board();
    one->group_set(1, group(1));
    one->count([i](Counters& counters) {
      counters.replayed = i;
      counters.switches[2] = 10;
    });
    one->end();
    one->group_set(2, group(2));  // nobody is told any more
    one->flush();
  }
  EXPECT_TRUE(files().empty());
  ASSERT_TRUE(is_whole(totals()));
  EXPECT_EQ(totals().processes, 2u);
  EXPECT_EQ(totals().counters.replayed, 3u);
  EXPECT_EQ(totals().counters.switches[2], 20u);
}

TEST_F(BoardTest, ACrashLeavesTheFileUnlocked) {
  in_child(
      [this] {
        const auto one = board();
        one->group_set(1, group(0x77));
        one->flush();
      },
      -1);
  ASSERT_EQ(files().size(), 1u);
  EXPECT_EQ(read<GroupRecord>(files()[0], kGroupsBegin).qpn, 0x77u);
  const int fd = ::open(files()[0].c_str(), O_RDONLY);
  struct flock lock {};
  lock.l_type = F_RDLCK;
  ASSERT_EQ(::fcntl(fd, F_GETLK, &lock), 0);
  EXPECT_EQ(lock.l_type, F_UNLCK);
  ::close(fd);
}

TEST_F(BoardTest, OfManyCrashedProcessesTheNewestStay) {
  constexpr size_t kMore = 5;
  for (size_t i = 0; i < kEndedKept + kMore; i++) {
    in_child(
        [this] {
          const auto one = board();
          one->count([](Counters& counters) { counters.completed = 2; });
          one->group_set(1, group(1));
          one->flush();
        },
        -1);
  }
  ended_fold(base_, ::geteuid());
  EXPECT_EQ(files().size(), kEndedKept);
  EXPECT_EQ(totals().counters.completed + 2 * files().size(), 2 * (kEndedKept + kMore));
}

// The test's own close() would take the lock away, so it reads the file last.
TEST_F(BoardTest, AForkedChildLeavesTheParentsFileAlone) {
  const auto one = board();
  one->group_set(1, group(1));
  const std::string path = one->stem() + kStateEnd;
  const int fd = ::open(path.c_str(), O_RDONLY);
  in_child([&] { one->group_set(1, group(2)); }, 0);
  in_child(
      [fd] {
        struct flock lock {};
        lock.l_type = F_RDLCK;
        ::_exit(::fcntl(fd, F_GETLK, &lock) == 0 && lock.l_pid == ::getppid() ? 5 : 6);
      },
      5);
  EXPECT_EQ(read<GroupRecord>(path, kGroupsBegin).qpn, 1u);
}

// A daemon closes what it does not know, and gives the numbers to files of its own.
TEST_F(BoardTest, AFileOfTheProgramsOwnIsNotWrittenTo) {
  in_child(
      [this] {
        const auto one = board();
        one->group_set(1, group(1));
        const std::string own = base_ + "/own";
        const int victim = ::open(own.c_str(), O_RDWR | O_CREAT, 0600);
        for (int fd = 3; fd < 1024; fd++)
          if (fd != victim) ::dup2(victim, fd);
        one->group_set(1, group(2));
        one->faults_add(std::vector{fault(1)});
        one->end();
        ::_exit(fs::file_size(own) == 0 ? 7 : 8);
      },
      7);
}

TEST_F(BoardTest, AFolderOfSomebodyElsesIsNotUsed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a folder of another user's";
  ASSERT_EQ(::mkdir(folder().c_str(), 0700), 0);
  ASSERT_EQ(::chown(folder().c_str(), 12345, 12345), 0);
  const auto one = board();
  one->group_set(1, group(1));
  EXPECT_EQ(one->stem(), "");
  EXPECT_TRUE(fs::is_empty(folder()));
}

TEST_F(BoardTest, AFolderThatOthersMayEnterIsNotUsed) {
  ASSERT_EQ(::mkdir(folder().c_str(), 0700), 0);
  ASSERT_EQ(::chmod(folder().c_str(), 0755), 0);
  EXPECT_EQ(board()->stem(), "");
  ASSERT_EQ(::rmdir(folder().c_str()), 0);
  const std::string other = base_ + "/elsewhere";
  ASSERT_EQ(::mkdir(other.c_str(), 0700), 0);
  ASSERT_EQ(::symlink(other.c_str(), folder().c_str()), 0);
  EXPECT_EQ(board()->stem(), "");
  EXPECT_TRUE(fs::is_empty(other));
}

TEST_F(BoardTest, AMissingOrUnwritableBaseIsBorne) {
  Board missing("/proc/no/such/place", about);
  missing.group_set(1, group(1));
  EXPECT_EQ(missing.stem(), "");
}

// The kernel kills a process that writes behind this limit.
TEST_F(BoardTest, ALimitOnFilesEndsNothing) {
  in_child(
      [this] {
        const rlimit limit{4096, 4096};
        ::setrlimit(RLIMIT_FSIZE, &limit);
        const auto one = board();
        for (uint32_t i = 0; i < 10; i++) one->group_set(i, group(i));
        one->flush();
      },
      9);
}

TEST_F(BoardTest, AFullDiskIsBorne) {
  if (::geteuid() != 0 || ::mount("tmpfs", base_.c_str(), "tmpfs", 0, "size=16k") != 0)
    GTEST_SKIP() << "only root can mount a small file system: " << std::strerror(errno);
  {
    const auto one = board();
    for (uint64_t i = 0; i < 1000; i++) one->group_set(i, group(static_cast<uint32_t>(i)));
    for (uint64_t i = 0; i < 1000; i++) one->group_gone(i);
    one->flush();
    one->end();
  }
  EXPECT_TRUE(files().empty());
  ::umount(base_.c_str());
}

// Two builds of the layer in one process: neither takes the other's lock.
TEST_F(BoardTest, TwoBoardsOfOneProcessKeepTheirLocks) {
  const auto one = board(), other = board();
  one->group_set(1, group(1));
  other->group_set(1, group(2));
  for (int i = 0; i < 20; i++) in_child([this] { board()->group_set(1, group(3)); }, 4);
  board()->group_set(1, group(4));
  const int fd = ::open((one->stem() + kStateEnd).c_str(), O_RDONLY);
  in_child(
      [fd] {
        struct flock lock {};
        lock.l_type = F_RDLCK;
        ::_exit(::fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK ? 5 : 6);
      },
      5);
}

class OrdersTest : public BoardTest {
 protected:
  void write(const std::string& path, const std::string& text, mode_t mode = 0600) {
    std::ofstream(path) << text;
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
  }
  std::set<std::string> drained() { return drained_read(base_, ::geteuid(), problem_); }
  std::string problem_;
};

TEST_F(OrdersTest, BothFilesCount) {
  EXPECT_TRUE(drained().empty());
  EXPECT_EQ(problem_, "") << "no order is no mistake";
  ASSERT_EQ(::mkdir(folder().c_str(), 0700), 0);
  write(folder() + "/" + kDrainedName, "# by hand\n mlx5_1 \n\nbad name\n../x\nmlx5_2");
  EXPECT_EQ(drained(), (std::set<std::string>{"mlx5_1", "mlx5_2"}));
  write(base_ + "/" + kHostDrainedName, "mlx5_0\n", 0644);
  const bool is_root = ::geteuid() == 0;
  EXPECT_EQ(drained().contains("mlx5_0"), is_root) << "only root speaks for all";
  EXPECT_EQ(problem_.empty(), is_root);
}

TEST_F(OrdersTest, WhatAnybodyCouldHaveWrittenIsNoOrder) {
  ASSERT_EQ(::mkdir(folder().c_str(), 0700), 0);
  const std::string path = folder() + "/" + kDrainedName;
  write(path, "mlx5_1\n", 0666);
  EXPECT_TRUE(drained().empty());
  EXPECT_NE(problem_.find("others may write"), std::string::npos) << problem_;
  ASSERT_EQ(::unlink(path.c_str()), 0);
  write(base_ + "/real", "mlx5_1\n");
  ASSERT_EQ(::symlink((base_ + "/real").c_str(), path.c_str()), 0);
  EXPECT_TRUE(drained().empty());
  ASSERT_EQ(::unlink(path.c_str()), 0);
  ASSERT_EQ(::link((base_ + "/real").c_str(), path.c_str()), 0);
  EXPECT_TRUE(drained().empty());
  ASSERT_EQ(::unlink(path.c_str()), 0);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_TRUE(drained().empty()) << "and nobody waits for a writer";
  ASSERT_EQ(::chmod(folder().c_str(), 0755), 0);
  EXPECT_TRUE(drained().empty());
}

}  // namespace
}  // namespace shift::state
