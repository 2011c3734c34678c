// Unreliable datagrams: addresses, Q_Keys, the network header before the data, and dropped packets.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>

#include <cstring>

#include "fabric/gid.h"
#include "rig.h"

namespace cxemu::test {
namespace {

constexpr uint32_t kQkey = 0x11111111;
constexpr uint32_t kGrh = 40;
constexpr uint32_t kPortMtu = 4096;  // the port's MTU

class Ud : public ::testing::Test {
 protected:
  Ud() {
    Rig::start_datagrams(a_, kQkey);
    Rig::start_datagrams(b_, kQkey);
    for (size_t i = 0; i < local_.bytes.size(); i++) local_.bytes[i] = static_cast<uint8_t>(i * 3);
  }
  SendWr to(const TestQp& peer, const FabricNic& nic, uint32_t length, int gid_index = 3) const {
    SendWr wr = {.sges = {local_.sge(0, length)}};
    wr.dest_qpn = peer.number();
    wr.qkey = kQkey;
    wr.sgid_index = gid_index;
    nic_gid(nic, gid_index, wr.gid.raw);
    return wr;
  }
  SendWr to_b(uint32_t length, int gid_index = 3) const {
    return to(b_, rig_.b.fabric_nic, length, gid_index);
  }
  void settle() { rig_.run_for(50'000); }
  // Sends one datagram to b; returns what b received.
  std::vector<Completion> exchange(const SendWr& wr) {
    a_.post_send(wr);
    settle();
    const auto sent = a_cq_.drain();
    EXPECT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].syndrome, kSyndromeNone);
    return b_cq_.drain();
  }

  Rig rig_;
  TestCq a_cq_{*rig_.a.nic, rig_.a.events}, b_cq_{*rig_.b.nic, rig_.b.events};
  TestQp a_{*rig_.a.nic, rig_.a.events, a_cq_, a_cq_, {.type = IBV_QPT_UD}};
  TestQp b_{*rig_.b.nic, rig_.b.events, b_cq_, b_cq_, {.type = IBV_QPT_UD}};
  TestMr local_{*rig_.a.nic, 8192};
  TestMr remote_{*rig_.b.nic, 8192};
};

TEST_F(Ud, DatagramsOfEveryLengthArriveBehindTheHeader) {
  for (const uint32_t length : {0u, 1u, 3u, 4u, 1000u, kPortMtu - 1, kPortMtu}) {
    std::fill(remote_.bytes.begin(), remote_.bytes.end(), uint8_t{0xee});
    b_.post_recv({remote_.sge(0, kGrh + length)});
    const auto received = exchange(to_b(length));
    ASSERT_EQ(received.size(), 1u) << length;
    EXPECT_EQ(received[0].opcode, kCqeRecvSend);
    EXPECT_EQ(received[0].byte_count, kGrh + length);
    EXPECT_EQ(received[0].remote_qpn, a_.number());
    EXPECT_TRUE(received[0].grh);
    EXPECT_TRUE(std::equal(local_.bytes.begin(), local_.bytes.begin() + length,
                           remote_.bytes.begin() + kGrh));
    EXPECT_EQ(remote_.bytes[kGrh + length], 0xee);
  }
}

TEST_F(Ud, ImmediateDataAndScatteredReceives) {
  // The header crosses the boundary between the first two parts.
  b_.post_recv({remote_.sge(1000, 24), remote_.sge(2000, 20), remote_.sge(3000, 100)});
  SendWr wr = to_b(10);
  wr.opcode = kWqeSendImm;
  wr.imm_be = 0xa1b2c3d4;
  const auto received = exchange(wr);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].opcode, kCqeRecvSendImm);
  EXPECT_EQ(received[0].imm_be, 0xa1b2c3d4);
  EXPECT_EQ(remote_.bytes[1020], 0x45) << "the IPv4 header begins at byte 20";
  EXPECT_EQ(memcmp(&remote_.bytes[2016], local_.bytes.data(), 4), 0);
  EXPECT_EQ(memcmp(&remote_.bytes[3000], local_.bytes.data() + 4, 6), 0);
}

