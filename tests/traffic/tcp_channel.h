// The side channel between the two processes: lines over TCP, on 127.0.0.1 or on a network without
// a NIC under test.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "transport.h"

namespace traffic {

class TcpChannel : public SideChannel {
 public:
  // Waits for one client. Prints "port N" as soon as it listens. Returns nullptr with a message on
  // failure.
  static std::unique_ptr<TcpChannel> accept_one(const std::string& own_address, uint16_t port,
                                                uint32_t timeout_ms, std::string* error);
  // Tries again and again until the server listens.
  static std::unique_ptr<TcpChannel> connect_to(const std::string& host, uint16_t port,
                                                uint32_t timeout_ms, std::string* error);
  ~TcpChannel() override;

  void send_line(std::string_view line) override;
  std::optional<std::string> receive_line() override;
  // Whether the other end has closed and all its lines were read.
  bool is_closed() const override { return is_eof_ && lines_.empty(); }
  int fd() const { return fd_; }
  // Waits for the next line; only the set-up uses this. Returns an empty line at the end of the
  // stream and when time is over.
  std::string wait_line(uint32_t timeout_ms);

 private:
  explicit TcpChannel(int fd);
  void drain();

  const int fd_;
  bool is_eof_ = false;
  std::string partial_;
  std::deque<std::string> lines_;
};

}  // namespace traffic
