// What the targets of the network share: addresses of this process alone, sockets of strangers, and
// a loop that turns until it rests.
#pragma once

#include <arpa/inet.h>
#include <dirent.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "net/proof.h"
#include "net/reactor.h"
#include "net/rendezvous.h"
#include "net/socket.h"
#include "tests/fuzz/targets.h"

namespace shift::fuzz {

using Bytes = std::vector<uint8_t>;

// Address number n of this process, and a port that few others use.
inline uint32_t own_ip(unsigned n) {
  return htonl(127u << 24 | 90u << 16 | (1 + static_cast<unsigned>(getpid()) % 250) << 8 | n);
}
inline uint16_t own_port() {
  return static_cast<uint16_t>(20000 + getpid() % 10000);
}

// The job keys, or none.
inline constexpr std::array<uint8_t, kJobKeySize> kRightKey{1, 2, 3}, kWrongKey{4, 5, 6};
inline std::unique_ptr<JobKeys> job_keys(bool any) {
  return any ? JobKeys::make(std::span(&kRightKey, 1)) : nullptr;
}

inline wire::QpName name_of(uint32_t ip_be, uint32_t qpn) {
  return {wire::Gid::from_ipv4(ip_be), qpn};
}
// A process that is played here.
inline const net::Identity& identity_of(uint8_t n) {
  static std::array<std::unique_ptr<net::Identity>, 256> all;
  if (all[n] == nullptr) all[n] = std::make_unique<net::Identity>(net::Identity::Secret{n, 1});
  return *all[n];
}
inline wire::Instance instance_of(uint8_t n) {
  return identity_of(n).instance();
}

inline void settle(net::Reactor& reactor) {
  for (int turns = 0; reactor.turn(); turns++) require(turns < 1000, "the loop never rests");
}

inline size_t descriptors() {
  size_t count = 0;
  DIR* dir = opendir("/proc/self/fd");
  while (readdir(dir) != nullptr) count++;
  closedir(dir);
  return count;
}

// A TCP connection to the port. It ends with a reset, so that no port stays in TIME_WAIT.
class Caller {
 public:
  Caller(uint32_t from_be, uint32_t to_be, uint16_t port) {
    fd_ = net::tcp_connect(from_be, to_be, port);
    require(static_cast<bool>(fd_), "no connection");
    const struct linger now = {1, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }
  // It may fail, because the other end may have closed the connection.
  void say(std::span<const uint8_t> bytes) {
    (void)!send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  Bytes say(const wire::Message& message, uint64_t sequence = 0) {
    Bytes bytes;
    require(wire::encode(message, bytes, sequence), "no memory");
    say(bytes);
    return bytes;
  }
  // The answer to a Hello, if it came.
  std::optional<wire::HelloReply> hear() {
    uint8_t bytes[512];
    const ssize_t n = recv(fd_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    wire::Message message;
    size_t size = 0;
    if (n <= 0 ||
        wire::frame_peek({bytes, static_cast<size_t>(n)}, size) != wire::FrameState::kComplete ||
        !wire::decode({bytes, size}, message))
      return std::nullopt;
    const auto* reply = std::get_if<wire::HelloReply>(&message);
    return reply != nullptr ? std::optional(*reply) : std::nullopt;
  }
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

// A process that owns QP 7 and is at every address.
class LoneProcess : public net::RendezvousHost {
 public:
  explicit LoneProcess(bool keyed) : secrets_(job_keys(keyed)) {}
  const wire::Instance& own_instance() const override { return secrets_.identity().instance(); }
  const net::Secrets& secrets() const override { return secrets_; }
  const net::PairKey* pair_key(const wire::Instance&) const override { return nullptr; }
  bool expects(const wire::Hello& hello) override { return hello.want.qpn == 7; }
  bool is_at(const wire::Gid&, uint32_t, uint32_t) override { return true; }
  bool has_store() const override { return false; }
  bool look_up(const wire::Gid&, net::StoredCallback) override { return false; }
  bool has_gid(uint32_t, const wire::Gid& gid) override { return gid.raw[0] == 0xfe; }
  void on_inbound(net::Joining) override { taken++; }
  int taken = 0;

 private:
  const net::Secrets secrets_;
};

}  // namespace shift::fuzz
