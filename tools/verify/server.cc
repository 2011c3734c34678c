// The end that answers: shift-verify --server. Each connection is one order, in a process of its
// own. Whoever can reach the port may have checks run, and nothing else: an order names a check and
// a NIC of this host, and whatever does not fit ends the connection.
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "session.h"
#include "trouble.h"
#include "wire.h"

namespace shift::verify {
namespace {

constexpr int kOrdersMax = 8;            // at a time
constexpr unsigned kOrderSeconds = 200;  // each of them at most

int listen_at(uint16_t port) {
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1, off = 0;
  if (fd >= 0) {
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(port);
    if (bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof any) == 0 && listen(fd, 16) == 0)
      return fd;
    close(fd);
  }
  // A kernel without IPv6.
  const int plain = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  require(plain >= 0, "socket", errno);
  setsockopt(plain, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(port);
  require(bind(plain, reinterpret_cast<sockaddr*>(&any), sizeof any) == 0 && listen(plain, 16) == 0,
          "port " + std::to_string(port), errno);
  return plain;
}

void obey(const Subject& host, Wire& wire) {
  const auto order = wire.hear(std::chrono::seconds(5));
  if (order.value("shift-verify", 0) != kProtocol) {
    wire.say({{"shift-verify", kProtocol}, {"trouble", "this is another version"}});
    return;
  }
  const std::string what = order.value("do", std::string());
  if (what == "nics") return wire.say({{"shift-verify", kProtocol}, {"nics", host.nics}});
  const Check* check = check_find(order.value("check", std::string()));
  Subject subject = host;
  subject.is_one_host = false;
  subject.nic = order.value("nic", std::string());
  subject.peer_nic = order.value("peer_nic", std::string()).substr(0, 64);
  const bool is_own =
      subject.nic.empty() || std::ranges::find(host.nics, subject.nic) != host.nics.end();
  if (check == nullptr || !is_own) throw Trouble("there is no such check or NIC here");
  if (what == "run" && check->run != nullptr)
    return wire.say(outcome_to_json(run_here(*check, subject, nullptr)));
  if (what != "answer" || check->answer == nullptr) throw Trouble("there is no such order");
  wire.say({{"go", true}});
  check->answer(subject, wire);
}

// The whole life of a process that serves one connection.
[[noreturn]] void serve(const Subject& host, int fd) {
  die_with_parent();
  alarm(kOrderSeconds);
  Wire wire(fd);
  try {
    obey(host, wire);
  } catch (const std::exception& trouble) {
    try {
      wire.say({{"trouble", trouble.what()}});
    } catch (const Trouble&) {
    }
  }
  _exit(0);
}

}  // namespace

[[noreturn]] void server_run(const Subject& host, uint16_t port) {
  const int listener = listen_at(port);
  std::string names;
  for (const std::string& nic : host.nics) names += (names.empty() ? "" : ", ") + nic;
  std::printf("shift-verify: waiting at port %u, with %s; end it with ^C\n", port, names.c_str());
  std::fflush(stdout);
  int running = 0;
  for (;;) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    while (running > 0 && waitpid(-1, nullptr, running >= kOrdersMax ? 0 : WNOHANG) > 0) running--;
    if (fd < 0 && errno != EINTR && errno != ECONNABORTED) fail("accept", errno);
    if (fd < 0) continue;
    const pid_t pid = fork();
    if (pid == 0) {
      close(listener);
      serve(host, fd);
    }
    running += pid > 0;
    close(fd);
  }
}

}  // namespace shift::verify
