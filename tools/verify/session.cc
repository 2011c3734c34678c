#include "session.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "trouble.h"
#include "wire.h"

namespace shift::verify {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Closed when it is left; unlike the layer's own, also in a child.
struct Socket {
  explicit Socket(int opened) : fd(opened) {}
  ~Socket() {
    if (fd >= 0) close(fd);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd;
};

class Alone final : public Session {
 public:
  explicit Alone(const Subject& host) : nics_(host.nics) {}

  const std::vector<std::string>& peer_nics() const override { return nics_; }
  Outcome run_there(const Check&, const std::string&, const Job::Progress&) override {
    return skipped("there is one host");
  }
  Outcome run_both(const Check& check, const Subject& subject,
                   const Job::Progress& progress) override {
    int ends[2];
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair", errno);
    Subject other = subject;
    std::swap(other.nic, other.peer_nic);
    Job answers([&] {
      close(ends[0]);
      Wire wire(ends[1]);
      try {
        check.answer(other, wire);
      } catch (const Trouble& trouble) {
        wire.say({{"trouble", trouble.what()}});
      }
      return ok("");
    });
    Job asks([&] {
      close(ends[1]);
      Wire wire(ends[0]);
      return check.ask(subject, wire);
    });
    close(ends[0]);
    close(ends[1]);
    Outcome out = asks.result(seconds(check.seconds), progress);
    // The other end sees that this one is over, and tidies up.
    (void)answers.result(seconds(3), nullptr);
    return out;
  }

 private:
  std::vector<std::string> nics_;
};

// Names come from another host, and go to a terminal.
bool is_device_name(const std::string& name) {
  return !name.empty() && name.size() < 64 && std::ranges::all_of(name, [](unsigned char letter) {
    return std::isalnum(letter) != 0 || std::strchr("_-.:", letter) != nullptr;
  });
}

int dial(const std::string& server, uint16_t port) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  const int problem = getaddrinfo(server.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (problem != 0) throw Trouble(server + ": " + gai_strerror(problem));
  int error = ENOENT;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    const int fd = socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) continue;
    int result = connect(fd, one->ai_addr, one->ai_addrlen) == 0 ? 0 : errno;
    if (result == EINPROGRESS) {
      pollfd ready{fd, POLLOUT, 0};
      socklen_t size = sizeof result;
      if (::poll(&ready, 1, 3000) != 1) {
        result = ETIMEDOUT;
      } else {
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &result, &size);
      }
    }
    if (result == 0) {
      freeaddrinfo(found);
      return fd;
    }
    error = result;
    close(fd);
  }
  freeaddrinfo(found);
  fail("no shift-verify --server at " + server + ", port " + std::to_string(port), error);
}

class Remote final : public Session {
 public:
  Remote(std::string server, uint16_t port) : server_(std::move(server)), port_(port) {
    const Socket socket(dial(server_, port_));
    Wire wire(socket.fd);
    wire.say({{"shift-verify", kProtocol}, {"do", "nics"}});
    const auto told = wire.hear(seconds(10));
    if (told.value("shift-verify", 0) != kProtocol)
      throw Trouble(server_ + " has a shift-verify of another version");
    nics_ = told.value("nics", std::vector<std::string>{});
    if (nics_.empty()) throw Trouble(server_ + " has no RDMA device");
    if (nics_.size() > 2 || !std::ranges::all_of(nics_, is_device_name))
      throw Trouble(server_ + " names no NICs");
  }

  const std::vector<std::string>& peer_nics() const override { return nics_; }

  Outcome run_there(const Check& check, const std::string& nic,
                    const Job::Progress& progress) override {
    Job job([&] {
      const Socket socket(dial(server_, port_));
      Wire wire(socket.fd);
      wire.say({{"shift-verify", kProtocol}, {"do", "run"}, {"check", check.name}, {"nic", nic}});
      return outcome_from_json(wire.hear(seconds(check.seconds + 5)));
    });
    return job.result(seconds(check.seconds + 6), progress);
  }

  Outcome run_both(const Check& check, const Subject& subject,
                   const Job::Progress& progress) override {
    Job job([&] {
      const Socket socket(dial(server_, port_));
      Wire wire(socket.fd);
      wire.say({{"shift-verify", kProtocol},
                {"do", "answer"},
                {"check", check.name},
                {"nic", subject.peer_nic},
                {"peer_nic", subject.nic}});
      wire.hear();
      return check.ask(subject, wire);
    });
    return job.result(seconds(check.seconds), progress);
  }

 private:
  const std::string server_;
  const uint16_t port_;
  std::vector<std::string> nics_;
};

}  // namespace

Outcome run_here(const Check& check, const Subject& subject, const Job::Progress& progress) {
  Job job([&] { return check.run(subject); });
  return job.result(seconds(check.seconds), progress);
}

std::unique_ptr<Session> session_alone(const Subject& host) {
  return std::make_unique<Alone>(host);
}

std::unique_ptr<Session> session_with(const std::string& server, uint16_t port) {
  return std::make_unique<Remote>(server, port);
}

}  // namespace shift::verify
