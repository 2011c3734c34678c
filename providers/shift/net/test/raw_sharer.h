// A process of this host that shares a port, and does what the test says.
#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "net/local_packet.h"
#include "net/secrets.h"
#include "net/socket.h"
#include "net/test/net_fixture.h"

namespace shift::net::test {

// The local socket of a port, without a job key.
inline std::string local_name(uint32_t ip_be, uint16_t port) {
  return Secrets().local_name(ip_be, port, 0);
}

inline void packet_send(int fd, const LocalPacket& packet) {
  std::vector<uint8_t> bytes;
  EXPECT_TRUE(local_encode(packet, bytes));
  EXPECT_TRUE(local_send(fd, bytes));
}

// Waits for the next packet. Returns false when the other end has closed the socket.
inline bool packet_receive(int fd, LocalPacket& packet, UniqueFd& passed) {
  struct pollfd ready = {fd, POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 30000), 1) << "nothing came";
  uint8_t bytes[kLocalPacketMax];
  const ssize_t n = local_receive(fd, bytes, passed);
  return n > 0 && local_decode({bytes, static_cast<size_t>(n)}, packet);
}

class RawSharer {
 public:
  explicit RawSharer(uint32_t ip_be) {
    // The owner may not listen yet.
    while (!(fd_ = local_connect(local_name(ip_be, test_port())))) usleep(1000);
    EXPECT_EQ(receive().kind, LocalKind::kChallenge);
    LocalPacket packet;
    packet.hello.instance.raw.fill(9);
    send(packet);
    EXPECT_EQ(receive().kind, LocalKind::kWelcome);
  }
  void send(const LocalPacket& packet) { packet_send(fd_.get(), packet); }
  LocalPacket receive(UniqueFd& passed) {
    LocalPacket packet;
    EXPECT_TRUE(packet_receive(fd_.get(), packet, passed));
    return packet;
  }
  LocalPacket receive() {
    UniqueFd none;
    return receive(none);
  }
  void close() { fd_.reset(); }

 private:
  UniqueFd fd_;
};

}  // namespace shift::net::test
