// The first messages of fresh connections.
#include "net/handshake.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "net/socket.h"
#include "util/log.h"

namespace shift::net {

FirstMessage::~FirstMessage() {
  reactor_.timer_cancel(timer_);
  if (fd_) reactor_.remove_fd(fd_.get());
}

bool FirstMessage::start(std::chrono::milliseconds timeout, Callback callback) {
  callback_ = std::move(callback);
  if (!reactor_.add_fd(fd_.get(), EPOLLIN, [this](uint32_t) { on_readable(); })) return false;
  timer_ = reactor_.timer_start(timeout, [this] { finish(nullptr, "it stayed silent"); });
  return true;
}

void FirstMessage::on_readable() {
  for (;;) {
    const ssize_t n = ::recv(fd_.get(), bytes_ + used_, needed_ - used_, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n == 0 && used_ == 0) return finish(nullptr, nullptr);
    if (n <= 0) return finish(nullptr, "it went away");
    used_ += static_cast<size_t>(n);
    if (used_ < needed_) continue;
    size_t size = 0;
    switch (wire::frame_peek({bytes_, used_}, size)) {
      case wire::FrameState::kMalformed:
        return finish(nullptr, "it does not speak our protocol");
      case wire::FrameState::kComplete: {
        wire::Message message;
        if (!wire::decode({bytes_, size}, message)) return finish(nullptr, "malformed message");
        return finish(&message, nullptr);
      }
      case wire::FrameState::kIncomplete:
        break;
    }
    // The header has arrived and is valid.
    if (size > kSizeMax) return finish(nullptr, "too long a first message");
    needed_ = size;
  }
}

void FirstMessage::finish(const wire::Message* message, const char* why) {
  reactor_.timer_cancel(timer_);
  timer_ = 0;
  reactor_.remove_fd(fd_.get());
  const Callback callback = std::move(callback_);
  callback(std::move(fd_), message, why);  // may destroy this
}

TcpDial::~TcpDial() {
  reactor_.timer_cancel(timer_);
  if (fd_) reactor_.remove_fd(fd_.get());
}

void TcpDial::start(uint32_t local_ip_be, uint32_t remote_ip_be, uint16_t port,
                    const wire::Hello& hello, std::chrono::milliseconds timeout) {
  hello_ = hello;
  remote_ip_be_ = remote_ip_be;
  deadline_ = Reactor::Clock::now() + timeout;
  fd_ = tcp_connect(local_ip_be, remote_ip_be, port);
  if (!fd_) {
    // On the loopback device, connect() itself may report the refusal.
    const bool refused = errno == ECONNREFUSED;
    SHIFT_DEBUG("dial %s -> %s: %m", IpText(local_ip_be).c_str(), IpText(remote_ip_be).c_str());
    return fail(refused ? DialError::kNobody : DialError::kUnreachable);
  }
  if (!reactor_.add_fd(fd_.get(), EPOLLOUT, [this](uint32_t) { on_connected(); })) {
    fd_.reset();
    return fail(DialError::kUnreachable);
  }
  timer_ =
      reactor_.timer_start(deadline_, [this] { finish(DialError::kUnreachable, UniqueFd(), {}); });
}

// The callback runs from the loop, because it must not run inside the caller's call.
void TcpDial::fail(DialError error) {
  timer_ =
      reactor_.timer_start(Reactor::Clock::now(), [this, error] { finish(error, UniqueFd(), {}); });
}

void TcpDial::on_connected() {
  reactor_.timer_cancel(timer_);
  timer_ = 0;
  reactor_.remove_fd(fd_.get());
  if (const int error = socket_error(fd_.get()); error != 0) {
    fd_.reset();
    return finish(error == ECONNREFUSED ? DialError::kNobody : DialError::kUnreachable, UniqueFd(),
                  {});
  }
  std::vector<uint8_t> bytes;
  if (!wire::encode(hello_, bytes) || !send_whole(fd_.get(), bytes)) {
    fd_.reset();
    return finish(DialError::kUnreachable, UniqueFd(), {});
  }
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Reactor::Clock::now());
  reply_ = std::make_unique<FirstMessage>(reactor_, std::move(fd_));
  const bool started =
      reply_->start(left, [this](UniqueFd fd, const wire::Message* message, const char* why) {
        on_reply(std::move(fd), message, why);
      });
  if (!started) finish(DialError::kUnreachable, UniqueFd(), {});
}

void TcpDial::on_reply(UniqueFd fd, const wire::Message* message, const char* why) {
  const auto* reply = message != nullptr ? std::get_if<wire::HelloReply>(message) : nullptr;
  if (reply == nullptr || reply->want != hello_.want || reply->from != hello_.from) {
    SHIFT_DEBUG("dial to %s: %s", IpText(remote_ip_be_).c_str(),
                why != nullptr ? why : "it does not answer the question");
    return finish(DialError::kUnreachable, UniqueFd(), {});
  }
  const wire::Instance peer = reply->instance;
  switch (reply->status) {
    case wire::HelloStatus::kOk:
      if (peer.is_zero() || (!hello_.target.is_zero() && peer != hello_.target)) break;
      return finish(DialError::kNone, std::move(fd), peer);
    case wire::HelloStatus::kNoSuchQp:
      return finish(DialError::kNoSuchQp, UniqueFd(), {});
    case wire::HelloStatus::kRefused:
      return finish(DialError::kRefused, UniqueFd(), {});
  }
  finish(DialError::kUnreachable, UniqueFd(), {});
}

void TcpDial::finish(DialError error, UniqueFd fd, const wire::Instance& peer) {
  const wire::Instance copy = peer;
  const Rendezvous::DialCallback callback = std::move(callback_);
  callback(error, std::move(fd), copy);  // may destroy this
}

bool hello_answer(int fd, const wire::Hello& hello, const wire::Instance& self,
                  wire::HelloStatus status) {
  wire::HelloReply reply;
  if (status != wire::HelloStatus::kNoSuchQp) reply.instance = self;
  reply.want = hello.want;
  reply.from = hello.from;
  reply.status = status;
  std::vector<uint8_t> bytes;
  return wire::encode(reply, bytes) && send_whole(fd, bytes);
}

}  // namespace shift::net
