// Event pipes.
#include "uverbs/event_pipe.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace cxemu {
namespace {

constexpr int kLargePipe = 1 << 20;

// Moves the whole content of `pipe` into memory without ever blocking, although its reader may be a
// blocking descriptor and the application may be reading it at this moment. To do so, it splices
// the content into a private pipe.
std::vector<uint8_t> drain(int reader) {
  std::vector<uint8_t> bytes;
  int scratch[2];
  if (pipe2(scratch, O_CLOEXEC) != 0) return bytes;
  if (const int size = fcntl(reader, F_GETPIPE_SZ); size > 0) fcntl(scratch[1], F_SETPIPE_SZ, size);
  for (;;) {
    const ssize_t moved =
        splice(reader, nullptr, scratch[1], nullptr, kLargePipe, SPLICE_F_NONBLOCK);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) break;
    const size_t at = bytes.size();
    bytes.resize(at + static_cast<size_t>(moved));
    for (size_t done = 0; done < static_cast<size_t>(moved);) {
      const ssize_t got = read(scratch[0], bytes.data() + at + done, moved - done);
      if (got > 0) done += static_cast<size_t>(got);
    }
  }
  close(scratch[0]);
  close(scratch[1]);
  return bytes;
}

}  // namespace

int EventPipe::create(std::unique_ptr<EventPipe>* out, int* reader_fd) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno;
  std::unique_ptr<EventPipe> pipe(new EventPipe);
  pipe->writer_ = ends[1];
  pipe->reader_ = fcntl(ends[0], F_DUPFD_CLOEXEC, 0);
  if (pipe->reader_ < 0 || fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0) {
    const int error = errno;
    close(ends[0]);
    return error;
  }
  *reader_fd = ends[0];
  *out = std::move(pipe);
  return 0;
}

EventPipe::~EventPipe() {
  if (reader_ >= 0) close(reader_);
  if (writer_ >= 0) close(writer_);
}

bool EventPipe::push(const void* record, size_t size) {
  if (writer_ < 0) return false;
  // Writes of this size are atomic: a full pipe takes either all of a record or nothing.
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (write(writer_, record, size) == static_cast<ssize_t>(size)) return true;
    if (errno == EAGAIN) fcntl(writer_, F_SETPIPE_SZ, kLargePipe);
  }
  return false;
}

void EventPipe::hang_up() {
  close(std::exchange(writer_, -1));
}

uint32_t EventPipe::purge(size_t size, uint64_t key) {
  auto dropped = static_cast<uint32_t>(std::erase(lost_, key));
  int unread = 0;
  if (ioctl(reader_, FIONREAD, &unread) == 0 && unread == 0) return dropped;
  const std::vector<uint8_t> bytes = drain(reader_);
  for (size_t at = 0; at + size <= bytes.size(); at += size) {
    uint64_t record_key;
    memcpy(&record_key, bytes.data() + at, sizeof record_key);
    if (record_key == key)
      ++dropped;
    else if (!push(bytes.data() + at, size))
      lost_.push_back(record_key);
  }
  return dropped;
}

}  // namespace cxemu
