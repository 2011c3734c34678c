// The transport between two processes, in virtual time: every operation, over good and bad wires.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <numeric>

#include "rig.h"

namespace cxemu::test {
namespace {

void fill(std::vector<uint8_t>& bytes, uint32_t seed) {
  for (size_t i = 0; i < bytes.size(); i++)
    bytes[i] = static_cast<uint8_t>(i * 31 + seed + i / 251);
}

bool same(const TestMr& x, size_t x_at, const TestMr& y, size_t y_at, size_t size) {
  return memcmp(x.bytes.data() + x_at, y.bytes.data() + y_at, size) == 0;
}

// Runs until `count` completions are in the queue.
std::vector<Completion> completions(Rig& rig, TestCq& cq, size_t count) {
  std::vector<Completion> all;
  rig.run_until([&] {
    for (const Completion& one : cq.drain()) all.push_back(one);
    return all.size() >= count;
  });
  return all;
}

// Parameter: path MTU and message size.
class Messages : public ::testing::TestWithParam<std::tuple<uint32_t, uint32_t>> {
 protected:
  uint32_t mtu() const { return std::get<0>(GetParam()); }
  uint32_t size() const { return std::get<1>(GetParam()); }
};

TEST_P(Messages, SendArrives) {
  Rig rig;
  Pair pair(rig, mtu());
  TestMr from(*rig.a.nic, size() + 2), to(*rig.b.nic, size() + 2);
  fill(from.bytes, 1);
  pair.b.post_recv({to.sge(1, size() + 1)});
  pair.a.post_send({.opcode = kWqeSendImm, .sges = {from.sge(1, size())}, .imm_be = 0x11223344});
  const auto sent = completions(rig, pair.a_cq, 1);
  const auto got = completions(rig, pair.b_cq, 1);
  ASSERT_EQ(sent.size(), 1u);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(sent[0].opcode, kCqeRequester);
  EXPECT_EQ(sent[0].wqe_opcode, kWqeSendImm);
  EXPECT_EQ(sent[0].uidx, TestQp::kUidx);
  EXPECT_EQ(sent[0].qpn, pair.a.number());
  EXPECT_EQ(got[0].opcode, kCqeRecvSendImm);
  EXPECT_EQ(got[0].byte_count, size());
  EXPECT_EQ(got[0].imm_be, 0x11223344u);
  EXPECT_EQ(got[0].qpn, pair.b.number());
  EXPECT_TRUE(same(from, 1, to, 1, size()));
  EXPECT_EQ(to.bytes[0], 0);
  EXPECT_EQ(to.bytes[size() + 1], 0);
}

TEST_P(Messages, WriteArrivesAndOnlyThere) {
  Rig rig;
  Pair pair(rig, mtu());
  TestMr from(*rig.a.nic, size() + 2), to(*rig.b.nic, size() + 2);
  fill(from.bytes, 2);
  pair.a.post_send({.opcode = kWqeWrite,
                    .sges = {from.sge(1, size())},
                    .remote_address = to.address() + 1,
                    .rkey = to.key});
  ASSERT_EQ(completions(rig, pair.a_cq, 1).size(), 1u);
  EXPECT_TRUE(same(from, 1, to, 1, size()));
  EXPECT_EQ(to.bytes[0], 0);
  EXPECT_EQ(to.bytes[size() + 1], 0);
  EXPECT_TRUE(pair.b_cq.drain().empty()) << "a silent operation";
}

TEST_P(Messages, ReadFetches) {
  Rig rig;
  Pair pair(rig, mtu());
  TestMr local(*rig.a.nic, size() + 2), remote(*rig.b.nic, size() + 2);
  fill(remote.bytes, 3);
  pair.a.post_send({.opcode = kWqeRead,
                    .sges = {local.sge(1, size())},
                    .remote_address = remote.address() + 1,
                    .rkey = remote.key});
  const auto done = completions(rig, pair.a_cq, 1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].byte_count, size());
  EXPECT_TRUE(same(local, 1, remote, 1, size()));
  EXPECT_EQ(local.bytes[0], 0);
  EXPECT_EQ(local.bytes[size() + 1], 0);
}

TEST_P(Messages, WriteWithImmediateTakesAReceive) {
  Rig rig;
  Pair pair(rig, mtu());
  TestMr from(*rig.a.nic, size() + 1), to(*rig.b.nic, size() + 1);
  fill(from.bytes, 4);
  pair.b.post_recv({});
  pair.a.post_send({.opcode = kWqeWriteImm,
                    .sges = {from.sge(0, size())},
                    .remote_address = to.address(),
                    .rkey = to.key,
                    .imm_be = 5});
  const auto got = completions(rig, pair.b_cq, 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].opcode, kCqeRecvWriteImm);
  EXPECT_EQ(got[0].byte_count, size());
  EXPECT_EQ(got[0].imm_be, 5u);
  EXPECT_TRUE(same(from, 0, to, 0, size()));
}

