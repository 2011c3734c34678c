// Event records: lines of JSON for tests and timelines.
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "util/append_file.h"
#include "util/guest_write.h"
#include "util/log.h"

namespace shift {
namespace {

constexpr size_t kRecordMax = 2048;
// The room that is kept for the end of the record while fields are appended.
constexpr size_t kTail = 8;

// Appends a quoted, escaped JSON string. When the record is full, the string is cut, but still
// well-formed.
void append_string(char* buffer, size_t size, size_t& used, std::string_view text) {
  if (used + 2 >= size) return;
  buffer[used++] = '"';
  for (const char c : text) {
    if (used + 8 >= size) break;
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      buffer[used++] = '\\';
      buffer[used++] = c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      detail::append_format(buffer, size, used, "\\u%04x", byte);
    } else {
      buffer[used++] = c;
    }
  }
  buffer[used++] = '"';
}

void append_number(char* buffer, size_t size, size_t& used, int64_t number) {
  const auto done = std::to_chars(buffer + used, buffer + size, number);
  if (done.ec == std::errc{}) used = static_cast<size_t>(done.ptr - buffer);
}

// The records of a thread that gathers them. Never freed: the thread may outlive all else.
struct Gathered {
  Gathered* older = nullptr;
  const pid_t pid = getpid();
  std::mutex mutex;      // the thread that exits takes what is left
  bool is_over = false;  // the process exits: each record is written at once
  size_t used = 0;
  char text[64 * 1024];
};
constinit thread_local Gathered* gathered = nullptr;
constinit std::atomic<Gathered*> newest{nullptr};

// The caller holds the mutex.
void gathered_write(Gathered& from) {
  const int fd = detail::event_fd.load(std::memory_order_relaxed);
  if (fd >= 0 && from.used != 0) detail::guest_write(fd, from.text, from.used);
  from.used = 0;
}

// A fork child has no such thread, and the mutex may have been locked at the fork.
void at_exit() {
  for (Gathered* from = newest.load(std::memory_order_acquire); from != nullptr;
       from = from->older) {
    if (from->pid != getpid()) continue;
    std::lock_guard lock(from->mutex);
    from->is_over = true;
    gathered_write(*from);
  }
}

void record_write(int fd, const char* line, size_t size) {
  if (Gathered* to = gathered) {
    std::lock_guard lock(to->mutex);
    if (!to->is_over) {
      if (sizeof to->text - to->used < size) gathered_write(*to);
      std::memcpy(to->text + to->used, line, size);
      to->used += size;
      return;
    }
  }
  detail::guest_write(fd, line, size);
}

size_t field_size_max(const EventField& field) {
  // The room is for quotes, colon, comma and a number; a string is cut, so only its quotes must
  // fit.
  return std::string_view(field.key).size() + 32;
}

}  // namespace

const char* events_open(const char* path) noexcept {
  const char* problem = nullptr;
  const int fd = detail::append_file_open(path, problem);
  if (fd < 0) return problem;
  const int old = detail::event_fd.exchange(fd, std::memory_order_relaxed);
  if (old >= 0) ::close(old);
  return nullptr;
}

void events_close() noexcept {
  const int old = detail::event_fd.exchange(-1, std::memory_order_relaxed);
  if (old >= 0) ::close(old);
}

void event(const char* name, std::initializer_list<EventField> fields) noexcept {
  const int fd = detail::event_fd.load(std::memory_order_relaxed);
  if (fd < 0) return;
  const int saved = errno;
  struct timespec mono, wall;
  clock_gettime(CLOCK_MONOTONIC, &mono);
  clock_gettime(CLOCK_REALTIME, &wall);
  char line[kRecordMax];
  const size_t limit = sizeof line - kTail;
  size_t used = 0;
  detail::append_format(
      line, limit, used, "{\"t_ns\":%" PRId64 ",\"t_wall\":%" PRId64 ".%06ld,\"pid\":%d,\"event\":",
      static_cast<int64_t>(mono.tv_sec) * 1000000000 + mono.tv_nsec,
      static_cast<int64_t>(wall.tv_sec), wall.tv_nsec / 1000, static_cast<int>(getpid()));
  append_string(line, limit, used, name);
  for (const EventField& field : fields) {
    if (used + field_size_max(field) >= limit) break;  // a cut record stays valid JSON
    line[used++] = ',';
    append_string(line, limit, used, field.key);
    line[used++] = ':';
    if (field.is_text)
      append_string(line, limit, used, field.text);
    else
      append_number(line, limit, used, field.number);
  }
  line[used++] = '}';
  line[used++] = '\n';
  record_write(fd, line, used);
  errno = saved;
}

void events_gather() noexcept {
  if (!events_enabled() || gathered != nullptr) return;
  gathered = new (std::nothrow) Gathered;
  if (gathered == nullptr) return;
  gathered->older = newest.load(std::memory_order_relaxed);
  while (!newest.compare_exchange_weak(gathered->older, gathered, std::memory_order_release)) {
  }
  static const int watched = std::atexit(at_exit);
  (void)watched;
}

void events_flush() noexcept {
  Gathered* from = gathered;
  if (from == nullptr || from->used == 0) return;
  const int saved = errno;
  std::lock_guard lock(from->mutex);
  gathered_write(*from);
  errno = saved;
}

}  // namespace shift