// The sum by which a host checks the header that the NIC stored.
uint16_t ones_complement_sum(const uint8_t* at, size_t size) {
  uint32_t sum = 0;
  for (size_t i = 0; i < size; i += 2) sum += uint32_t{at[i]} << 8 | at[i + 1];
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

TEST_F(Ud, HeaderIsIpv4sForRoceV2) {
  b_.post_recv({remote_.sge(0, 100)});
  ASSERT_EQ(exchange(to_b(10)).size(), 1u);
  iphdr header;
  memcpy(&header, remote_.bytes.data() + 20, sizeof header);
  EXPECT_EQ(header.version, 4);
  EXPECT_EQ(header.ihl, 5);
  EXPECT_EQ(header.protocol, IPPROTO_UDP);
  EXPECT_EQ(header.saddr, rig_.a.fabric_nic.ipv4_be);
  EXPECT_EQ(header.daddr, rig_.b.fabric_nic.ipv4_be);
  // IPv4, UDP, BTH, DETH, payload with its pad, ICRC.
  EXPECT_EQ(ntohs(header.tot_len), 20 + 8 + 12 + 8 + 12 + 4);
  EXPECT_EQ(ones_complement_sum(remote_.bytes.data() + 20, 20), 0xffff);
  // The header cannot be mistaken for an IPv6 header.
  EXPECT_NE(remote_.bytes[0] >> 4, 6);
}

TEST_F(Ud, HeaderIsAGlobalRouteHeaderForTheOtherGids) {
  for (const int index : {0, 1, 2}) {
    b_.post_recv({remote_.sge(0, 100)});
    ASSERT_EQ(exchange(to_b(10, index)).size(), 1u) << index;
    ip6_hdr header;
    memcpy(&header, remote_.bytes.data(), sizeof header);
    EXPECT_EQ(ntohl(header.ip6_flow) >> 28, 6u);
    EXPECT_EQ(header.ip6_nxt, index == 1 ? IPPROTO_UDP : 0x1b);
    uint8_t gid[16];
    nic_gid(rig_.a.fabric_nic, index, gid);
    EXPECT_EQ(memcmp(&header.ip6_src, gid, sizeof gid), 0) << index;
    nic_gid(rig_.b.fabric_nic, index, gid);
    EXPECT_EQ(memcmp(&header.ip6_dst, gid, sizeof gid), 0) << index;
  }
}

TEST_F(Ud, AnotherQkeyIsDroppedAndCounted) {
  b_.post_recv({remote_.sge(0, 100)});
  SendWr wr = to_b(10);
  wr.qkey ^= 1;
  EXPECT_TRUE(exchange(wr).empty());
  EXPECT_EQ(rig_.b.fabric_nic.qkey_violations.load(), 1u);
  EXPECT_EQ(exchange(to_b(10)).size(), 1u) << "the receive is still there";
}

TEST_F(Ud, HighBitTakesTheQueuePairsOwnQkey) {
  b_.post_recv({remote_.sge(0, 100)});
  SendWr wr = to_b(10);
  wr.qkey = 0x80000000;
  EXPECT_EQ(exchange(wr).size(), 1u);
  ibv_qp_attr other = {};
  other.qkey = 0x777;
  ASSERT_EQ(a_.modify(other, IBV_QP_QKEY), 0);
  b_.post_recv({remote_.sge(0, 100)});
  EXPECT_TRUE(exchange(wr).empty());
  ASSERT_EQ(b_.modify(other, IBV_QP_QKEY), 0);
  EXPECT_EQ(exchange(wr).size(), 1u);
}

TEST_F(Ud, WithoutAReceiveItIsDroppedAndCounted) {
  EXPECT_TRUE(exchange(to_b(10)).empty());
  EXPECT_EQ(rig_.b.fabric_nic.get(HwCounter::kOutOfBuffer), 1u);
  b_.post_recv({remote_.sge(0, 100)});
  EXPECT_EQ(exchange(to_b(10)).size(), 1u);
}

TEST_F(Ud, LostAndLateDatagramsAreNobodysBusiness) {
  for (int i = 0; i < 8; i++) b_.post_recv({remote_.sge(0, 100)});
  int seen = 0;
  rig_.net.filter = [&](const Packet&) { return seen++ % 2; };
  for (uint32_t i = 1; i <= 8; i++) a_.post_send(to_b(i));
  settle();
  EXPECT_EQ(a_cq_.drain().size(), 8u);
  const auto received = b_cq_.drain();
  ASSERT_EQ(received.size(), 4u);
  for (uint32_t i = 0; i < 4; i++) EXPECT_EQ(received[i].byte_count, kGrh + 2 * i + 2);
}

TEST_F(Ud, LongerThanTheMtuIsALocalLengthError) {
  a_.post_send(to_b(kPortMtu + 1));
  a_.post_send(to_b(1));
  settle();
  const auto sent = a_cq_.drain();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].syndrome, kSyndromeLocalLength);
  EXPECT_EQ(sent[1].syndrome, kSyndromeFlush);
  EXPECT_EQ(a_.query().qp_state, IBV_QPS_SQE);
  ASSERT_EQ(a_.to_state(IBV_QPS_RTS), 0);
  b_.post_recv({remote_.sge(0, 100)});
  EXPECT_EQ(exchange(to_b(1)).size(), 1u);
}

