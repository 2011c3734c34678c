// The first message in each direction of a fresh TCP connection, bounded in size and time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "net/reactor.h"
#include "net/rendezvous.h"
#include "util/unique_fd.h"
#include "wire/messages.h"

namespace shift::net {

// Reads exactly one message and not a byte more, because the bytes that follow are for the reader
// of the connection.
class FirstMessage {
 public:
  // `message` is null when no valid message came. `why` is then the reason, or null when the other
  // end closed the connection without sending anything. The callback may destroy the FirstMessage.
  using Callback = std::function<void(UniqueFd fd, const wire::Message* message, const char* why)>;

  FirstMessage(Reactor& reactor, UniqueFd fd) : reactor_(reactor), fd_(std::move(fd)) {}
  ~FirstMessage();
  FirstMessage(const FirstMessage&) = delete;
  FirstMessage& operator=(const FirstMessage&) = delete;

  // The callback runs exactly once, from the reactor's loop. Returns false when it will never run.
  [[nodiscard]] bool start(std::chrono::milliseconds timeout, Callback callback);

 private:
  static constexpr size_t kSizeMax = 256;  // a Hello and a HelloReply are shorter

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

// Connects, sends a Hello, and waits for the answer.
class TcpDial {
 public:
  TcpDial(Reactor& reactor, Rendezvous::DialCallback callback)
      : reactor_(reactor), callback_(std::move(callback)) {}
  ~TcpDial();
  TcpDial(const TcpDial&) = delete;
  TcpDial& operator=(const TcpDial&) = delete;

  // The callback runs exactly once, from the reactor's loop; it may destroy the TcpDial.
  void start(uint32_t local_ip_be, uint32_t remote_ip_be, uint16_t port, const wire::Hello& hello,
             std::chrono::milliseconds timeout);
  // To be called in place of start(): reports the error from the loop, without an attempt.
  void fail(DialError error);

 private:
  void on_connected();
  void on_reply(UniqueFd fd, const wire::Message* message, const char* why);
  void finish(DialError error, UniqueFd fd, const wire::Instance& peer);

  Reactor& reactor_;
  Rendezvous::DialCallback callback_;
  UniqueFd fd_;
  wire::Hello hello_;
  uint32_t remote_ip_be_ = 0;
  Reactor::Clock::time_point deadline_{};
  Reactor::TimerId timer_ = 0;
  std::unique_ptr<FirstMessage> reply_;
};

// Sends the answer to a Hello on a fresh connection; returns false when the connection is lost.
bool hello_answer(int fd, const wire::Hello& hello, const wire::Instance& self,
                  wire::HelloStatus status);

}  // namespace shift::net