INSTANTIATE_TEST_SUITE_P(Sizes, Messages,
                         ::testing::Combine(::testing::Values(256, 1024, 4096),
                                            ::testing::Values(0, 1, 255, 256, 257, 1024, 4096, 4097,
                                                              100'000)));

TEST(Transport, PartsAreGatheredAndScattered) {
  Rig rig;
  Pair pair(rig, 256);
  TestMr from(*rig.a.nic, 3000), to(*rig.b.nic, 3000);
  fill(from.bytes, 5);
  pair.b.post_recv({to.sge(2000, 10), to.sge(0, 700), to.sge(1000, 500)});
  pair.a.post_send(
      {.sges = {from.sge(0, 300), from.sge(500, 0), from.sge(1000, 1), from.sge(600, 400)}});
  const auto got = completions(rig, pair.b_cq, 1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].byte_count, 701u);
  std::vector<uint8_t> sent, received;
  const auto append = [](std::vector<uint8_t>& to_bytes, const TestMr& mr, long at, long n) {
    to_bytes.insert(to_bytes.end(), mr.bytes.begin() + at, mr.bytes.begin() + at + n);
  };
  append(sent, from, 0, 300);
  append(sent, from, 1000, 1);
  append(sent, from, 600, 400);
  append(received, to, 2000, 10);
  append(received, to, 0, 691);
  EXPECT_EQ(sent, received);
}

TEST(Transport, InlineDataIsTakenFromTheRing) {
  Rig rig;
  Pair pair(rig, 256);
  TestMr to(*rig.b.nic, 1000);
  std::vector<uint8_t> data(600);
  fill(data, 6);
  for (int round = 0; round < 60; round++) {  // wraps round the ring's end more than once
    pair.a.post_send({.opcode = kWqeWrite,
                      .sges = {{data.data(), 600, 0}},
                      .inline_data = true,
                      .remote_address = to.address(),
                      .rkey = to.key});
    ASSERT_EQ(completions(rig, pair.a_cq, 1).size(), 1u);
    ASSERT_EQ(memcmp(to.bytes.data(), data.data(), 600), 0);
    std::fill(to.bytes.begin(), to.bytes.end(), uint8_t{0});
  }
}

TEST(Transport, AtomicsReturnTheOldValue) {
  Rig rig;
  Pair pair(rig);
  TestMr local(*rig.a.nic, 64), remote(*rig.b.nic, 64);
  auto* word = reinterpret_cast<uint64_t*>(remote.bytes.data());
  auto* result = reinterpret_cast<uint64_t*>(local.bytes.data());
  *word = 40;
  pair.a.post_send({.opcode = kWqeFetchAdd,
                    .sges = {local.sge(0, 8)},
                    .remote_address = remote.address(),
                    .rkey = remote.key,
                    .swap_or_add = 2});
  pair.a.post_send({.opcode = kWqeCompareSwap,
                    .sges = {local.sge(8, 8)},
                    .remote_address = remote.address(),
                    .rkey = remote.key,
                    .swap_or_add = 7,
                    .compare = 42});
  pair.a.post_send({.opcode = kWqeCompareSwap,
                    .sges = {local.sge(16, 8)},
                    .remote_address = remote.address(),
                    .rkey = remote.key,
                    .swap_or_add = 9,
                    .compare = 42});
  const auto done = completions(rig, pair.a_cq, 3);
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done[0].byte_count, 8u);
  EXPECT_EQ(result[0], 40u);
  EXPECT_EQ(result[1], 42u);
  EXPECT_EQ(result[2], 7u);
  EXPECT_EQ(*word, 7u);
}

// The response to an atomic is lost: the operation must not be executed twice.
TEST(Transport, AtomicRunsOnceWhenItsAnswerIsLost) {
  Rig rig;
  Pair pair(rig);
  TestMr local(*rig.a.nic, 64), remote(*rig.b.nic, 64);
  int answers = 0;
  rig.net.filter = [&](const Packet& packet) {
    return packet.opcode == Operation::kAtomicAcknowledge && answers++ < 2 ? 0 : 1;
  };
  for (uint32_t i = 0; i < 3; i++) {
    pair.a.post_send({.opcode = kWqeFetchAdd,
                      .sges = {local.sge(i * 8, 8)},
                      .remote_address = remote.address(),
                      .rkey = remote.key,
                      .swap_or_add = 5});
  }
  ASSERT_EQ(completions(rig, pair.a_cq, 3).size(), 3u);
  EXPECT_GE(answers, 5);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(remote.bytes.data()), 15u);
  const auto* results = reinterpret_cast<uint64_t*>(local.bytes.data());
  EXPECT_EQ(results[0], 0u);
  EXPECT_EQ(results[1], 5u);
  EXPECT_EQ(results[2], 10u);
}

