// Tests the targets of log lines: daemons that are full, away and back, and files that are not to
// be written to.
#include "util/log_target.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace shift {
namespace {

// A datagram socket in the place of a daemon's.
class Daemon {
 public:
  explicit Daemon(const std::string& path) : path_(path) { start(); }
  ~Daemon() { stop(); }
  void start() {
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << path_;
  }
  void stop() {
    close(fd_);
    unlink(path_.c_str());
  }
  // The next datagram; nothing: none is there.
  std::optional<std::string> next() const {
    char buffer[8192];
    const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
    if (n < 0) return std::nullopt;
    return std::string(buffer, static_cast<size_t>(n));
  }
  std::vector<std::string> all() const {
    std::vector<std::string> texts;
    while (const auto text = next()) texts.push_back(*text);
    return texts;
  }

 private:
  std::string path_;
  int fd_ = -1;
};

class LogTargetTest : public ::testing::Test {
 protected:
  LogTargetTest() : folder_(::testing::TempDir() + "shift_target_XXXXXX") {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    socket_ = folder_ + "/socket";
  }
  ~LogTargetTest() override {
    log_target_set("stderr");
    std::filesystem::remove_all(folder_);
  }

  const char* set(const char* target, bool is_privileged = false) {
    return log_target_set(target, is_privileged, {socket_.c_str(), socket_.c_str()});
  }
  static std::string pid() { return std::to_string(getpid()); }
  static std::string said(const std::function<void()>& what) {
    ::testing::internal::CaptureStderr();
    what();
    return ::testing::internal::GetCapturedStderr();
  }
  static std::string text_of(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  // What a child's exit status is, in which `what` runs.
  static int in_child(const std::function<int()>& what) {
    const pid_t child = fork();
    if (child == 0) _exit(what());
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  std::string folder_, socket_;
};

TEST_F(LogTargetTest, TheSystemLogGetsPriorityNameAndPid) {
  const Daemon daemon(socket_);
  ASSERT_EQ(set("syslog"), nullptr);
  errno = ENOENT;
  EXPECT_EQ(said([] {
              SHIFT_WARN("qp %#x lost", 0x12);
              log_write(LogLevel::kError, "e");
              log_write(LogLevel::kInfo, "i");
              log_write(LogLevel::kDebug, "d");
            }),
            "");
  EXPECT_EQ(errno, ENOENT);
  const std::string name = "shift[" + pid() + "]: ";
  EXPECT_EQ(daemon.all(), (std::vector<std::string>{
                              "<12>" + name + "warn: qp 0x12 lost", "<11>" + name + "error: e",
                              "<14>" + name + "info: i", "<15>" + name + "debug: d"}));
}

TEST_F(LogTargetTest, TheJournalGetsFields) {
  const Daemon daemon(socket_);
  ASSERT_EQ(set("journal"), nullptr);
  SHIFT_WARN("a");
  EXPECT_EQ(daemon.next(),
            "PRIORITY=4\nSYSLOG_IDENTIFIER=shift\nSYSLOG_PID=" + pid() + "\nMESSAGE=warn: a\n");
}

// A name that somebody else chose must not add fields to the journal, nor lines to a file.
TEST_F(LogTargetTest, ControlCharactersAreHidden) {
  const Daemon daemon(socket_);
  ASSERT_EQ(set("journal"), nullptr);
  SHIFT_WARN("%s", "a\nPRIORITY=0\tb\x1b[1m\x7f\xc3\xa9");
  EXPECT_TRUE(daemon.next()->ends_with("\nMESSAGE=warn: a?PRIORITY=0?b?[1m?\xc3\xa9\n"));
  log_target_set("stderr");
  EXPECT_EQ(said([] { SHIFT_WARN("%s", "a\nb"); }), "shift[" + pid() + "]: warn: a?b\n");
}

TEST_F(LogTargetTest, ALongLineIsCut) {
  const Daemon daemon(socket_);
  for (const char* target : {"syslog", "journal"}) {
    ASSERT_EQ(set(target), nullptr);
    SHIFT_WARN("%s", std::string(5000, 'x').c_str());
    const std::string text = *daemon.next();
    EXPECT_GT(text.size(), 900u);
    EXPECT_LT(text.size(), 1100u);
    EXPECT_EQ(text.back(), target[0] == 'j' ? '\n' : 'x');
  }
}

// A daemon that stands still holds nobody up, and what it missed is counted.
TEST_F(LogTargetTest, AFullQueueIsNotWaitedForAndIsCounted) {
  const Daemon daemon(socket_);
  ASSERT_EQ(set("syslog"), nullptr);
  alarm(20);
  constexpr size_t kLines = 3000;
  const std::string noise = said([] {
    for (size_t i = 0; i < kLines; i++) SHIFT_WARN("line");
  });
  EXPECT_EQ(noise, "");
  const size_t taken = daemon.all().size();
  ASSERT_LT(taken, kLines) << "this queue never fills";
  SHIFT_WARN("after");
  alarm(0);
  const auto texts = daemon.all();
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_TRUE(
      texts[0].ends_with("warn: log lines lost before this one, because their target was full: " +
                         std::to_string(kLines - taken)))
      << texts[0];
  EXPECT_TRUE(texts[1].ends_with("warn: after"));
  SHIFT_WARN("again");
  EXPECT_EQ(daemon.all().size(), 1u) << "the losses are told once";
}

// While the daemon is away, lines go to stderr; no more than one try a second is made to reach it.
TEST_F(LogTargetTest, ADaemonThatComesBackIsFound) {
  Daemon daemon(socket_);
  for (const char* target : {"syslog", "journal"}) {
    ASSERT_EQ(set(target), nullptr);
    SHIFT_WARN("before");
    EXPECT_EQ(daemon.all().size(), 1u);
    daemon.stop();
    EXPECT_EQ(said([] { SHIFT_WARN("gone"); }), "shift[" + pid() + "]: warn: gone\n");
    daemon.start();
    std::string text;
    while ((text = said([] { SHIFT_WARN("back"); })) != "")
      ASSERT_EQ(text, "shift[" + pid() + "]: warn: back\n");
    const auto texts = daemon.all();
    ASSERT_EQ(texts.size(), 1u);
    EXPECT_NE(texts[0].find("warn: back"), std::string::npos);
  }
}

TEST_F(LogTargetTest, AtMostOneTryASecondIsMade) {
  Daemon daemon(socket_);
  // A machine that stands still for a second between the lines makes it begin again.
  std::string text;
  for (int tries = 0; tries < 3 && text.empty(); tries++) {
    ASSERT_EQ(set("syslog"), nullptr);
    daemon.stop();
    said([] { SHIFT_WARN("gone"); });
    daemon.start();
    text = said([] { SHIFT_WARN("back"); });
  }
  EXPECT_NE(text, "") << "a second try within the second";
}

TEST_F(LogTargetTest, AMissingDaemonIsTheReason) {
  EXPECT_STREQ(set("syslog"), strerror(ENOENT));
  EXPECT_EQ(said([] { SHIFT_WARN("a"); }), "shift[" + pid() + "]: warn: a\n");
  socket_ = folder_ + "/" + std::string(200, 's');
  EXPECT_STREQ(set("journal"), strerror(ENAMETOOLONG));
  EXPECT_STREQ(set(("/" + std::string(5000, 'f')).c_str()), strerror(ENAMETOOLONG));
}

// A program that becomes a daemon closes all descriptors, and may get our number for its own file.
TEST_F(LogTargetTest, ADescriptorOfTheProgramIsNotWrittenTo) {
  const Daemon daemon(socket_);
  const std::string theirs = folder_ + "/theirs", ours = folder_ + "/ours";
  for (const std::string& target : {std::string("syslog"), ours}) {
    ASSERT_EQ(set(target.c_str()), nullptr);
    EXPECT_EQ(in_child([&] {
                for (int fd = 3; fd < 2000; fd++) close(fd);
                const int file = open(theirs.c_str(), O_RDWR | O_CREAT, 0600);
                for (int fd = 700; fd < 900; fd++) dup2(file, fd);
                SHIFT_WARN("after");
                struct stat status {};
                return fstat(file, &status) == 0 && status.st_size == 0 ? 0 : 1;
              }),
              0);
  }
  const auto texts = daemon.all();
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_TRUE(texts[0].ends_with("warn: after"));
  EXPECT_NE(text_of(ours).find("warn: after\n"), std::string::npos);
}

TEST_F(LogTargetTest, AForkedChildWritesUnderItsOwnPid) {
  const Daemon daemon(socket_);
  ASSERT_EQ(set("syslog"), nullptr);
  EXPECT_EQ(in_child([] {
              SHIFT_WARN("child");
              return 0;
            }),
            0);
  const std::string text = daemon.next().value_or("");
  EXPECT_TRUE(text.ends_with("]: warn: child")) << text;
  EXPECT_EQ(text.find("[" + pid() + "]"), std::string::npos) << text;
}

TEST_F(LogTargetTest, AFileGetsLinesWithTheTime) {
  const std::string path = folder_ + "/log";
  ASSERT_EQ(set(path.c_str()), nullptr);
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  SHIFT_WARN("a");
  SHIFT_WARN("b");
  const std::string text = text_of(path);
  std::smatch match;
  const std::regex form(
      R"((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d{6}Z shift\[\d+\]: warn: a\n.* b\n)");
  ASSERT_TRUE(std::regex_match(text, match, form)) << text;
  struct tm told {};
  ASSERT_NE(strptime(match[1].str().c_str(), "%Y-%m-%dT%H:%M:%S", &told), nullptr);
  EXPECT_LE(timegm(&told) - now.tv_sec, 5);
  EXPECT_GE(timegm(&told) - now.tv_sec, 0);
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(LogTargetTest, OnlyAFileOfTheUserIsWrittenTo) {
  const std::string target = folder_ + "/target", path = folder_ + "/log";
  ASSERT_EQ(symlink(target.c_str(), path.c_str()), 0);
  EXPECT_STREQ(set(path.c_str()), "it is a symbolic link");
  EXPECT_FALSE(std::filesystem::exists(target));
  unlink(path.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  alarm(20);
  EXPECT_NE(set(path.c_str()), nullptr) << "it does not wait for a reader";
  alarm(0);
  unlink(path.c_str());
  EXPECT_STREQ(set("/dev/full"), "it is no regular file");
  EXPECT_STREQ(set((folder_ + "/none/log").c_str()), strerror(ENOENT));
  std::ofstream(target) << "mine\n";
  ASSERT_EQ(link(target.c_str(), path.c_str()), 0);
  EXPECT_STREQ(set(path.c_str()), "it has a second name (a hard link)");
  unlink(path.c_str());
  EXPECT_EQ(said([] { SHIFT_WARN("a"); }), "shift[" + pid() + "]: warn: a\n");
  EXPECT_EQ(text_of(target), "mine\n");
  if (getuid() != 0) return;
  ASSERT_EQ(chown(target.c_str(), 65534, 65534), 0);
  EXPECT_STREQ(set(target.c_str()), "it belongs to another user");
}

// A set-user-ID program, whose user prepares its folders.
TEST_F(LogTargetTest, APrivilegedProgramOpensNoFile) {
  const Daemon daemon(socket_);
  const std::string path = folder_ + "/log";
  EXPECT_STREQ(set(path.c_str(), true), "this program gains privileges when it is started");
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(said([] { SHIFT_WARN("a"); }), "shift[" + pid() + "]: warn: a\n");
  for (const char* target : {"stderr", "syslog", "journal"}) EXPECT_EQ(set(target, true), nullptr);
}

// A limit of the program's, which raises a signal, and its end, after which the losses are told.
TEST_F(LogTargetTest, AFileAtItsLimitIsCounted) {
  const std::string path = folder_ + "/log";
  ASSERT_EQ(set(path.c_str()), nullptr);
  EXPECT_EQ(in_child([] {
              signal(SIGXFSZ, SIG_DFL);
              struct rlimit limit;
              getrlimit(RLIMIT_FSIZE, &limit);
              const struct rlimit low = {10, limit.rlim_max};
              setrlimit(RLIMIT_FSIZE, &low);
              for (int i = 0; i < 3; i++) SHIFT_WARN("lost");
              setrlimit(RLIMIT_FSIZE, &limit);
              SHIFT_WARN("after");
              return 0;
            }),
            0);
  const std::string text = text_of(path);
  EXPECT_NE(text.find("their target was full: 3\n"), std::string::npos) << text;
  EXPECT_NE(text.find("warn: after\n"), std::string::npos) << text;
}

TEST_F(LogTargetTest, AFullDiskIsCounted) {
  if (mount("none", folder_.c_str(), "tmpfs", 0, "size=4k") != 0)
    GTEST_SKIP() << "needs the right to mount a small file system";
  const std::string path = folder_ + "/log", other = folder_ + "/other";
  EXPECT_EQ(set(path.c_str()), nullptr);
  errno = ENOENT;
  for (int i = 0; i < 10; i++) SHIFT_WARN("%s", std::string(900, 'x').c_str());
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(truncate(path.c_str(), 0), 0);
  SHIFT_WARN("after");
  const std::string text = text_of(path);
  log_target_set("stderr");
  EXPECT_EQ(umount(folder_.c_str()), 0);
  EXPECT_NE(text.find("their target was full: "), std::string::npos) << text;
  EXPECT_NE(text.find("warn: after\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace shift
