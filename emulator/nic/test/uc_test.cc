// Unreliable connections: messages arrive whole or not at all, and no end is told.
#include <gtest/gtest.h>

#include <cstring>

#include "rig.h"
#include "scripted_peer.h"

namespace cxemu::test {
namespace {

constexpr uint32_t kSize = 8192;

class Uc : public ::testing::Test {
 protected:
  Uc() {
    for (size_t i = 0; i < kSize; i++) local_.bytes[i] = static_cast<uint8_t>(i * 7 + 1);
  }
  SendWr send(uint32_t length, uint8_t opcode = kWqeSend) const {
    return {.opcode = opcode, .sges = {local_.sge(0, length)}, .imm_be = 0x04030201};
  }
  SendWr write(uint32_t length, uint8_t opcode = kWqeWrite) const {
    SendWr wr = send(length, opcode);
    wr.remote_address = remote_.address();
    wr.rkey = remote_.key;
    return wr;
  }
  // Steps until nothing moves any more.
  void settle() { rig_.run_for(200'000); }
  bool arrived(uint32_t length, size_t at = 0) const {
    return std::equal(local_.bytes.begin(), local_.bytes.begin() + length,
                      remote_.bytes.begin() + static_cast<long>(at));
  }

  Rig rig_;
  Pair pair_{rig_, kMtu, {.type = IBV_QPT_UC}};
  TestMr local_{*rig_.a.nic, kSize};
  TestMr remote_{*rig_.b.nic, kSize};
};

TEST_F(Uc, SendsAndWritesOfEveryLengthArrive) {
  for (const uint32_t length : {0u, 1u, kMtu - 1, kMtu, kMtu + 1, 5 * kMtu, 5 * kMtu + 3}) {
    for (const uint8_t opcode : {kWqeSend, kWqeSendImm, kWqeWrite, kWqeWriteImm}) {
      std::fill(remote_.bytes.begin(), remote_.bytes.end(), uint8_t{0});
      const bool is_write = opcode == kWqeWrite || opcode == kWqeWriteImm;
      const bool imm = opcode == kWqeSendImm || opcode == kWqeWriteImm;
      if (opcode != kWqeWrite) pair_.b.post_recv({remote_.sge(0, kSize)});
      pair_.a.post_send(is_write ? write(length, opcode) : send(length, opcode));
      settle();
      const auto sent = pair_.a_cq.drain(), received = pair_.b_cq.drain();
      ASSERT_EQ(sent.size(), 1u);
      EXPECT_EQ(sent[0].opcode, kCqeRequester);
      EXPECT_TRUE(arrived(length)) << length << " opcode " << int{opcode};
      ASSERT_EQ(received.size(), opcode == kWqeWrite ? 0u : 1u);
      if (received.empty()) continue;
      EXPECT_EQ(received[0].byte_count, length);
      EXPECT_EQ(received[0].imm_be, imm ? 0x04030201u : 0u);
      EXPECT_EQ(received[0].opcode, is_write ? kCqeRecvWriteImm
                                    : imm    ? kCqeRecvSendImm
                                             : kCqeRecvSend);
    }
  }
}

TEST_F(Uc, CompletesWhenItIsSentAndNothingAnswers) {
  rig_.net.filter = [](const Packet&) { return 0; };
  const uint64_t carried = rig_.net.carried;
  pair_.a.post_send(send(3 * kMtu));
  settle();
  EXPECT_EQ(pair_.a_cq.drain().size(), 1u);
  EXPECT_EQ(rig_.net.carried - carried, 3u);
  // What arrives causes no answer, either.
  rig_.net.filter = nullptr;
  pair_.b.post_recv({remote_.sge(0, kSize)});
  pair_.a.post_send(send(3 * kMtu));
  settle();
  EXPECT_EQ(pair_.b_cq.drain().size(), 1u);
  EXPECT_EQ(rig_.net.carried - carried, 6u);
}

TEST_F(Uc, EveryLostPacketCostsItsMessageOnly) {
  constexpr uint32_t kPackets = 4;
  for (uint32_t lost = 0; lost < kPackets; lost++) {
    uint32_t seen = 0;
    rig_.net.filter = [&](const Packet&) { return seen++ == lost ? 0 : 1; };
    for (int i = 0; i < 2; i++) pair_.b.post_recv({remote_.sge(0, kSize)});
    pair_.a.post_send(send(kPackets * kMtu, kWqeSendImm));
    pair_.a.post_send(send(7));
    settle();
    EXPECT_EQ(pair_.a_cq.drain().size(), 2u);
    const auto received = pair_.b_cq.drain();
    ASSERT_EQ(received.size(), 1u) << "packet " << lost;
    // The receive of the lost message serves the next message.
    EXPECT_EQ(received[0].wqe_counter, lost);
    EXPECT_EQ(received[0].byte_count, 7u);
    rig_.net.filter = nullptr;
  }
  EXPECT_EQ(pair_.b.query().qp_state, IBV_QPS_RTS);
}

TEST_F(Uc, WithoutAReceiveTheMessageIsDroppedAndCounted) {
  pair_.a.post_send(send(2 * kMtu));
  pair_.a.post_send(write(10, kWqeWriteImm));
  settle();
  EXPECT_EQ(pair_.a_cq.drain().size(), 2u);
  EXPECT_TRUE(pair_.b_cq.drain().empty());
  EXPECT_EQ(rig_.b.fabric_nic.get(HwCounter::kOutOfBuffer), 2u);
  pair_.b.post_recv({remote_.sge(0, kSize)});
  pair_.a.post_send(send(20));
  settle();
  const auto received = pair_.b_cq.drain();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].byte_count, 20u);
}

TEST_F(Uc, WriteWithoutRightsVanishes) {
  SendWr wr = write(2 * kMtu, kWqeWriteImm);
  wr.rkey ^= 0x100;
  pair_.b.post_recv({remote_.sge(0, kSize)});
  pair_.a.post_send(wr);
  settle();
  EXPECT_EQ(pair_.a_cq.drain()[0].syndrome, kSyndromeNone);
  EXPECT_TRUE(pair_.b_cq.drain().empty());
  EXPECT_FALSE(arrived(kMtu));
  EXPECT_EQ(pair_.b.query().qp_state, IBV_QPS_RTS);
  EXPECT_TRUE(rig_.b.events.async.empty());
}

TEST_F(Uc, ReceiveThatIsTooSmallIsAnError) {
  pair_.b.post_recv({remote_.sge(0, kMtu + 1)});
  pair_.b.post_recv({remote_.sge(0, kSize)});
  pair_.a.post_send(send(2 * kMtu));
  settle();
  const auto received = pair_.b_cq.drain();
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(received[0].syndrome, kSyndromeLocalLength);
  EXPECT_EQ(received[1].syndrome, kSyndromeFlush);
  EXPECT_EQ(pair_.b.query().qp_state, IBV_QPS_ERR);
  EXPECT_EQ(pair_.a.query().qp_state, IBV_QPS_RTS) << "nobody told it";
}

TEST_F(Uc, LocalErrorStopsTheSendQueueOnly) {
  SendWr bad = send(100);
  bad.sges[0].lkey ^= 0x100;
  pair_.a.post_send(send(1));
  pair_.a.post_send(bad);
  SendWr silent = send(2);
  silent.signaled = false;
  pair_.a.post_send(silent);
  pair_.b.post_recv({remote_.sge(0, kSize)});
  settle();
  auto sent = pair_.a_cq.drain();
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].syndrome, kSyndromeNone);
  EXPECT_EQ(sent[1].syndrome, kSyndromeLocalProtection);
  EXPECT_EQ(sent[2].syndrome, kSyndromeFlush);
  EXPECT_EQ(pair_.a.query().qp_state, IBV_QPS_SQE);
  EXPECT_EQ(pair_.b_cq.drain().size(), 1u);

