// Event records: lines of JSON for tests and timelines.
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "util/guest_write.h"
#include "util/log.h"

namespace shift {
namespace {

constexpr size_t kRecordMax = 2048;
// The room that is kept for the end of the record while fields are appended.
constexpr size_t kTail = 8;
// The record file gets a descriptor from this number on, because programs that turn into daemons
// close low descriptors and reuse their numbers.
constexpr int kHighFd = 800;

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

// What speaks against writing to this file, or null. Whoever may write to its folder, such as /tmp,
// may have made it beforehand: a file of that user's own, who could read the records, or a second
// name of a file that belongs to this process's user and is no record.
const char* file_problem(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return "it is no regular file";
  if (status.st_uid != geteuid()) return "it belongs to another user";
  if (status.st_nlink > 1) return "it has a second name (a hard link)";
  return nullptr;
}

}  // namespace

const char* events_open(const char* path) noexcept {
  // Whoever may write to the file's folder, such as /tmp, must not choose what is written to. Nor
  // may a FIFO hold the program up.
  constexpr int kFlags =
      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK;
  const int low = ::open(path, kFlags, 0600);
  if (low < 0) return errno == ELOOP ? "it is a symbolic link" : std::strerror(errno);
  if (const char* problem = file_problem(low)) {
    ::close(low);
    return problem;
  }
  int fd = ::fcntl(low, F_DUPFD_CLOEXEC, kHighFd);
  if (fd < 0)
    fd = low;
  else
    ::close(low);
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
