// The UDP carrier over real sockets: carriers of several "processes" inside one process, over the
// loopback interface.
#include "nic/udp_carrier.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "icrc_judge.h"
#include "nic/udp_socket.h"
#include "real_time.h"
#include "rig.h"

namespace cxemu::test {
namespace {

class UdpCarriers : public ::testing::Test {
 protected:
  void SetUp() override { fabric_->net = 2'000'000u + static_cast<uint32_t>(getpid()); }

  // A process that uses a NIC.
  std::unique_ptr<UdpCarrier> process(int slot, uint32_t ipv4_be) {
    auto carrier = UdpCarrier::open(*fabric_, slot);
    EXPECT_TRUE(carrier);
    carrier->address_open(ipv4_be);
    return carrier;
  }
  static uint32_t address(uint32_t which) {
    return htobe32(127u << 24 | (251 + which) << 16 | (getpid() & 0xffff));
  }
  // A SEND to the slot's first queue pair, with `number` as its data; larger numbers make it
  // larger.
  static std::vector<uint8_t> packet(int slot, uint32_t number) {
    Packet header = {.opcode = Operation::kSendOnly};
    header.dest_qpn = static_cast<uint32_t>(slot) << 16 | 1;
    const size_t size = 4 + number % 1024 * 4;
    std::vector<uint8_t> bytes(kMaxPacket, static_cast<uint8_t>(number));
    const size_t headers = headers_encode(header, size, bytes.data());
    memcpy(bytes.data() + headers, &number, sizeof number);
    bytes.resize(headers + size);
    return bytes;
  }
  static bool send(UdpCarrier& from, int slot, uint32_t src, uint32_t dst,
                   const std::vector<uint8_t>& bytes, bool corrupt = false) {
    uint8_t* out = from.reserve(slot, bytes.size());
    if (out == nullptr) return false;
    memcpy(out, bytes.data(), bytes.size());
    from.commit(src, dst, bytes.size(), corrupt);
    return true;
  }