  // The queue pair still receives, and its receives are not flushed.
  TestMr inbox(*rig_.a.nic, 64);
  TestMr outbox(*rig_.b.nic, 64);
  pair_.a.post_recv({inbox.sge(0, 64)});
  pair_.b.post_send({.opcode = kWqeSend, .sges = {outbox.sge(0, 5)}});
  settle();
  sent = pair_.a_cq.drain();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].opcode, kCqeRecvSend);
}

TEST_F(Uc, WhatWasPostedInSqeIsFlushedAlsoBehindItsEnd) {
  SendWr bad = send(100);
  bad.sges[0].lkey ^= 0x100;
  pair_.a.post_send(bad);
  settle();
  EXPECT_EQ(pair_.a_cq.drain().size(), 1u);
  const uint16_t late = pair_.a.post_send(send(3));
  ASSERT_EQ(pair_.a.to_state(IBV_QPS_RTS), 0);
  const uint16_t good = pair_.a.post_send(send(4));
  pair_.b.post_recv({remote_.sge(0, kSize)});
  settle();
  const auto sent = pair_.a_cq.drain(), received = pair_.b_cq.drain();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].wqe_counter, late);
  EXPECT_EQ(sent[0].syndrome, kSyndromeFlush);
  EXPECT_EQ(sent[1].wqe_counter, good);
  EXPECT_EQ(sent[1].syndrome, kSyndromeNone);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].byte_count, 4u);
}

