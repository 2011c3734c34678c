// The layer's log lines and event records. A log message is one line on stderr or on another target
// (log_target.h), never on stdout, and nothing is written at disabled levels.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>

namespace shift {

enum class LogLevel : int { kError = 0, kWarn = 1, kInfo = 2, kDebug = 3 };

namespace detail {
// Relaxed access is enough: the level only steers verbosity, and publishes no data.
inline constinit std::atomic<int> log_level{static_cast<int>(LogLevel::kWarn)};
inline constinit std::atomic<int> event_fd{-1};
}  // namespace detail

inline bool log_enabled(LogLevel level) noexcept {
  return static_cast<int>(level) <= detail::log_level.load(std::memory_order_relaxed);
}
void log_set_level(LogLevel level) noexcept;

// Formats into a buffer on the stack, which cuts long messages, shows control characters as "?",
// and hands the line to its target. It keeps errno, never waits and never raises a signal in the
// program, whose stderr may be a pipe without a reader.
[[gnu::cold, gnu::format(printf, 2, 3)]] void log_write(LogLevel level, const char* format,
                                                        ...) noexcept;

// So many lines of one kind a second tell of an incident; others like them would hide the rest.
inline constexpr uint32_t kFewLines = 8;

// Lets a few lines per second through and counts the rest. It is constant-initialised and trivially
// destroyed, so a library may use it for function-local and namespace-scope statics.
class LogLimit {
 public:
  explicit constexpr LogLimit(uint32_t per_second = 1) noexcept : per_second_(per_second) {}
  // Returns true when a line may be written now. `suppressed` is then the number of lines that were
  // suppressed since the line before.
  bool allow(uint64_t* suppressed = nullptr) noexcept;

 private:
  const uint32_t per_second_;
  std::atomic<uint64_t> window_s_{0};
  std::atomic<uint32_t> in_window_{0};
  std::atomic<uint64_t> suppressed_{0};
};

#define SHIFT_LOG_AT(level, ...)                                             \
  do {                                                                       \
    if (::shift::log_enabled(level)) ::shift::log_write(level, __VA_ARGS__); \
  } while (0)
#define SHIFT_ERROR(...) SHIFT_LOG_AT(::shift::LogLevel::kError, __VA_ARGS__)
#define SHIFT_WARN(...) SHIFT_LOG_AT(::shift::LogLevel::kWarn, __VA_ARGS__)
#define SHIFT_INFO(...) SHIFT_LOG_AT(::shift::LogLevel::kInfo, __VA_ARGS__)
#define SHIFT_DEBUG(...) SHIFT_LOG_AT(::shift::LogLevel::kDebug, __VA_ARGS__)
// Write at most `per_second` lines per second from this place in the code. The macros ending in
// LIMITED are for lines of which one tells it all, those ending in FEW for lines that each name
// another device or peer.
#define SHIFT_LIMITED_AT(level, per_second, ...)                 \
  do {                                                           \
    static constinit ::shift::LogLimit shift_limit_{per_second}; \
    if (::shift::log_enabled(level) && shift_limit_.allow())     \
      ::shift::log_write(level, __VA_ARGS__);                    \
  } while (0)
#define SHIFT_ERROR_LIMITED(...) SHIFT_LIMITED_AT(::shift::LogLevel::kError, 1, __VA_ARGS__)
#define SHIFT_WARN_LIMITED(...) SHIFT_LIMITED_AT(::shift::LogLevel::kWarn, 1, __VA_ARGS__)
#define SHIFT_WARN_FEW(...) \
  SHIFT_LIMITED_AT(::shift::LogLevel::kWarn, ::shift::kFewLines, __VA_ARGS__)
#define SHIFT_INFO_FEW(...) \
  SHIFT_LIMITED_AT(::shift::LogLevel::kInfo, ::shift::kFewLines, __VA_ARGS__)

// One field of an event record: an integer or a string.
struct EventField {
  template <typename T>
  requires std::is_integral_v<T> || std::is_enum_v<T>
  constexpr EventField(const char* k, T v) noexcept : key(k), number(static_cast<int64_t>(v)) {}
  constexpr EventField(const char* k, const char* v) noexcept : key(k), text(v), is_text(true) {}
  constexpr EventField(const char* k, std::string_view v) noexcept
      : key(k), text(v), is_text(true) {}

  const char* key;
  int64_t number = 0;
  std::string_view text{};
  bool is_text = false;
};

inline bool events_enabled() noexcept {
  return detail::event_fd.load(std::memory_order_relaxed) >= 0;
}
// Opens the file to which event records are appended, a regular one of the process's user with one
// name, or makes it for its owner alone. Returns nullptr, or the reason why it cannot.
const char* events_open(const char* path) noexcept;
void events_close() noexcept;

// Appends one JSON line {"t_ns":..., "t_wall":..., "pid":..., "event":NAME, fields...} with one
// write(2), so that several processes may share the file. t_ns is the time of CLOCK_MONOTONIC in
// nanoseconds; t_wall is the wall clock's in seconds.
[[gnu::cold]] void event(const char* name, std::initializer_list<EventField> fields) noexcept;

// From here on the calling thread's records wait until it calls events_flush(), until they are
// many, or until the process exits, and leave in one write. The thread calls it once, if at all.
[[gnu::cold]] void events_gather() noexcept;
void events_flush() noexcept;

// Used as SHIFT_EVENT("switch", {{"qp", qpn}, {"epoch", epoch}, {"detail", "port error"}}). The
// fields are not evaluated when events are not recorded.
#define SHIFT_EVENT(...)                                        \
  do {                                                          \
    if (::shift::events_enabled()) ::shift::event(__VA_ARGS__); \
  } while (0)

}  // namespace shift
