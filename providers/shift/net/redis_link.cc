// The connection to a redis server.
#include "net/redis_link.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "net/socket.h"
#include "util/log.h"

namespace shift::net {
namespace {

constexpr size_t kReadChunk = 16 * 1024;
constexpr int kReadsPerTurn = 4;  // then other descriptors get their turn

std::string error_text(const char* what, int error) {
  char buffer[128];
  return std::string(what) + ": " + strerror_r(error, buffer, sizeof buffer);
}

}  // namespace

void RedisLink::start(const ServerAddress& to) {
  const auto* address = reinterpret_cast<const struct sockaddr*>(&to.address);
  fd_ = UniqueFd(::socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd_) tcp_tune(fd_.get());
  const bool started = fd_ && (::connect(fd_.get(), address, to.size) == 0 ||
                               errno == EINPROGRESS || errno == EINTR);
  const int error = errno;
  wants_write_ = true;
  if (!started || !reactor_.add_fd(fd_.get(), EPOLLIN | EPOLLOUT, [this](uint32_t events) {
        const auto keep = shared_from_this();  // a callback may drop the last reference
        on_event(events);
      }))
    lose_soon(error_text("cannot connect", error));
}

void RedisLink::close() {
  is_over_ = true;
  if (fd_) reactor_.remove_fd(fd_.get());
  fd_.reset();
}

uint32_t RedisLink::local_ip_be() const {
  uint32_t local = 0, remote = 0;
  return fd_ && tcp_addresses(fd_.get(), local, remote) ? local : 0;
}

void RedisLink::send(std::string_view bytes) {
  if (!fd_) return;
  if (tls_) {
    if (!tls_->write(bytes)) return lose_soon(tls_->error());
    queue_tls();
  } else {
    queue(bytes);
  }
}

void RedisLink::queue_tls() {
  char chunk[kReadChunk];
  while (const size_t size = tls_->take_for_server(chunk)) queue({chunk, size});
}

// What is queued leaves in the reactor's next turn, so that many commands make one packet.
void RedisLink::queue(std::string_view bytes) {
  if (out_.size() - out_sent_ + bytes.size() > kSendMax)
    return lose_soon("it takes nothing any more");
  out_ += bytes;
  if (flush_scheduled_ || wants_write_) return;
  flush_scheduled_ = reactor_.call_soon([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->flush_scheduled_ = false;
    self->flush();
  });
}

void RedisLink::flush() {
  while (fd_ && out_sent_ < out_.size()) {
    const ssize_t n = ::send(fd_.get(), out_.data() + out_sent_, out_.size() - out_sent_,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
      return lose(error_text("connection lost", errno));
    if (n < 0) break;
    out_sent_ += static_cast<size_t>(n);
  }
  if (!fd_) return;
  out_.erase(0, out_sent_);
  out_sent_ = 0;
  if (out_.empty()) out_.shrink_to_fit();
  if (wants_write_ == !out_.empty()) return;
  wants_write_ = !out_.empty();
  reactor_.modify_fd(fd_.get(), wants_write_ ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void RedisLink::on_event(uint32_t epoll_events) {
  if (!is_connected_) {
    if (const int error = socket_error(fd_.get())) return lose(error_text("cannot connect", error));
    if ((epoll_events & EPOLLOUT) == 0) return;
    is_connected_ = true;
    connected();
    if (!fd_) return;
  }
  // receive() finds errors and the end of the stream, after it has read the last good bytes.
  if ((epoll_events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0 && !receive()) return;
  if ((epoll_events & EPOLLOUT) != 0) flush();
}

void RedisLink::connected() {
  if (!tls_) {
    is_up_ = true;
    return events_.on_up();
  }
  take_tls({});  // makes the first bytes of the handshake
}

// Returns false when the link is closed.
bool RedisLink::receive() {
  char chunk[kReadChunk];
  for (int i = 0; i < kReadsPerTurn; i++) {
    const ssize_t n = ::recv(fd_.get(), chunk, sizeof chunk, MSG_DONTWAIT);
    if (n == 0) return lose("it closed the connection"), false;
    if (n < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) break;
      return lose(error_text("connection lost", errno)), false;
    }
    if (!take({chunk, static_cast<size_t>(n)})) return false;
    if (static_cast<size_t>(n) < sizeof chunk) break;
  }
  return true;
}

bool RedisLink::take(std::span<const char> bytes) {
  if (tls_) return take_tls(bytes);
  events_.on_bytes(bytes);
  return static_cast<bool>(fd_);
}

bool RedisLink::take_tls(std::span<const char> bytes) {
  if (!tls_->feed(bytes)) return lose(tls_->error()), false;
  char chunk[kReadChunk];
  for (;;) {
    size_t size = 0;
    const bool is_good = tls_->read(chunk, size);
    queue_tls();  // an alert for the server as well
    if (!is_good) return flush(), lose(tls_->error()), false;
    if (!is_up_ && tls_->is_up()) {
      is_up_ = true;
      events_.on_up();
    }
    if (!fd_) return false;
    if (size == 0) return true;
    events_.on_bytes({chunk, size});
    if (!fd_) return false;
  }
}

void RedisLink::lose(const std::string& why) {
  if (is_over_) return;
  close();
  events_.on_down(why);
}

void RedisLink::lose_soon(const std::string& why) {
  const bool queued = reactor_.call_soon([weak = weak_from_this(), why] {
    if (const auto self = weak.lock()) self->lose(why);
  });
  if (!queued) SHIFT_DEBUG("redis: lost after the end: %s", why.c_str());
}

}  // namespace shift::net