TEST_F(Uc, OperationsOfReliableConnectionsAreErrors) {
  for (const uint8_t opcode : {kWqeRead, kWqeCompareSwap, kWqeFetchAdd, kWqeSendInvalidate}) {
    Rig rig;
    Pair pair(rig, kMtu, {.type = IBV_QPT_UC});
    TestMr memory(*rig.a.nic, 64);
    pair.a.post_send({.opcode = opcode, .sges = {memory.sge(0, 8)}});
    rig.run_for(200'000);
    const auto sent = pair.a_cq.drain();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].syndrome, kSyndromeLocalQpOperation) << int{opcode};
    EXPECT_EQ(pair.a.query().qp_state, IBV_QPS_SQE);
  }
}

TEST_F(Uc, DrainsItsMessageInSqd) {
  // There is so little room that the state changes in the middle of the message.
  rig_.net.room = 2;
  pair_.b.post_recv({remote_.sge(0, kSize)});
  pair_.a.post_send(send(6 * kMtu));
  pair_.a.post_send(send(1));
  rig_.a.core.pass();
  ibv_qp_attr to = {};
  to.qp_state = IBV_QPS_SQD;
  to.en_sqd_async_notify = 1;
  ASSERT_EQ(pair_.a.modify(to, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  EXPECT_TRUE(pair_.a.query().sq_draining);
  settle();
  EXPECT_EQ(pair_.a_cq.drain().size(), 1u);
  EXPECT_EQ(pair_.b_cq.drain().size(), 1u);
  EXPECT_TRUE(arrived(6 * kMtu));
  EXPECT_FALSE(pair_.a.query().sq_draining);
  ASSERT_EQ(rig_.a.events.async.size(), 1u);
  EXPECT_EQ(rig_.a.events.async[0].type, IBV_EVENT_SQ_DRAINED);
  pair_.b.post_recv({remote_.sge(0, kSize)});
  ASSERT_EQ(pair_.a.to_state(IBV_QPS_RTS), 0);
  settle();
  EXPECT_EQ(pair_.b_cq.drain().size(), 1u);
}

// Packets that a healthy peer would never send.
class UcScripted : public Uc {
 protected:
  Packet packet(Operation operation, uint32_t psn) const {
    Packet made = {.opcode = operation, .service = Service::kUc};
    made.psn = psn_add(pair_.a.attr.sq_psn, psn);
    made.remote_address = remote_.address();
    made.rkey = remote_.key;
    made.dma_length = 2 * kMtu;
    return made;
  }
  std::vector<uint8_t> full_ = std::vector<uint8_t>(kMtu, 0x5a);
};

TEST_F(UcScripted, FirstPacketBeginsAnewWhateverItsNumber) {
  ScriptedPeer peer(rig_, rig_.a, rig_.b, pair_.b);
  pair_.b.post_recv({remote_.sge(0, kSize)});
  peer.ask(packet(Operation::kSendFirst, 0), full_);
  peer.ask(packet(Operation::kSendOnly, 1), {1, 2});  // the first message is not complete
  auto received = pair_.b_cq.drain();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].wqe_counter, 0);
  EXPECT_EQ(received[0].byte_count, 2u);
  pair_.b.post_recv({remote_.sge(0, kSize)});
  peer.ask(packet(Operation::kSendOnly, 0x700000), {1, 2, 3});
  received = pair_.b_cq.drain();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].byte_count, 3u);
}