// Damaged packets are dropped, but they are counted.
TEST(Transport, DamagedPacketsAreDroppedCountedAndSentAgain) {
  Rig rig;
  Pair pair(rig);
  TestMr from(*rig.a.nic, 8192), to(*rig.b.nic, 8192);
  std::fill(from.bytes.begin(), from.bytes.end(), uint8_t{9});
  uint32_t requests = 0, answers = 0;
  rig.net.damage = [&](const Packet& packet) {
    return opcode_is_response(packet.opcode) ? answers++ == 0 : requests++ == 3;
  };
  pair.a.post_send({.opcode = kWqeWrite,
                    .sges = {from.sge(0, 8192)},
                    .remote_address = to.address(),
                    .rkey = to.key});
  ASSERT_EQ(completions(rig, pair.a_cq, 1).size(), 1u);
  EXPECT_EQ(to.bytes, from.bytes);
  EXPECT_EQ(rig.a.fabric_nic.icrc_errors, 1u);
  EXPECT_EQ(rig.b.fabric_nic.icrc_errors, 1u);
  EXPECT_GT(rig.a.fabric_nic.retransmits, 0u);
}

TEST(Transport, UnsignaledCompletesSilentlyAndNopInItsTurn) {
  Rig rig;
  Pair pair(rig);
  TestMr from(*rig.a.nic, 100), to(*rig.b.nic, 100);
  const SendWr write = {.opcode = kWqeWrite,
                        .sges = {from.sge(0, 100)},
                        .signaled = false,
                        .remote_address = to.address(),
                        .rkey = to.key};
  pair.a.post_send(write);
  pair.a.post_send({.opcode = kWqeNop, .signaled = false});
  pair.a.post_send(write);
  const uint16_t nop = pair.a.post_send({.opcode = kWqeNop});
  const auto done = completions(rig, pair.a_cq, 1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].wqe_counter, nop);
  EXPECT_EQ(pair.a.query().sq_psn, psn_add(pair.a.attr.sq_psn, 2)) << "a NOP sends nothing";
}