TEST_F(Ud, ReceiveWithoutRoomForTheHeaderIsAnError) {
  b_.post_recv({remote_.sge(0, kGrh + 9)});
  b_.post_recv({remote_.sge(0, 100)});
  const auto received = exchange(to_b(10));
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].syndrome, kSyndromeLocalLength);
  EXPECT_EQ(received[1].syndrome, kSyndromeFlush);
  EXPECT_EQ(b_.query().qp_state, IBV_QPS_ERR);
}

TEST_F(Ud, ReceiveIntoMemoryOfOthersIsAnError) {
  TestMr foreign(*rig_.b.nic, 100, IBV_ACCESS_LOCAL_WRITE, 2);
  b_.post_recv({foreign.sge(0, 100)});
  const auto received = exchange(to_b(10));
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].syndrome, kSyndromeLocalProtection);
}

TEST_F(Ud, OneQueuePairSpeaksWithManyAndWithItself) {
  TestQp second(*rig_.b.nic, rig_.b.events, b_cq_, b_cq_, {.type = IBV_QPT_UD});
  Rig::start_datagrams(second, kQkey);
  TestMr inbox(*rig_.a.nic, 100);
  a_.post_recv({inbox.sge(0, 100)});
  b_.post_recv({remote_.sge(0, 100)});
  second.post_recv({remote_.sge(100, 100)});
  a_.post_send(to(a_, rig_.a.fabric_nic, 5));
  a_.post_send(to_b(6));
  a_.post_send(to(second, rig_.b.fabric_nic, 7, 1));
  settle();
  const auto at_b = b_cq_.drain();
  ASSERT_EQ(at_b.size(), 2u);
  EXPECT_EQ(at_b[0].qpn, b_.number());
  EXPECT_EQ(at_b[1].qpn, second.number());
  EXPECT_EQ(at_b[1].byte_count, kGrh + 7);
  const auto at_a = a_cq_.drain();
  ASSERT_EQ(at_a.size(), 4u);
  EXPECT_EQ(std::count_if(at_a.begin(), at_a.end(),
                          [](const Completion& c) { return c.opcode == kCqeRecvSend; }),
            1);
}

TEST_F(Ud, NobodysAddressAndTheWrongPortVanish) {
  b_.post_recv({remote_.sge(0, 100)});
  SendWr wr = to_b(10);
  wr.gid.raw[15] = 99;
  EXPECT_TRUE(exchange(wr).empty());
  wr = to(b_, rig_.a.fabric_nic, 10);  // b's number, at another port
  EXPECT_TRUE(exchange(wr).empty());
  wr = to_b(10);
  wr.dest_qpn = 0xffffff;
  EXPECT_TRUE(exchange(wr).empty());
  EXPECT_EQ(exchange(to_b(10)).size(), 1u);
}

// The last address look-up is remembered, but only until the fabric changes.
TEST_F(Ud, AddressThatAppearsLaterIsFound) {
  rig_.b.fabric_nic.used = 0;
  b_.post_recv({remote_.sge(0, 100)});
  EXPECT_TRUE(exchange(to_b(10)).empty());
  rig_.b.fabric_nic.used = 1;
  rig_.fabric->change_count++;
  EXPECT_EQ(exchange(to_b(10)).size(), 1u);
}

TEST_F(Ud, OnlySendsAndOnlyOwnGids) {
  for (const uint8_t opcode : {kWqeWrite, kWqeRead, kWqeFetchAdd, kWqeSendInvalidate}) {
    ASSERT_EQ(a_.query().qp_state, IBV_QPS_RTS);
    SendWr wr = to_b(8);
    wr.opcode = opcode;
    a_.post_send(wr);
    settle();
    const auto sent = a_cq_.drain();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].syndrome, kSyndromeLocalQpOperation) << int{opcode};
    ASSERT_EQ(a_.to_state(IBV_QPS_RTS), 0);
  }
  SendWr wr = to_b(8);
  wr.sgid_index = kGidCount;
  a_.post_send(wr);
  settle();
  EXPECT_EQ(a_cq_.drain()[0].syndrome, kSyndromeLocalQpOperation);
}

TEST_F(Ud, ReceivesBeforeItMaySend) {
  TestQp third(*rig_.b.nic, rig_.b.events, b_cq_, b_cq_, {.type = IBV_QPT_UD});
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = kQkey;
  ASSERT_EQ(third.modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
  third.post_recv({remote_.sge(0, 100)});
  EXPECT_TRUE(exchange(to(third, rig_.b.fabric_nic, 1)).empty()) << "not in INIT";
  ASSERT_EQ(third.to_state(IBV_QPS_RTR), 0);
  EXPECT_EQ(exchange(to(third, rig_.b.fabric_nic, 1)).size(), 1u);
}

}  // namespace
}  // namespace cxemu::test
