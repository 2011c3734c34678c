// Formats and limits log lines, and writes to the program's descriptors.
#include "util/log.h"

#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "util/guest_write.h"
#include "util/log_target.h"
#include "util/uncancellable.h"

namespace shift {
namespace detail {

namespace {

// Signals that a write raises in the program, for the thread that writes: a pipe has no reader, or
// the file has reached RLIMIT_FSIZE.
constexpr int kWriteSignals[] = {SIGPIPE, SIGXFSZ};

int signal_of(int error) {
  return error == EPIPE ? SIGPIPE : error == EFBIG ? SIGXFSZ : 0;
}

}  // namespace

bool guest_write(int fd, const char* data, size_t size) noexcept {
  const int saved = errno;
  const Uncancellable shield;
  pollfd taker{fd, POLLOUT, 0};
  if (poll(&taker, 1, 0) == 0) {
    errno = saved;
    return false;
  }
  sigset_t raised, old, pending;
  sigemptyset(&raised);
  for (const int signal : kWriteSignals) sigaddset(&raised, signal);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &raised, &old);
  const ssize_t n = ::write(fd, data, size);
  const int signal = n < 0 ? signal_of(errno) : 0;
  if (signal != 0 && sigismember(&pending, signal) != 1) {
    // This write raised the signal, for this thread. It is taken before it can be delivered.
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, signal);
    const struct timespec now = {0, 0};
    sigtimedwait(&own, nullptr, &now);
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  errno = saved;
  return n == static_cast<ssize_t>(size);
}

void append_format(char* buffer, size_t size, size_t& used, const char* format, ...) noexcept {
  va_list args;
  va_start(args, format);
  const int n = vsnprintf(buffer + used, size - used, format, args);
  va_end(args);
  if (n < 0) return;
  used += static_cast<size_t>(n);
  if (used > size - 1) used = size - 1;
}

}  // namespace detail

namespace {

constexpr const char* kLevelNames[] = {"error", "warn", "info", "debug"};

// Texts may hold what a peer, a variable or a file has said, and must not become two lines, or
// orders to a terminal.
void controls_hide(char* text, size_t size) {
  for (char* at = text; at != text + size; at++)
    if (static_cast<unsigned char>(*at) < 0x20 || *at == 0x7f) *at = '?';
}

}  // namespace

void log_set_level(LogLevel level) noexcept {
  detail::log_level.store(static_cast<int>(level), std::memory_order_relaxed);
}

void log_write(LogLevel level, const char* format, ...) noexcept {
  const int saved = errno;
  char text[detail::kLogTextMax];
  size_t used = 0;
  detail::append_format(text, sizeof text, used, "%s: ", kLevelNames[static_cast<int>(level)]);
  errno = saved;  // for %m
  va_list args;
  va_start(args, format);
  const int n = vsnprintf(text + used, sizeof text - used, format, args);
  va_end(args);
  if (n > 0) used = std::min(used + static_cast<size_t>(n), sizeof text - 1);
  controls_hide(text, used);
  detail::log_deliver(level, text, used);
  errno = saved;
}

bool LogLimit::allow(uint64_t* suppressed) noexcept {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  // 1 is added, because zero means that no line was written yet.
  const uint64_t second = static_cast<uint64_t>(now.tv_sec) + 1;
  uint64_t window = window_s_.load(std::memory_order_relaxed);
  if (window != second &&
      window_s_.compare_exchange_strong(window, second, std::memory_order_relaxed))
    in_window_.store(0, std::memory_order_relaxed);
  // Two threads at the turn of a second may let one line too many through, which does no harm.
  if (in_window_.fetch_add(1, std::memory_order_relaxed) >= per_second_) {
    suppressed_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  const uint64_t count = suppressed_.exchange(0, std::memory_order_relaxed);
  if (suppressed != nullptr) *suppressed = count;
  return true;
}

}  // namespace shift