TEST(Transport, FencedSendWaitsForReads) {
  Rig rig;
  Pair pair(rig);
  TestMr local(*rig.a.nic, 8192), remote(*rig.b.nic, 8192);
  std::vector<Operation> order;
  rig.net.filter = [&](const Packet& packet) {
    order.push_back(packet.opcode);
    return 1;
  };
  pair.a.post_send({.opcode = kWqeRead,
                    .sges = {local.sge(0, 4096)},
                    .signaled = false,
                    .remote_address = remote.address(),
                    .rkey = remote.key});
  pair.a.post_send({.opcode = kWqeWrite,
                    .sges = {local.sge(0, 100)},
                    .fence = true,
                    .remote_address = remote.address() + 4096,
                    .rkey = remote.key});
  ASSERT_EQ(completions(rig, pair.a_cq, 1).size(), 1u);
  const auto at = [&](Operation opcode) {
    return std::find(order.begin(), order.end(), opcode) - order.begin();
  };
  EXPECT_GT(at(Operation::kWriteOnly), at(Operation::kReadResponseLast));
}

TEST(Transport, ReadsOutstandingAreLimited) {
  Rig rig;
  Pair pair(rig, 1024, {}, [](TestQp& a, TestQp& b) {
    a.attr.max_rd_atomic = 2;
    b.attr.max_dest_rd_atomic = 2;
  });
  TestMr local(*rig.a.nic, 1 << 16), remote(*rig.b.nic, 1 << 16);
  int open = 0, most = 0;
  rig.net.filter = [&](const Packet& packet) {
    if (packet.opcode == Operation::kReadRequest) most = std::max(most, ++open);
    if (packet.opcode == Operation::kReadResponseLast) open--;
    return 1;
  };
  for (uint32_t i = 0; i < 8; i++) {
    pair.a.post_send({.opcode = kWqeRead,
                      .sges = {local.sge(i * 4096, 4096)},
                      .remote_address = remote.address() + i * 4096,
                      .rkey = remote.key});
  }
  ASSERT_EQ(completions(rig, pair.a_cq, 8).size(), 8u);
  EXPECT_EQ(most, 2);
}

