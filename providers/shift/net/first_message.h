// One message of a handshake on a fresh TCP connection, bounded in size and time.
#pragma once

#include <chrono>
#include <functional>

#include "net/reactor.h"
#include "util/unique_fd.h"
#include "wire/messages.h"

namespace shift::net {

// Reads exactly one message and not a byte more, because the bytes that follow are for the reader
// of the connection.
class FirstMessage {
 public:
  static constexpr size_t kSizeMax = 256;  // all messages of a handshake are shorter
  // `message` is null when no valid message came. `why` is then the reason, or null when the other
  // end closed the connection without sending anything. The callback may destroy the FirstMessage.
  using Callback = std::function<void(UniqueFd fd, const wire::Message* message, const char* why)>;

  FirstMessage(Reactor& reactor, UniqueFd fd) : reactor_(reactor), fd_(std::move(fd)) {}
  ~FirstMessage();
  FirstMessage(const FirstMessage&) = delete;
  FirstMessage& operator=(const FirstMessage&) = delete;

  // The callback runs exactly once, from the reactor's loop. Returns false when it will never run.
  [[nodiscard]] bool start(std::chrono::milliseconds timeout, Callback callback);
  // To be called after start(): reads what has come already, so that the callback may run inside.
  void read_now() { on_readable(); }

 private:
  void on_readable();
  void finish(const wire::Message* message, const char* why);

  Reactor& reactor_;
  UniqueFd fd_;
  Callback callback_;
  Reactor::TimerId timer_ = 0;
  uint8_t bytes_[kSizeMax];
  size_t used_ = 0;
  size_t needed_ = wire::kHeaderSize;
};

}  // namespace shift::net
