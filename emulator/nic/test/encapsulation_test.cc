// The ICRC of packets that real adapters sent, and headers byte by byte.
#include "nic/encapsulation.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "icrc_judge.h"

namespace cxemu {
namespace {

// `datagram` begins with the IPv4 header and ends with the ICRC.
uint32_t icrc_of(const std::vector<uint8_t>& datagram) {
  return icrc_behind(datagram.data(), datagram.data() + 28, datagram.size() - 32);
}

uint32_t icrc_in(const std::vector<uint8_t>& datagram) {
  uint32_t icrc;
  memcpy(&icrc, datagram.data() + datagram.size() - 4, sizeof icrc);
  return icrc;
}

// A congestion notification that a ConnectX-4 Lx sent, published with scapy's tests.
const std::vector<uint8_t> kConnectX = {
    0x45, 0xc2, 0x00, 0x3c, 0x71, 0x8c, 0x40, 0x00, 0x40, 0x11, 0x91, 0x61, 0x0a, 0x00, 0x11,
    0x01, 0x0a, 0x00, 0x12, 0x01, 0x00, 0x00, 0x12, 0xb7, 0x00, 0x28, 0x00, 0x00, 0x81, 0x00,
    0xff, 0xff, 0x40, 0x00, 0x01, 0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x82, 0xfd, 0x00, 0x2a};

// A SEND of the kernel's software RoCE, with padding and checksums, published with scapy's tests.
const std::vector<uint8_t> kSoftRoce = {
    0x45, 0x01, 0x00, 0x40, 0x04, 0x78, 0x40, 0x00, 0x40, 0x11, 0xb4, 0xd5, 0xc0, 0xa8, 0x00, 0x07,
    0xc0, 0xa8, 0x00, 0x07, 0xc0, 0x00, 0x12, 0xb7, 0x00, 0x2c, 0xac, 0xa2, 0x24, 0x60, 0xff, 0xff,
    0x00, 0x00, 0x00, 0xd3, 0x00, 0xcf, 0x17, 0x10, 0x46, 0x30, 0x81, 0x8b, 0xe2, 0x89, 0x35, 0xd9,
    0x0e, 0x9a, 0x95, 0x50, 0x54, 0x01, 0xbe, 0x88, 0x5e, 0x50, 0x00, 0x00, 0x78, 0xf3, 0x53, 0xf3};

TEST(Icrc, IsThatOfRealAdapters) {
  EXPECT_EQ(icrc_of(kConnectX), icrc_in(kConnectX));
  EXPECT_EQ(icrc_of(kSoftRoce), icrc_in(kSoftRoce));
  EXPECT_TRUE(test::icrc_valid(kConnectX));
  EXPECT_TRUE(test::icrc_valid(kSoftRoce));
}

// The ICRC must still be right after what routers do, and wrong after any other change.
TEST(Icrc, CoversAllButWhatRoutersChange) {
  const std::set<size_t> free = {1, 8, 10, 11, 26, 27, 32};
  for (size_t i = 0; i + 4 < kSoftRoce.size(); i++) {
    auto changed = kSoftRoce;
    changed[i] ^= 0x10;
    EXPECT_EQ(icrc_of(changed) == icrc_in(changed), free.contains(i)) << "byte " << i;
  }
}

TEST(Encapsulation, FramesAreWholeAndTheirIcrcFits) {
  const Flow flow = {htobe32(0x7f020101), htobe32(0x7f020202), 0xc123};
  const uint8_t src_mac[6] = {1, 2, 3, 4, 5, 6}, dst_mac[6] = {7, 8, 9, 10, 11, 12};
  for (const size_t size : {12, 16, 28, 4140}) {
    std::vector<uint8_t> packet(size);
    for (size_t i = 0; i < size; i++) packet[i] = static_cast<uint8_t>(i * 3);
    std::vector<uint8_t> frame(size + kEncapsulation);
    ASSERT_EQ(frame_encode(flow, src_mac, dst_mac, packet.data(), size, false, frame.data()),
              frame.size());
    const auto total = static_cast<uint16_t>(size + 32), udp = static_cast<uint16_t>(size + 12);
    const std::vector<uint8_t> front = {7,
                                        8,
                                        9,
                                        10,
                                        11,
                                        12,
                                        1,
                                        2,
                                        3,
                                        4,
                                        5,
                                        6,
                                        0x08,
                                        0x00,  //
                                        0x45,
                                        0,
                                        uint8_t(total >> 8),
                                        uint8_t(total),
                                        0,
                                        0,
                                        0x40,
                                        0,
                                        64,
                                        17,
                                        frame[24],
                                        frame[25],
                                        127,
                                        2,
                                        1,
                                        1,
                                        127,
                                        2,
                                        2,
                                        2,
                                        0xc1,
                                        0x23,
                                        0x12,
                                        0xb7,
                                        uint8_t(udp >> 8),
                                        uint8_t(udp),
                                        0,
                                        0};
    EXPECT_EQ(std::vector<uint8_t>(frame.begin(), frame.begin() + 42), front);
    uint32_t sum = 0;
    for (size_t i = 14; i < 34; i += 2) sum += frame[i] << 8 | frame[i + 1];
    EXPECT_EQ((sum & 0xffff) + (sum >> 16), 0xffffu) << "checksum of the IPv4 header";
    EXPECT_TRUE(std::equal(packet.begin(), packet.end(), frame.begin() + 42));
    EXPECT_TRUE(test::icrc_valid({frame.begin() + 14, frame.end()}));
    frame_encode(flow, src_mac, dst_mac, packet.data(), size, true, frame.data());
    EXPECT_FALSE(test::icrc_valid({frame.begin() + 14, frame.end()}));
  }
}

TEST(Encapsulation, QueuePairsSpreadOverTheRecommendedPorts) {
  std::set<uint16_t> ports;
  for (uint32_t qpn = 0x10001; qpn < 0x10101; qpn++) {
    uint8_t bth[12] = {};
    const uint32_t qpn_be = htobe32(qpn);
    memcpy(bth + 4, &qpn_be, sizeof qpn_be);
    const uint32_t index = flow_index(1, 2, bth);
    ASSERT_LT(index, kFlowPorts);
    ASSERT_EQ(index, flow_index(1, 2, bth));
    ASSERT_GE(flow_port(index), 0xc000);
    ports.insert(flow_port(index));
  }
  EXPECT_GT(ports.size(), kFlowPorts / 2);
}

}  // namespace
}  // namespace cxemu
