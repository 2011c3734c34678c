// Gives log lines to their target.
//
// The system log and the journal are spoken to directly. The libc's openlog() and syslog() would
// change what the program has set with them for itself: its name, its options and its connection.
// libsystemd would be one more library in every program that uses verbs.
//
// The state consists of atomics instead of a lock, because a lock might be held by another thread
// at a fork, and the child writes lines, too.
#include "util/log_target.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstring>

#include "util/append_file.h"
#include "util/guest_write.h"
#include "util/uncancellable.h"

namespace shift {
namespace {

enum class Kind : uint8_t { kStderr, kSyslog, kJournal, kFile };
// What became of a line.
enum class Result { kTaken, kFull, kAway };

constexpr int64_t kRetryNs = 1'000'000'000;
// The values of syslog(3), by level; messages of programs have the facility 1.
constexpr int kPriorities[] = {3, 4, 6, 7};
constexpr int kFacility = 1 << 3;

constinit std::atomic<Kind> kind{Kind::kStderr};
constinit std::atomic<int> target_fd{-1};
// Tells the descriptor from another one that the program has under this number by now, as a daemon
// may that has closed all descriptors.
constinit std::atomic<uint64_t> target_device{0}, target_inode{0};
constinit std::atomic<int64_t> retry_at_ns{0};
constinit std::atomic<uint64_t> lost{0};
// The file or socket, as it was when the target was set.
constinit char target_path[PATH_MAX] = {};

int64_t now_ns() {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

bool is_socket() {
  const Kind now = kind.load(std::memory_order_relaxed);
  return now == Kind::kSyslog || now == Kind::kJournal;
}

bool is_ours(int fd) {
  struct stat status {};
  return fd >= 0 && ::fstat(fd, &status) == 0 &&
         status.st_dev == target_device.load(std::memory_order_relaxed) &&
         status.st_ino == target_inode.load(std::memory_order_relaxed);
}

void publish(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return;
  target_device.store(status.st_dev, std::memory_order_relaxed);
  target_inode.store(status.st_ino, std::memory_order_relaxed);
  target_fd.store(fd, std::memory_order_relaxed);
}

// A connected socket may be connected anew. Datagram sockets never wait here.
bool socket_connect(int fd) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t size = strnlen(target_path, sizeof target_path);
  if (size >= sizeof address.sun_path) return errno = ENAMETOOLONG, false;
  std::memcpy(address.sun_path, target_path, size);
  return ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

int socket_open(const char*& problem) {
  const int low = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int fd = low < 0 ? low : detail::move_high(low);
  if (fd >= 0 && socket_connect(fd)) return fd;
  problem = std::strerror(errno);
  if (fd >= 0) ::close(fd);
  return -1;
}

int target_open(const char*& problem) {
  return is_socket() ? socket_open(problem) : detail::append_file_open(target_path, problem);
}

// After the daemon has been started again, or the program has closed the descriptor. At most once a
// second, by the one thread that moves the time on.
bool open_again() {
  const int64_t now = now_ns();
  int64_t at = retry_at_ns.load(std::memory_order_relaxed);
  if (now < at ||
      !retry_at_ns.compare_exchange_strong(at, now + kRetryNs, std::memory_order_relaxed))
    return false;
  const int old = target_fd.load(std::memory_order_relaxed);
  // A descriptor that is not ours any more is left alone. The socket is kept: another thread may be
  // about to send on it.
  if (is_ours(old)) return is_socket() && socket_connect(old);
  const char* problem = nullptr;
  const int fd = target_open(problem);
  if (fd < 0) return false;
  publish(fd);
  return true;
}

Result send_once(const char* data, size_t size) {
  const int fd = target_fd.load(std::memory_order_relaxed);
  if (!is_ours(fd)) return Result::kAway;
  if (!is_socket()) return detail::guest_write(fd, data, size) ? Result::kTaken : Result::kFull;
  if (::send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Result::kTaken;
  return errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM ? Result::kFull : Result::kAway;
}

// Formats the line as the target wants it. Daemons add the time, as RFC 3164 asks of them (4.3.2):
// the local time would be had of the C library only, with its lock, and with its time zone set from
// then on, which is the program's to set. A file gets universal time for the same reason.
size_t line_format(char* line, size_t size, LogLevel level, const char* text, int length) {
  const int priority = kPriorities[static_cast<int>(level)];
  const int pid = static_cast<int>(getpid());
  size_t used = 0;
  switch (kind.load(std::memory_order_relaxed)) {
    case Kind::kSyslog:
      detail::append_format(line, size, used, "<%d>shift[%d]: %.*s", kFacility | priority, pid,
                            length, text);
      return used;
    case Kind::kJournal:
      detail::append_format(line, size, used,
                            "PRIORITY=%d\nSYSLOG_IDENTIFIER=shift\nSYSLOG_PID=%d\nMESSAGE=%.*s\n",
                            priority, pid, length, text);
      return used;
    case Kind::kFile: {
      namespace chrono = std::chrono;
      struct timespec now;
      clock_gettime(CLOCK_REALTIME, &now);
      const chrono::sys_seconds at{chrono::seconds(now.tv_sec)};
      const auto day = chrono::floor<chrono::days>(at);
      const chrono::year_month_day date(day);
      const chrono::hh_mm_ss time(at - day);
      detail::append_format(
          line, size, used, "%04d-%02u-%02uT%02d:%02d:%02d.%06ldZ ", static_cast<int>(date.year()),
          static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
          static_cast<int>(time.hours().count()), static_cast<int>(time.minutes().count()),
          static_cast<int>(time.seconds().count()), now.tv_nsec / 1000);
      break;
    }
    case Kind::kStderr:
      break;
  }
  detail::append_format(line, size, used, "shift[%d]: %.*s\n", pid, length, text);
  return used;
}

Result line_send(LogLevel level, const char* text, size_t size) {
  char line[detail::kLogTextMax + detail::kLogExtra];
  const size_t used = line_format(line, sizeof line, level, text, static_cast<int>(size));
  const Result result = send_once(line, used);
  return result == Result::kAway && open_again() ? send_once(line, used) : result;
}

void stderr_write(const char* text, size_t size) {
  char line[detail::kLogTextMax + detail::kLogExtra];
  size_t used = 0;
  detail::append_format(line, sizeof line, used, "shift[%d]: %.*s\n", static_cast<int>(getpid()),
                        static_cast<int>(size), text);
  detail::guest_write(STDERR_FILENO, line, used);
}

// Says how many lines were lost before, if any.
Result losses_send() {
  const uint64_t count = lost.exchange(0, std::memory_order_relaxed);
  if (count == 0) return Result::kTaken;
  char line[100];
  const int n = snprintf(line, sizeof line,
                         "log lines lost before this one, because their target was full: %llu",
                         static_cast<unsigned long long>(count));
  char text[120];
  const int size = snprintf(text, sizeof text, "warn: %.*s", n, line);
  const Result result = line_send(LogLevel::kWarn, text, static_cast<size_t>(size));
  if (result != Result::kTaken) lost.fetch_add(count, std::memory_order_relaxed);
  return result;
}

}  // namespace

const char* log_target_set(const char* target, bool is_privileged,
                           const LogSockets& sockets) noexcept {
  const int old = target_fd.exchange(-1, std::memory_order_relaxed);
  if (is_ours(old)) ::close(old);
  kind.store(Kind::kStderr, std::memory_order_relaxed);
  lost.store(0, std::memory_order_relaxed);
  retry_at_ns.store(0, std::memory_order_relaxed);
  if (std::strcmp(target, "stderr") == 0) return nullptr;
  const bool is_syslog = std::strcmp(target, "syslog") == 0;
  const bool is_journal = std::strcmp(target, "journal") == 0;
  const char* path = is_syslog ? sockets.syslog : is_journal ? sockets.journal : target;
  // The name is for all programs of the host. A program with gained privileges would make the file
  // as another user's, so that no other program could write to it; and its folder may be one in
  // which the user who starts the program prepares something. The daemons' sockets are root's.
  if (is_privileged && path == target) return "this program gains privileges when it is started";
  const size_t size = std::strlen(path);
  if (size >= sizeof target_path) return std::strerror(ENAMETOOLONG);
  std::memcpy(target_path, path, size + 1);
  const Kind wanted = is_syslog ? Kind::kSyslog : is_journal ? Kind::kJournal : Kind::kFile;
  kind.store(wanted, std::memory_order_relaxed);
  const char* problem = nullptr;
  const int fd = target_open(problem);
  if (fd < 0) {
    kind.store(Kind::kStderr, std::memory_order_relaxed);
    return problem;
  }
  publish(fd);
  return nullptr;
}

namespace detail {

void log_deliver(LogLevel level, const char* text, size_t size) noexcept {
  const int saved = errno;
  const Uncancellable shield;
  if (kind.load(std::memory_order_relaxed) == Kind::kStderr) {
    stderr_write(text, size);
  } else {
    Result result = losses_send();
    if (result == Result::kTaken) result = line_send(level, text, size);
    if (result == Result::kFull) lost.fetch_add(1, std::memory_order_relaxed);
    if (result == Result::kAway) stderr_write(text, size);
  }
  errno = saved;
}

}  // namespace detail
}  // namespace shift
