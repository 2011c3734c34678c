// Tests log lines and event records, which are read back from the descriptors that they go to.
#include "util/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace shift {
namespace {

// Puts a pipe in the place of stderr until the end of the scope.
class StderrPipe {
 public:
  explicit StderrPipe(int flags = O_NONBLOCK) {
    EXPECT_EQ(pipe2(ends_, O_CLOEXEC | flags), 0);
    saved_ = dup(STDERR_FILENO);
    dup2(ends_[1], STDERR_FILENO);
    ::close(ends_[1]);
  }
  ~StderrPipe() {
    dup2(saved_, STDERR_FILENO);
    ::close(saved_);
    close_reader();
  }
  void close_reader() {
    if (ends_[0] >= 0) ::close(ends_[0]);
    ends_[0] = -1;
  }
  std::string text() {
    char buffer[8192];
    const ssize_t n = read(ends_[0], buffer, sizeof buffer);
    return n > 0 ? std::string(buffer, static_cast<size_t>(n)) : std::string();
  }

 private:
  int ends_[2];
  int saved_;
};

TEST(Log, OneLineWithPidAndLevel) {
  StderrPipe err;
  SHIFT_WARN("qp %#x lost", 0x12);
  EXPECT_EQ(err.text(), "shift[" + std::to_string(getpid()) + "]: warn: qp 0x12 lost\n");
}

TEST(Log, LevelHidesWhatIsBelow) {
  StderrPipe err;
  int evaluated = 0;
  SHIFT_INFO("%d", ++evaluated);
  EXPECT_EQ(err.text(), "");
  EXPECT_EQ(evaluated, 0);
  log_set_level(LogLevel::kInfo);
  SHIFT_INFO("%d", ++evaluated);
  log_set_level(LogLevel::kWarn);
  EXPECT_EQ(evaluated, 1);
  EXPECT_NE(err.text().find("info: 1\n"), std::string::npos);
}

TEST(Log, KeepsErrnoAndCutsLongLines) {
  StderrPipe err;
  errno = ENOENT;
  SHIFT_ERROR("%s", std::string(5000, 'x').c_str());
  EXPECT_EQ(errno, ENOENT);
  const std::string text = err.text();
  EXPECT_LE(text.size(), 1024u);
  EXPECT_EQ(text.back(), '\n');
}

TEST(Log, ClosedPipeDoesNotKillTheProgram) {
  StderrPipe err;
  err.close_reader();
  errno = 0;
  SHIFT_WARN("into the void");
  EXPECT_EQ(errno, 0);
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
}

// The program has blocked the signal and got one of its own: that one stays.
TEST(Log, ASignalOfTheProgramStaysPending) {
  sigset_t pipe_only, old, pending;
  sigemptyset(&pipe_only);
  sigaddset(&pipe_only, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_only, &old);
  raise(SIGPIPE);
  {
    StderrPipe err;
    err.close_reader();
    SHIFT_WARN("into the void");
  }
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 1);
  const struct timespec now = {0, 0};
  sigtimedwait(&pipe_only, nullptr, &now);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

// A file at its limit would raise SIGXFSZ, which ends a program by default.
TEST(Log, AFileAtItsLimitDoesNotEndTheProgram) {
  const std::string path = ::testing::TempDir() + "shift_limit_" + std::to_string(getpid());
  const pid_t child = fork();
  if (child == 0) {
    const struct rlimit limit = {100, 100};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || events_open(path.c_str()) != nullptr) _exit(2);
    signal(SIGXFSZ, SIG_DFL);
    errno = ENOENT;
    for (int i = 0; i < 5; i++) SHIFT_EVENT("long", {{"detail", "much more than fits"}});
    sigset_t pending;
    sigpending(&pending);
    _exit(errno == ENOENT && sigismember(&pending, SIGXFSZ) == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(std::filesystem::file_size(path), 100u);
  unlink(path.c_str());
}

// A reader that stands still must not hold the program up.
TEST(Log, AFullPipeIsNotWaitedFor) {
  StderrPipe err(0);
  alarm(10);
  errno = ENOENT;
  for (int i = 0; i < 1000; i++) SHIFT_WARN("%s", std::string(500, 'x').c_str());
  EXPECT_EQ(errno, ENOENT);
  alarm(0);
  EXPECT_NE(err.text().find("xxx\n"), std::string::npos);
}

TEST(Log, LimitLetsOneThroughAndCountsTheRest) {
  LogLimit limit(1);
  int allowed = 0;
  for (int i = 0; i < 1000; i++) allowed += limit.allow();
  EXPECT_GE(allowed, 1);
  EXPECT_LE(allowed, 2);  // the second may turn within the loop
}

TEST(Log, WhatTheLimitHeldBackIsCountedOnce) {
  LogLimit limit(1);
  uint64_t suppressed = 0;
  // At most one line a second: of several lines within one second, all but one are held back.
  uint64_t held_back = 0;
  while (held_back < 3) held_back += !limit.allow(&suppressed);
  EXPECT_EQ(suppressed, 0u);
  const auto next = [&] {
    suppressed = ~uint64_t{0};
    while (!limit.allow(&suppressed)) held_back++;
    return suppressed;
  };
  EXPECT_EQ(next(), held_back);
  held_back = 0;
  EXPECT_EQ(next(), held_back);
}

TEST(Event, JsonLineWithEscapes) {
  const std::string path = ::testing::TempDir() + "shift_events_" + std::to_string(getpid());
  ASSERT_EQ(events_open(path.c_str()), nullptr);
  errno = EIO;
  SHIFT_EVENT("switch", {{"qp", 7u}, {"epoch", -1}, {"detail", "a\"b\\c\n"}});
  SHIFT_EVENT("long", {{"detail", std::string(5000, '"')}, {"after", 1}});
  EXPECT_EQ(errno, EIO);
  events_close();
  SHIFT_EVENT("unseen", {});
  std::ifstream in(path);
  std::string first, second, third;
  std::getline(in, first);
  std::getline(in, second);
  EXPECT_FALSE(std::getline(in, third));
  unlink(path.c_str());
  EXPECT_EQ(first.rfind("{\"t_ns\":", 0), 0u);
  EXPECT_NE(
      first.find("\"event\":\"switch\",\"qp\":7,\"epoch\":-1,\"detail\":\"a\\\"b\\\\c\\u000a\"}"),
      std::string::npos)
      << first;
  EXPECT_EQ(second.substr(second.size() - 2), "\"}");
}

// Reads how many whole records the file has.
size_t records_in(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  size_t count = 0;
  while (std::getline(in, line)) count += line.starts_with("{\"t_ns\":") && line.ends_with('}');
  return count;
}

class GatheredEvents : public ::testing::Test {
 protected:
  GatheredEvents() { EXPECT_EQ(events_open(path_.c_str()), nullptr); }
  ~GatheredEvents() override {
    events_close();
    unlink(path_.c_str());
  }
  const std::string path_ = ::testing::TempDir() + "shift_gathered_" + std::to_string(getpid());
};

TEST_F(GatheredEvents, WaitForTheEndOfTheTurn) {
  std::thread([this] {
    events_gather();
    for (int i = 0; i < 3; i++) SHIFT_EVENT("one", {{"i", i}});
    EXPECT_EQ(records_in(path_), 0u);
    std::thread([] { SHIFT_EVENT("other", {}); }).join();
    EXPECT_EQ(records_in(path_), 1u) << "another thread's records do not wait";
    errno = EIO;
    events_flush();
    EXPECT_EQ(errno, EIO);
    EXPECT_EQ(records_in(path_), 4u);
    events_flush();
    EXPECT_EQ(records_in(path_), 4u) << "each is written once";
  }).join();
}

TEST_F(GatheredEvents, ManyDoNotWait) {
  std::thread([this] {
    events_gather();
    for (int i = 0; i < 1000; i++) SHIFT_EVENT("long", {{"detail", std::string(1000, 'x')}});
    EXPECT_GT(records_in(path_), 900u);
    events_flush();
    EXPECT_EQ(records_in(path_), 1000u);
  }).join();
}

// A program may end while the thread is in the middle of a turn, and a child that was forked then
// has none of its records.
TEST_F(GatheredEvents, AreWrittenWhenTheProcessExits) {
  for (const bool is_forked : {false, true}) {
    const pid_t child = fork();
    if (child == 0) {
      std::thread thread([] {
        events_gather();
        SHIFT_EVENT("last", {});
      });
      thread.join();
      if (is_forked && fork() != 0) _exit(wait(nullptr) > 0 ? 0 : 1);
      exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    EXPECT_EQ(records_in(path_), 1u) << is_forked;
  }
}

TEST(Event, UnopenableFileIsReported) {
  EXPECT_STREQ(events_open("/nonexistent-directory/events"), strerror(ENOENT));
  EXPECT_FALSE(events_enabled());
}

// In a folder like /tmp, others may make a link or a FIFO of the file's name beforehand.
TEST(Event, OnlyARegularFileIsWrittenTo) {
  const std::string path = ::testing::TempDir() + "shift_trap_" + std::to_string(getpid());
  const std::string target = path + "_target";
  ASSERT_EQ(symlink(target.c_str(), path.c_str()), 0);
  EXPECT_STREQ(events_open(path.c_str()), "it is a symbolic link");
  EXPECT_NE(access(target.c_str(), F_OK), 0);
  unlink(path.c_str());

  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_NE(events_open(path.c_str()), nullptr) << "it does not wait for a reader";
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  EXPECT_STREQ(events_open(path.c_str()), "it is no regular file");
  close(reader);
  unlink(path.c_str());
  EXPECT_FALSE(events_enabled());
}

// A folder in which everybody may make files. It has no sticky bit, since the kernel itself may
// refuse files of others where there is one.
class CommonFolder {
 public:
  CommonFolder() : path_(::testing::TempDir() + "shift_common_XXXXXX") {
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
    EXPECT_EQ(chmod(path_.c_str(), 0777), 0);
  }
  ~CommonFolder() { std::filesystem::remove_all(path_); }
  // A file that everybody may write to.
  std::string file_make(const char* name) const {
    std::string file = path_ + "/" + name;
    std::ofstream(file) << "mine\n";
    EXPECT_EQ(chmod(file.c_str(), 0666), 0);
    return file;
  }

 private:
  std::string path_;
};

void expect_refused(const std::string& path, const char* why) {
  EXPECT_STREQ(events_open(path.c_str()), why);
  EXPECT_FALSE(events_enabled());
  events_close();
  EXPECT_EQ(std::filesystem::file_size(path), 5u);
}

// Somebody else made the name, and records would end up in a file of this user that is none.
TEST(Event, ASecondNameOfAFileIsNotWrittenTo) {
  const CommonFolder folder;
  const std::string target = folder.file_make("target"), name = target + ".events";
  ASSERT_EQ(link(target.c_str(), name.c_str()), 0);
  expect_refused(name, "it has a second name (a hard link)");
  unlink(target.c_str());
  EXPECT_EQ(events_open(name.c_str()), nullptr) << "records are appended to a file that is there";
  events_close();
}

TEST(Event, AFileOfAnotherUserIsNotWrittenTo) {
  if (getuid() != 0) GTEST_SKIP() << "needs root, which may make another user's file";
  constexpr uid_t kNobody = 65534;
  const CommonFolder folder;
  const std::string of_root = folder.file_make("root"), of_other = folder.file_make("other");
  ASSERT_EQ(chown(of_other.c_str(), kNobody, kNobody), 0);
  expect_refused(of_other, "it belongs to another user");
  // The user that counts is the one as whom the process writes: it makes the file's owner, too.
  ASSERT_EQ(seteuid(kNobody), 0);
  expect_refused(of_root, "it belongs to another user");
  const char* const problem = events_open(of_other.c_str());
  EXPECT_EQ(seteuid(0), 0);
  EXPECT_EQ(problem, nullptr);
  events_close();
}

TEST(Event, TheFileIsItsOwnersAlone) {
  const std::string path = ::testing::TempDir() + "shift_mode_" + std::to_string(getpid());
  const mode_t before = umask(0);
  ASSERT_EQ(events_open(path.c_str()), nullptr);
  umask(before);
  events_close();
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  unlink(path.c_str());
}

}  // namespace
}  // namespace shift
