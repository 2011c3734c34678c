// The first message on a fresh TCP connection, in either direction, bounded in size and time.
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

// Reads exactly one message and not a byte more: what follows belongs to the connection.
class FirstMessage {
 public:
  // `message` is null when none came: `why` says so, and is null for one who left without a word.
  // May destroy the FirstMessage.
  using Callback = std::function<void(UniqueFd fd, const wire::Message* message, const char* why)>;

  FirstMessage(Reactor& reactor, UniqueFd fd) : reactor_(reactor), fd_(std::move(fd)) {}
  ~FirstMessage();
  FirstMessage(const FirstMessage&) = delete;
  FirstMessage& operator=(const FirstMessage&) = delete;

  // The callback runs exactly once, from the reactor's loop. False when it never will.
  [[nodiscard]] bool start(std::chrono::milliseconds timeout, Callback callback);

 private:
  static constexpr size_t kSizeMax = 256;  // both messages that may come first are shorter

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

// Connects, says Hello, and waits for the answer.
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
  // Instead of start(): gives the late answer of start(), without an attempt.
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

// Sends the answer to a Hello on a fresh connection; false when the connection is lost.
bool hello_answer(int fd, const wire::Hello& hello, const wire::Instance& self,
                  wire::HelloStatus status);

}  // namespace shift::net