TEST(Transport, PsnsCountPackets) {
  Rig rig;
  Pair pair(rig, 1024);
  TestMr from(*rig.a.nic, 10'000), to(*rig.b.nic, 10'000);
  pair.a.post_send({.opcode = kWqeWrite,
                    .sges = {from.sge(0, 10'000)},
                    .remote_address = to.address(),
                    .rkey = to.key});
  pair.a.post_send({.opcode = kWqeRead,
                    .sges = {from.sge(0, 2049)},
                    .remote_address = to.address(),
                    .rkey = to.key});
  ASSERT_EQ(completions(rig, pair.a_cq, 2).size(), 2u);
  EXPECT_EQ(pair.a.query().sq_psn, psn_add(0xfffff0, 13));
  EXPECT_EQ(pair.b.query().rq_psn, psn_add(0xfffff0, 13));
  EXPECT_EQ(pair.a.query().rq_psn, 0x10u);
}

// A READ whose response breaks off is requested again only from there on.
TEST(Transport, ReadGoesOnWhereItBrokeOff) {
  Rig rig;
  Pair pair(rig, 1024);
  TestMr local(*rig.a.nic, 10 * 1024), remote(*rig.b.nic, 10 * 1024);
  fill(remote.bytes, 7);
  std::vector<Packet> requests;
  int responses = 0;
  rig.net.filter = [&](const Packet& packet) {
    if (packet.opcode == Operation::kReadRequest) requests.push_back(packet);
    const auto response = opcode_is_response(packet.opcode);
    return response && ++responses == 5 ? 0 : 1;
  };
  pair.a.post_send({.opcode = kWqeRead,
                    .sges = {local.sge(0, 10 * 1024)},
                    .remote_address = remote.address(),
                    .rkey = remote.key});
  ASSERT_EQ(completions(rig, pair.a_cq, 1).size(), 1u);
  EXPECT_EQ(local.bytes, remote.bytes);
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[1].psn, psn_add(requests[0].psn, 4));
  EXPECT_EQ(requests[1].remote_address, remote.address() + 4 * 1024);
  EXPECT_EQ(requests[1].dma_length, 6u * 1024);
}

TEST(Transport, LostPacketIsAskedForOnceAndSentAgainFromThere) {
  Rig rig;
  Pair pair(rig, 1024);
  TestMr from(*rig.a.nic, 20 * 1024), to(*rig.b.nic, 20 * 1024);
  fill(from.bytes, 8);
  uint32_t sent = 0, naks = 0;
  rig.net.filter = [&](const Packet& packet) {
    if (opcode_is_write(packet.opcode)) return ++sent == 6 ? 0 : 1;
    naks += (packet.syndrome & kAethTypeMask) == kAethNak ? 1 : 0;
    return 1;
  };
  pair.a.post_send({.opcode = kWqeWrite,
                    .sges = {from.sge(0, 20 * 1024)},
                    .remote_address = to.address(),
                    .rkey = to.key});
  ASSERT_EQ(completions(rig, pair.a_cq, 1).size(), 1u);
  EXPECT_EQ(to.bytes, from.bytes);
  EXPECT_EQ(naks, 1u);
  EXPECT_EQ(sent, 20u + 15) << "packets 6 to 20 go out twice";
  EXPECT_EQ(rig.a.fabric_nic.retransmits.load(), 15u);
}

TEST(Transport, BackPressureLosesNothing) {
  Rig rig;
  rig.net.room = 3;
  Pair pair(rig, 256);
  TestMr from(*rig.a.nic, 20'000), to(*rig.b.nic, 20'000);
  fill(from.bytes, 9);
  pair.a.post_send({.opcode = kWqeWrite,
                    .sges = {from.sge(0, 20'000)},
                    .remote_address = to.address(),
                    .rkey = to.key});
  pair.a.post_send({.opcode = kWqeRead,
                    .sges = {from.sge(0, 20'000)},
                    .remote_address = to.address(),
                    .rkey = to.key});
  ASSERT_EQ(completions(rig, pair.a_cq, 2).size(), 2u);
  EXPECT_EQ(to.bytes, from.bytes);
  EXPECT_EQ(rig.a.fabric_nic.retransmits.load(), 0u);
}

TEST(Transport, LoopbackToTheSameProcess) {
  Rig rig;
  TestCq cq(*rig.a.nic, rig.a.events);
  TestQp x(*rig.a.nic, rig.a.events, cq, cq), y(*rig.a.nic, rig.a.events, cq, cq);
  rig.connect(x, y);
  TestMr from(*rig.a.nic, 50'000), to(*rig.a.nic, 50'000);
  fill(from.bytes, 10);
  x.post_send({.opcode = kWqeWrite,
               .sges = {from.sge(0, 50'000)},
               .remote_address = to.address(),
               .rkey = to.key});
  ASSERT_EQ(completions(rig, cq, 1).size(), 1u);
  EXPECT_EQ(to.bytes, from.bytes);
}

TEST(Transport, PacketsOfStrangersChangeNothing) {
  Rig rig;
  Pair pair(rig);
  TestMr to(*rig.b.nic, 100);
  const auto carrier = rig.net.carrier(3);
  const auto inject = [&](uint32_t src, uint32_t dst) {
    Packet packet = {.opcode = Operation::kWriteOnly};
    packet.dest_qpn = pair.b.number();
    packet.psn = pair.a.attr.sq_psn;
    packet.remote_address = to.address();
    packet.rkey = to.key;
    packet.dma_length = 4;
    uint8_t* out = carrier->reserve(2, kMaxPacket);
    const size_t size = headers_encode(packet, 4, out);
    memset(out + size, 0x55, 4);
    carrier->commit(src, dst, size + 4, false);
    rig.run_for(10'000);
  };
  const uint32_t own = rig.b.fabric_nic.ipv4_be, peer = rig.a.fabric_nic.ipv4_be;
  inject(own, own);                   // not from the peer's address
  inject(peer, htobe32(0x7f000001));  // not to this NIC
  EXPECT_EQ(pair.b.query().rq_psn, pair.a.attr.sq_psn);
  EXPECT_EQ(to.bytes[0], 0);
  inject(peer, own);
  EXPECT_EQ(to.bytes[0], 0x55) << "the check itself works";
}

}  // namespace
}  // namespace cxemu::test
