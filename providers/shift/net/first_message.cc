#include "net/first_message.h"

#include <sys/socket.h>

#include <cerrno>

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

}  // namespace shift::net
