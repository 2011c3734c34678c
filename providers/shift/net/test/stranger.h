// A program that connects to the rendezvous port and talks as it likes.
#pragma once

#include <dirent.h>
#include <malloc.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "net/identity.h"
#include "net/proof.h"
#include "net/test/net_fixture.h"

namespace shift::net::test {

// A process that strangers speak for. The same number is the same process.
inline const Identity& identity(unsigned number) {
  static std::map<unsigned, Identity> all;
  Identity::Secret secret{77};
  std::memcpy(&secret[1], &number, sizeof number);
  return all.try_emplace(number, secret).first->second;
}
inline wire::Instance instance(unsigned number) {
  return identity(number).instance();
}
// A Hello of that process, from one QP to another.
inline wire::Hello hello_by(const Identity& who, const wire::QpName& from, const wire::QpName& to) {
  wire::Hello hello;
  hello.instance = who.instance();
  hello.identity = who.public_key();
  hello.want = to;
  hello.from = from;
  return hello;
}

class Stranger {
 public:
  explicit Stranger(uint32_t to, uint32_t own = ip(66))
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), ends_{own, to} {
    const auto from = socket_address(own, 0), there = socket_address(to, test_port());
    EXPECT_EQ(bind(fd_, reinterpret_cast<const struct sockaddr*>(&from), sizeof from), 0);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const struct sockaddr*>(&there), sizeof there), 0);
    const struct timeval patience = {30, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  ~Stranger() { close(fd_); }
  Stranger(const Stranger&) = delete;

  void say(const std::vector<uint8_t>& bytes) {
    // It may fail, because the process may have closed the connection already.
    (void)send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void say(const wire::Message& message) {
    std::vector<uint8_t> bytes;
    ASSERT_TRUE(wire::encode(message, bytes, ++sequence_));
    say(bytes);
  }
  // Introduces itself as a peer does. Returns false when it is not taken in.
  bool greet(const Identity& who, const wire::QpName& from, const wire::QpName& to) {
    const wire::Hello hello = hello_by(who, from, to);
    say(hello);
    const auto answer = hear();
    const auto* reply = answer ? std::get_if<wire::HelloReply>(answer.get()) : nullptr;
    if (reply == nullptr || reply->status != wire::HelloStatus::kOk) return false;
    say(confirm(hello, *reply, who));
    return true;
  }
  // The proof that somebody with this identity can make.
  wire::Confirm confirm(const wire::Hello& hello, const wire::HelloReply& reply,
                        const Identity& who) const {
    const auto key = who.pair_key(reply.identity, reply.instance);
    EXPECT_TRUE(key);
    wire::Confirm made;
    if (key) made.tag = confirm_tag({*key, ends_}, hello, reply, made);
    return made;
  }
  void sequence_set(uint64_t sequence) { sequence_ = sequence - 1; }
  // Returns the next message, or null when the connection was closed.
  std::unique_ptr<wire::Message> hear() {
    uint8_t buffer[4096];
    size_t used = 0, size = 0;
    while (wire::frame_peek({buffer, used}, size) == wire::FrameState::kIncomplete) {
      const ssize_t n = recv(fd_, buffer + used, sizeof buffer - used, 0);
      EXPECT_FALSE(n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) << "neither word nor end";
      if (n <= 0) return nullptr;
      used += static_cast<size_t>(n);
    }
    auto message = std::make_unique<wire::Message>();
    EXPECT_TRUE(wire::decode({buffer, size}, *message));
    return message;
  }
  bool closed() { return hear() == nullptr; }
  bool is_closed_now() {
    char byte;
    return recv(fd_, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
  }

 private:
  const int fd_;
  const Ends ends_;
  uint64_t sequence_ = 0;
};

inline size_t open_descriptors() {
  size_t count = 0;
  DIR* dir = opendir("/proc/self/fd");
  while (readdir(dir) != nullptr) count++;
  closedir(dir);
  return count;
}

inline size_t allocated() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

}  // namespace shift::net::test
