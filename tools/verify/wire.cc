#include "wire.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "check.h"
#include "trouble.h"

namespace shift::verify {
namespace {

using Clock = std::chrono::steady_clock;

void await(int fd, short events, Clock::time_point deadline, const char* what) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left < 0) throw Trouble(std::string("the other end does not ") + what + " in time");
    pollfd one{fd, events, 0};
    const int ready = poll(&one, 1, static_cast<int>(left) + 1);
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) fail("poll", errno);
  }
}

}  // namespace

void Wire::say(const nlohmann::json& message) {
  const std::string line =
      message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  size_t sent = 0;
  while (sent < line.size()) {
    await(fd_, POLLOUT, deadline, "listen");
    const ssize_t n = ::send(fd_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) fail("the connection between the two ends", errno);
    sent += static_cast<size_t>(n);
  }
}

nlohmann::json Wire::hear(std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  for (;;) {
    const size_t end = rest_.find('\n');
    if (end != std::string::npos) {
      const auto message = nlohmann::json::parse(rest_.substr(0, end), nullptr, false);
      rest_.erase(0, end + 1);
      if (!message.is_object()) throw Trouble("the other end says what is not understood");
      if (message.contains("trouble"))
        throw Trouble("the other end: " + message.value("trouble", std::string("trouble")));
      return message;
    }
    if (rest_.size() > kLineMax) throw Trouble("the other end says too much");
    await(fd_, POLLIN, deadline, "answer");
    char bytes[4096];
    const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) fail("the connection between the two ends", errno);
    if (n == 0) throw Trouble("the other end has ended");
    rest_.append(bytes, static_cast<size_t>(n));
  }
}

void fail(const std::string& what, int error) {
  throw Trouble(what + ": " + std::strerror(error));
}

std::string text(const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  return line;
}

}  // namespace shift::verify
