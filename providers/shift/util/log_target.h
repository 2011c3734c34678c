// Where log lines go (SHIFT_LOG_TARGET): standard error, the system log, the journal, or a file.
#pragma once

#include <cstddef>

#include "util/log.h"

namespace shift {

// Where the daemons listen; tests name sockets of their own.
struct LogSockets {
  const char* syslog = "/dev/log";
  const char* journal = "/run/systemd/journal/socket";
};

// Sends the lines from now on to `target`, which is "stderr", "syslog", "journal" or the absolute
// name of a file. A program that is privileged, by what it gained when it was started, opens no
// file. Returns nullptr, or the reason why the target cannot be opened; the lines go to standard
// error then. It must not be called while other threads write lines.
const char* log_target_set(const char* target, bool is_privileged = false,
                           const LogSockets& sockets = {}) noexcept;

namespace detail {

inline constexpr size_t kLogTextMax = 1000;
// What the targets want before a line's text and after it.
inline constexpr size_t kLogExtra = 160;

// Gives one line to the target. `text` is "LEVEL: ...", without a line end or other control
// characters, and has at most kLogTextMax bytes. It never waits, keeps errno, raises no signal, and
// is no cancellation point. A line that the target does not take is counted, and the next one that
// it takes comes after a line with the count. While a daemon is away, lines go to standard error.
void log_deliver(LogLevel level, const char* text, size_t size) noexcept;

}  // namespace detail
}  // namespace shift
