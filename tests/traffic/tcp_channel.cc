// The side channel's lines over TCP.
#include "tcp_channel.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "report.h"

namespace traffic {
namespace {
bool wait_readable(int fd, uint32_t timeout_ms) {
  pollfd p{fd, POLLIN, 0};
  return poll(&p, 1, static_cast<int>(timeout_ms)) == 1;
}
}  // namespace

TcpChannel::TcpChannel(int fd) : fd_(fd) {
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

TcpChannel::~TcpChannel() {
  close(fd_);
}

std::unique_ptr<TcpChannel> TcpChannel::accept_one(const std::string& own_address, uint16_t port,
                                                   uint32_t timeout_ms, std::string* error) {
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int one = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  socklen_t length = sizeof address;
  int fd = -1;
  if (inet_pton(AF_INET, own_address.c_str(), &address.sin_addr) != 1) {
    *error = fmt::format("{} is no IPv4 address", own_address);
  } else if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
             listen(listener, 1) != 0 ||
             getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    *error = fmt::format("port {}: {}", port, strerror(errno));
  } else {
    printf("port %d\n", ntohs(address.sin_port));
    fflush(stdout);
    if (wait_readable(listener, timeout_ms)) fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) *error = "no client came";
  }
  close(listener);
  return std::unique_ptr<TcpChannel>(fd < 0 ? nullptr : new TcpChannel(fd));
}

std::unique_ptr<TcpChannel> TcpChannel::connect_to(const std::string& host, uint16_t port,
                                                   uint32_t timeout_ms, std::string* error) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    *error = "unknown host " + host;
    return nullptr;
  }
  uint64_t deadline = now_ns() + timeout_ms * 1'000'000ull;
  int fd = -1;
  for (;;) {
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, found->ai_addr, found->ai_addrlen) == 0) break;
    *error = fmt::format("{}:{}: {}", host, port, strerror(errno));
    close(fd);
    fd = -1;
    if (now_ns() > deadline) break;
    usleep(10'000);
  }
  freeaddrinfo(found);
  return std::unique_ptr<TcpChannel>(fd < 0 ? nullptr : new TcpChannel(fd));
}

void TcpChannel::send_line(std::string_view line) {
  std::string text(line);
  text += '\n';
  size_t sent = 0;
  while (sent < text.size()) {
    ssize_t n = send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // the next read finds the end of the stream
    sent += static_cast<size_t>(n);
  }
}

void TcpChannel::drain() {
  char buffer[4096];
  for (;;) {
    ssize_t n = recv(fd_, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) {
      is_eof_ = true;
      return;
    }
    partial_.append(buffer, static_cast<size_t>(n));
    for (size_t end; (end = partial_.find('\n')) != std::string::npos;) {
      lines_.push_back(partial_.substr(0, end));
      partial_.erase(0, end + 1);
    }
    if (n < static_cast<ssize_t>(sizeof buffer)) return;
  }
}

std::optional<std::string> TcpChannel::receive_line() {
  if (lines_.empty() && !is_eof_) drain();
  if (lines_.empty()) return std::nullopt;
  std::string line = std::move(lines_.front());
  lines_.pop_front();
  return line;
}

std::string TcpChannel::wait_line(uint32_t timeout_ms) {
  uint64_t deadline = now_ns() + timeout_ms * 1'000'000ull;
  for (;;) {
    if (auto line = receive_line()) return *line;
    if (is_eof_ || now_ns() > deadline) return {};
    wait_readable(fd_, 100);
  }
}

}  // namespace traffic