  std::unique_ptr<FabricFile> fabric_ = std::make_unique<FabricFile>();
  const uint32_t x_ = address(0), y_ = address(1);
};

// Much more than the socket holds is sent to a receiver that reads only now and then: the sender
// has to pause, and nothing is lost, damaged or out of order.
TEST_F(UdpCarriers, FramesComeWholeInOrderAndAllOfThem) {
  const auto x = process(1, x_), y = process(2, y_);
  Collect collect;
  uint32_t sent = 0, refused = 0;
  constexpr uint32_t kFrames = 20'000;
  ASSERT_TRUE(eventually([&] {
    for (int i = 0; i < 5000 && sent < kFrames; i++) {
      if (!send(*x, 2, x_, y_, packet(2, sent), sent % 7 == 3)) {
        refused++;
        EXPECT_TRUE(x->flush()) << "it is worth another try soon";
        break;
      }
      sent++;
    }
    x->flush();
    y->receive(collect, 1 << 20);
    return collect.frames.size() == kFrames;
  })) << collect.frames.size();
  for (uint32_t i = 0; i < kFrames; i++) {
    const auto& frame = collect.frames[i];
    ASSERT_EQ(frame.src, x_);
    ASSERT_EQ(frame.dst, y_);
    ASSERT_EQ(frame.corrupt, i % 7 == 3);
    ASSERT_EQ(frame.packet, packet(2, i));
  }
  EXPECT_GT(refused, 0u) << "nothing made the sender wait";
}

TEST_F(UdpCarriers, OwnPacketsNeedNobody) {
  const auto x = process(1, x_);
  Collect collect;
  ASSERT_TRUE(send(*x, 1, x_, x_, packet(1, 5)));
  x->flush();
  x->receive(collect, 1 << 20);
  ASSERT_EQ(collect.frames.size(), 1u);
  EXPECT_EQ(collect.frames[0].packet, packet(1, 5));
}

TEST_F(UdpCarriers, NobodyThereIsNoError) {
  const auto x = process(1, x_);
  for (const int slot : {7, 0, -3, 4000}) {
    ASSERT_TRUE(send(*x, slot, x_, y_, packet(7, 1)));
    EXPECT_FALSE(x->flush());
  }
}

// Two processes share a NIC. Packets for the second process come through the first, until that
// ends.
TEST_F(UdpCarriers, PortIsSharedAndTakenOver) {
  const auto x = process(1, x_);
  auto first = process(2, y_);
  const auto second = process(3, y_);
  Collect at_first, at_second;
  ASSERT_TRUE(send(*x, 3, x_, y_, packet(3, 8)));
  x->flush();
  ASSERT_TRUE(eventually([&] {
    if (first) first->receive(at_first, 1 << 20);
    first->flush();
    second->receive(at_second, 1 << 20);
    return !at_second.frames.empty();
  }));
  EXPECT_EQ(at_second.frames[0].src, x_);
  EXPECT_EQ(at_second.frames[0].dst, y_);
  EXPECT_EQ(at_second.frames[0].packet, packet(3, 8));
  EXPECT_TRUE(at_first.frames.empty());
  // Its own packets are sent although another process has the port.
  Collect at_x;
  ASSERT_TRUE(send(*second, 1, y_, x_, packet(1, 9)));
  second->flush();
  ASSERT_TRUE(eventually([&] {
    x->receive(at_x, 1 << 20);
    return !at_x.frames.empty();
  }));
  EXPECT_EQ(at_x.frames[0].src, y_);

  first.reset();
  at_second.frames.clear();
  EXPECT_TRUE(eventually([&] {
    second->receive(at_second, 1 << 20);
    send(*x, 3, x_, y_, packet(3, 10));
    x->flush();
    return !at_second.frames.empty();
  })) << "nobody took the port over";
}

TEST_F(UdpCarriers, PortIsFreeWhenTheNicIsClosed) {
  const auto x = process(1, x_);
  x->address_open(x_);
  x->address_close(x_);
  int fd = udp_receive_open(x_);
  EXPECT_EQ(fd, -1) << "it is in use still";
  udp_close(fd);
  x->address_close(x_);
  fd = udp_receive_open(x_);
  EXPECT_GE(fd, 0);
  udp_close(fd);
}

// A receiver that no longer takes anything must not stop its senders for ever.
TEST_F(UdpCarriers, PauseEnds) {
  const auto x = process(1, x_), y = process(2, y_);
  Collect collect;
  uint32_t sent = 0;
  while (send(*x, 2, x_, y_, packet(2, 1000))) sent++;
  EXPECT_GT(sent, 0u);
  EXPECT_TRUE(eventually([&] { return send(*x, 2, x_, y_, packet(2, 1000)); }));
}

// Foreign packets, to the port or from our ports, do no harm.
TEST_F(UdpCarriers, MalformedIsIgnoredAndForeignIcrcsAreJudged) {
  const auto x = process(1, x_);
  const auto bytes = packet(1, 3);
  const int fd = udp_send_open(y_, 50000);
  ASSERT_GE(fd, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = x_;
  to.sin_port = htons(kRocePort);
  const auto put = [&](const std::vector<uint8_t>& data) {
    ASSERT_EQ(sendto(fd, data.data(), data.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof to),
              static_cast<ssize_t>(data.size()));
  };
  for (const size_t size : {0, 1, 11, 12, 15, 5000, 60'000}) put(std::vector<uint8_t>(size, 1));
  const auto with_icrc = [&](uint32_t icrc) {
    auto all = bytes;
    all.resize(all.size() + 4);
    memcpy(all.data() + bytes.size(), &icrc, sizeof icrc);
    return all;
  };
  const uint32_t icrc = icrc_compute({y_, x_, 50000}, bytes.data(), bytes.size());
  put(with_icrc(icrc + 1));
  put(with_icrc(icrc_compute({y_, x_, 50001}, bytes.data(), bytes.size())));
  put(with_icrc(icrc));
  Collect collect;
  ASSERT_TRUE(eventually([&] {
    x->receive(collect, 1 << 20);
    return !collect.frames.empty() && !collect.frames.back().corrupt;
  }));
  ASSERT_EQ(collect.frames.size(), 3u);
  EXPECT_TRUE(collect.frames[0].corrupt);
  EXPECT_TRUE(collect.frames[1].corrupt) << "made for another source port";
  EXPECT_EQ(collect.frames[2].packet, bytes);
  int open = fd;
  udp_close(open);
}

}  // namespace
}  // namespace cxemu::test
