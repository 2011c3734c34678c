// What two ends of a check say to each other: lines of JSON over a stream socket, each with a bound
// in size and time. Whatever does not fit ends the check, and changes nothing.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace shift::verify {

class Wire {
 public:
  static constexpr size_t kLineMax = 16384;

  // Does not own the socket.
  explicit Wire(int fd) : fd_(fd) {}
  int fd() const { return fd_; }

  // Throws Trouble when the peer is gone or does not take it in time.
  void say(const nlohmann::json& message);
  // Throws Trouble when nothing comes in time, or when what comes is no JSON object.
  nlohmann::json hear(std::chrono::milliseconds patience = std::chrono::seconds(10));

 private:
  int fd_;
  std::string rest_;  // bytes of the next line
};

}  // namespace shift::verify
