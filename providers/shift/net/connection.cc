// One TCP connection.
#include "net/connection.h"

#include <sys/socket.h>

#include <cerrno>

#include "net/socket.h"
#include "util/log.h"

namespace shift::net {

namespace {
constexpr size_t kReadChunk = 16 * 1024;
constexpr int kReadsPerTurn = 16;             // then other descriptors get their turn
constexpr size_t kCompactAbove = 256 * 1024;  // sent bytes that may stay in front of the queue
constexpr size_t kKeptBuffer = 64 * 1024;     // what a buffer may keep for the next messages
}  // namespace

Connection::~Connection() {
  if (open_) reactor_.remove_fd(fd_.get());
}

bool Connection::open(Events events) {
  events_ = std::move(events);
  open_ = reactor_.add_fd(fd_.get(), EPOLLIN, [this](uint32_t e) {
    const auto keep = shared_from_this();  // a callback may drop the last reference
    on_event(e);
  });
  return open_;
}

void Connection::close(const char* reason) {
  if (!open_) return;
  open_ = false;
  reactor_.remove_fd(fd_.get());
  fd_.reset();
  const bool queued = reactor_.call_soon([weak = weak_from_this(), reason] {
    if (const auto self = weak.lock()) self->events_.on_closed(*self, reason);
  });
  if (!queued) SHIFT_DEBUG("connection to %s closed after the end", IpText(remote_ip_).c_str());
}

bool Connection::queue(std::span<const uint8_t> bytes) {
  if (!open_) return false;
  const size_t waiting = queued_bytes() + bytes.size();
  if (waiting > kSendMax || (waiting > kStrangerSendMax && !events_.is_relied_on())) {
    close("it takes nothing any more");
    return false;
  }
  out_.insert(out_.end(), bytes.begin(), bytes.end());
  if (!flush_scheduled_ && !wants_write_)
    flush_scheduled_ = reactor_.call_soon([weak = weak_from_this()] {
      const auto self = weak.lock();
      if (!self) return;
      self->flush_scheduled_ = false;
      self->flush();
    });
  return true;
}

void Connection::flush() {
  while (open_ && out_sent_ < out_.size()) {
    const ssize_t n = ::send(fd_.get(), out_.data() + out_sent_, out_.size() - out_sent_,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return close("it is broken");
    if (n < 0) break;
    out_sent_ += static_cast<size_t>(n);
  }
  if (!open_) return;
  if (out_sent_ == out_.size()) {
    out_.clear();
    out_sent_ = 0;
    out_.shrink_to_fit();
  } else if (out_sent_ > kCompactAbove) {
    out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(out_sent_));
    out_sent_ = 0;
  }
  const bool wants_write = !out_.empty();
  if (wants_write != wants_write_) {
    wants_write_ = wants_write;
    reactor_.modify_fd(fd_.get(), wants_write ? EPOLLIN | EPOLLOUT : EPOLLIN);
  }
}

void Connection::on_event(uint32_t events) {
  // receive() finds errors and the end of the stream, after it has read the last good bytes.
  if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0 && !receive()) return;
  if ((events & EPOLLOUT) != 0) flush();
}

// Returns false when the connection is closed.
bool Connection::receive() {
  uint8_t chunk[kReadChunk];
  for (int i = 0; i < kReadsPerTurn; i++) {
    const ssize_t n = ::recv(fd_.get(), chunk, sizeof chunk, MSG_DONTWAIT);
    if (n == 0) return close("its end closed it"), false;
    if (n < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) break;
      return close("it is broken"), false;
    }
    in_.insert(in_.end(), chunk, chunk + n);
    if (!deliver()) return false;
    if (static_cast<size_t>(n) < sizeof chunk) break;
  }
  // An idle connection keeps no buffer, and the start of a message needs none for a long one.
  if (in_.empty() || (in_.capacity() > kKeptBuffer && in_.size() < kKeptBuffer / 2))
    in_.shrink_to_fit();
  return true;
}

// Returns false when the connection is closed.
bool Connection::deliver() {
  size_t at = 0;
  while (at < in_.size()) {
    const std::span<const uint8_t> rest(in_.data() + at, in_.size() - at);
    size_t size = 0;
    const auto state = wire::frame_peek(rest, size);
    const bool is_long = size > kStrangerFrameMax && !events_.is_relied_on();
    if (state == wire::FrameState::kIncomplete && !is_long) break;
    if (state == wire::FrameState::kMalformed || is_long ||
        !events_.on_frame(*this, rest.first(size))) {
      SHIFT_WARN_LIMITED("connection to %s closed: malformed message", IpText(remote_ip_).c_str());
      return close("it sent nonsense"), false;
    }
    if (!open_) return false;
    at += size;
  }
  in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(at));
  return true;
}

}  // namespace shift::net
