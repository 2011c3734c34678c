// Event records: lines of JSON for tests and timelines.
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>

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
      detail::append_format(line, limit, used, "%" PRId64, field.number);
  }
  line[used++] = '}';
  line[used++] = '\n';
  detail::guest_write(fd, line, used);
  errno = saved;
}

}  // namespace shift