TEST_F(UcScripted, MiddlesAndLastsWithoutTheirFirstAreDropped) {
  ScriptedPeer peer(rig_, rig_.a, rig_.b, pair_.b);
  pair_.b.post_recv({remote_.sge(0, kSize)});
  peer.ask(packet(Operation::kSendMiddle, 0), full_);
  peer.ask(packet(Operation::kSendLast, 1), {1});
  peer.ask(packet(Operation::kSendFirst, 2), full_);
  peer.ask(packet(Operation::kWriteLast, 3), full_);  // of another kind
  peer.ask(packet(Operation::kSendLast, 4), {1});
  EXPECT_TRUE(pair_.b_cq.drain().empty());
  EXPECT_EQ(remote_.bytes[0], 0x5a) << "the first packet did arrive";
  EXPECT_EQ(pair_.b.query().qp_state, IBV_QPS_RTS);
}

TEST_F(UcScripted, LengthsThatDoNotFitCostTheMessage) {
  ScriptedPeer peer(rig_, rig_.a, rig_.b, pair_.b);
  pair_.b.post_recv({remote_.sge(0, kSize)});
  peer.ask(packet(Operation::kSendFirst, 0), {1, 2, 3});  // not full
  peer.ask(packet(Operation::kSendLast, 1), {1});
  peer.ask(packet(Operation::kWriteFirst, 2), full_);
  peer.ask(packet(Operation::kWriteLastImm, 3), {1});  // announced as two full packets
  Packet huge = packet(Operation::kWriteOnly, 4);
  huge.dma_length = 5;
  peer.ask(huge, {1, 2, 3, 4});
  EXPECT_TRUE(pair_.b_cq.drain().empty());
  EXPECT_EQ(remote_.bytes[0], 0x5a);
  EXPECT_EQ(remote_.bytes[kMtu], 0);
}

TEST_F(UcScripted, PacketsOfOtherServicesAndStrangersAreNotForIt) {
  pair_.b.post_recv({remote_.sge(0, kSize)});
  ScriptedPeer peer(rig_, rig_.a, rig_.b, pair_.b);
  for (const Service service : {Service::kRc, Service::kUd, Service::kXrc}) {
    Packet other = packet(Operation::kSendOnly, 0);
    other.service = service;
    EXPECT_TRUE(peer.ask(other, {1}).empty());
  }
  EXPECT_TRUE(pair_.b_cq.drain().empty());
  rig_.a.fabric_nic.ipv4_be ^= 1;  // the address of another NIC
  peer.ask(packet(Operation::kSendOnly, 0), {1});
  EXPECT_TRUE(pair_.b_cq.drain().empty());
  rig_.a.fabric_nic.ipv4_be ^= 1;
  peer.ask(packet(Operation::kSendOnly, 0), {1});
  EXPECT_EQ(pair_.b_cq.drain().size(), 1u);
}

}  // namespace
}  // namespace cxemu::test
