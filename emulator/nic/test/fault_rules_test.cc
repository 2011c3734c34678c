// Fault rules on the NIC model, in virtual time: exactly the n-th event, exactly the selected
// packets, and no loss that the transport should have repaired.
#include <gtest/gtest.h>

#include "fabric/gid.h"
#include "rig.h"

namespace cxemu::test {
namespace {

class FaultRules : public ::testing::Test {
 protected:
  FaultRules() : from_(*rig_.a.nic, 1 << 16), to_(*rig_.b.nic, 1 << 16) {
    for (size_t i = 0; i < from_.bytes.size(); i++) from_.bytes[i] = static_cast<uint8_t>(i * 7);
  }
  static void patient(TestQp& a, TestQp& b) { a.attr.timeout = b.attr.timeout = 8; }
  void post_write(Pair& pair, uint32_t length) {
    pair.a.post_send({.opcode = kWqeWrite,
                      .sges = {from_.sge(0, length)},
                      .remote_address = to_.address(),
                      .rkey = to_.key});
  }
  // The next completion of side a.
  std::optional<Completion> completion(Pair& pair, uint64_t limit_ns = 3'000'000'000) {
    std::optional<Completion> one;
    rig_.run_until([&] { return (one = pair.a_cq.poll()).has_value(); }, limit_ns);
    return one;
  }
  void write_ok(Pair& pair, uint32_t length) {
    std::fill(to_.bytes.begin(), to_.bytes.end(), uint8_t{0});
    post_write(pair, length);
    const auto done = completion(pair);
    ASSERT_TRUE(done);
    EXPECT_EQ(done->opcode, kCqeRequester);
    EXPECT_TRUE(std::equal(to_.bytes.begin(), to_.bytes.begin() + length, from_.bytes.begin()));
  }
  FabricNic& a() { return rig_.a.fabric_nic; }
  FabricNic& b() { return rig_.b.fabric_nic; }
  uint32_t faults(const FabricNic& nic) { return nic.faults.load(); }

  Rig rig_;
  TestMr from_, to_;
};

TEST_F(FaultRules, ExactlyThePacketsFromAfterOnAsManyAsCount) {
  Pair pair(rig_, 1024, {}, patient);
  rig_.fault(a(), "loss=100 dir=out after=3 count=2");
  post_write(pair, 8192);
  rig_.a.core.pass();
  EXPECT_EQ(rig_.net.carried, 6u) << "eight without the third and the fourth";
  EXPECT_EQ(a().dropped_packets, 2u);
  EXPECT_EQ(faults(a()), 0u) << "the rule is over, the NIC healthy";
  const auto done = completion(pair);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->opcode, kCqeRequester);
  EXPECT_TRUE(std::equal(to_.bytes.begin(), to_.bytes.begin() + 8192, from_.bytes.begin()));
  EXPECT_EQ(b().get(HwCounter::kOutOfSequence), 4u);
  EXPECT_EQ(a().get(HwCounter::kPacketSeqErr), 1u);
}

TEST_F(FaultRules, PeersAndKindsAreToldApart) {
  Pair pair(rig_, 1024, {}, patient);
  rig_.fault(a(), "drop-data peer=a/mlx5_0");
  rig_.fault(a(), "loss=100 op=send,read,atomic");
  write_ok(pair, 4096);
  EXPECT_EQ(a().dropped_packets, 0u);
  rig_.fault(a(), "loss=100 op=write peer=b/mlx5_0 count=1");
  write_ok(pair, 4096);
  EXPECT_EQ(a().dropped_packets, 1u);
  rig_.fault(a(), "loss=100 op=ack dir=in count=1");
  write_ok(pair, 4096);
  EXPECT_EQ(a().dropped_packets, 2u);
  EXPECT_GE(a().get(HwCounter::kLocalAckTimeoutErr), 1u);
  EXPECT_GE(b().get(HwCounter::kDuplicateRequest), 1u);
}

TEST_F(FaultRules, OneQueuePairOnly) {
  Pair hit(rig_, 1024, {}, patient), other(rig_, 1024, {}, patient);
  rig_.fault(a(), "drop-data qpn=" + std::to_string(hit.a.number()));
  write_ok(other, 4096);
  post_write(hit, 100);
  const auto failed = completion(hit);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->syndrome, kSyndromeRetryExceeded);
  write_ok(other, 4096);
}

TEST_F(FaultRules, ReorderedPacketsChangePlaces) {
  Pair pair(rig_, 1024, {}, patient);
  std::vector<uint32_t> order;
  rig_.net.filter = [&](const Packet& packet) {
    if (opcode_is_write(packet.opcode)) order.push_back(packet.psn);
    return 1;
  };
  rig_.fault(a(), "reorder dir=out after=2 count=1");
  post_write(pair, 4096);
  rig_.a.core.pass();
  const uint32_t first = pair.a.attr.sq_psn;
  EXPECT_EQ(order, (std::vector<uint32_t>{first, first + 2, first + 1, first + 3}));
  ASSERT_TRUE(completion(pair));
}

TEST_F(FaultRules, AReorderedPacketWithoutASuccessorGoesAlone) {
  for (const char* text : {"reorder dir=out count=1", "reorder dir=in count=1"}) {
    Pair pair(rig_, 1024, {}, [](TestQp& a, TestQp&) { a.attr.timeout = 14; });
    rig_.fault(b(), text);  // the request on its way in, the ACK on its way out
    const uint64_t start = rig_.clock.now_ns();
    write_ok(pair, 100);
    EXPECT_GE(rig_.clock.now_ns() - start, 1'000'000u) << text;
    EXPECT_LE(rig_.clock.now_ns() - start, 1'100'000u) << text;
    EXPECT_EQ(a().retransmits, 0u);
  }
}

TEST_F(FaultRules, DuplicatesAreSeenAndHarmless) {
  for (const char* text : {"duplicate dir=out count=3", "duplicate dir=in count=3"}) {
    Pair pair(rig_, 1024, {}, patient);
    FabricNic& nic = text[14] == 'o' ? a() : b();
    const uint64_t before = b().get(HwCounter::kDuplicateRequest);
    rig_.fault(nic, text);
    write_ok(pair, 8192);
    EXPECT_EQ(b().get(HwCounter::kDuplicateRequest), before + 3) << text;
    EXPECT_EQ(faults(nic), 0u);
  }
}

TEST_F(FaultRules, DamageIsCountedByTheReceiver) {
  Pair pair(rig_, 1024, {}, patient);
  rig_.fault(a(), "corrupt dir=out count=2");
  write_ok(pair, 8192);
  EXPECT_EQ(b().icrc_errors, 2u);
  rig_.fault(b(), "corrupt dir=in count=3");
  write_ok(pair, 8192);
  EXPECT_EQ(b().icrc_errors, 5u);
  EXPECT_EQ(a().icrc_errors, 0u);
}

TEST_F(FaultRules, EverythingAtOnceInBothDirectionsLosesNothing) {
  for (uint32_t seed = 1; seed <= 20; seed++) {
    Pair pair(rig_, 256, {}, patient);
    for (FabricNic* nic : {&a(), &b()}) {
      std::vector<FaultCommand> all;
      std::string error;
      ASSERT_TRUE(faults_parse(*rig_.fabric,
                               {"loss=2", "reorder=10", "duplicate=10", "corrupt=2", "delay=0.02",
                                "delay=0.03", "dir=in", "op=read,ack"},
                               seed, &all, &error))
          << error;
      for (const FaultCommand& fault : all)
        ASSERT_TRUE(fault_apply(*rig_.fabric, *nic, fault, rig_.clock.now_ns(), &error)) << error;
    }
    for (int i = 0; i < 5; i++) write_ok(pair, 1 << 13);
    for (FabricNic* nic : {&a(), &b()}) rig_.fault(*nic, "heal");
  }
  EXPECT_GT(a().retransmits, 0u);
}

TEST_F(FaultRules, InwardDelayKeepsOrderWhenItEnds) {
  Pair pair(rig_, 1024, {}, [](TestQp& a, TestQp&) { a.attr.timeout = 14; });
  rig_.fault(b(), "delay=0.5 dir=in");
  post_write(pair, 2048);
  rig_.run_for(100'000);
  rig_.fault(b(), "delay=0 dir=in");
  post_write(pair, 2048);
  const auto first = completion(pair), second = completion(pair);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(b().get(HwCounter::kOutOfSequence), 0u);
  EXPECT_EQ(a().retransmits, 0u);
}

// ---- Triggers

TEST_F(FaultRules, LinkDownAtTheNthPacketIsThatPacketsEnd) {
  Pair pair(rig_, 1024, {}, patient);
  rig_.fault(a(), "link-down@packet=5");
  post_write(pair, 8192);
  rig_.a.core.pass();
  EXPECT_EQ(rig_.net.carried, 4u);
  EXPECT_EQ(faults(a()) & kLinkDown, kLinkDown);
  rig_.a.core.pass();
  EXPECT_EQ(rig_.a.events.async, (std::vector<Events::Async>{{IBV_EVENT_PORT_ERR, 1}}));
  rig_.fault(a(), "link-up");
  ASSERT_TRUE(completion(pair));
}

TEST_F(FaultRules, KillAtTheNthWorkRequestSendsNothingOfIt) {
  Pair pair(rig_);
  rig_.fault(a(), "kill@wqe=3");
  for (int i = 0; i < 5; i++) post_write(pair, 100);
  rig_.run_for(1'000'000);
  EXPECT_TRUE(rig_.a.nic->dead());
  uint32_t requests = 0;
  EXPECT_EQ(b().get(HwCounter::kRxWriteRequests), 2u);
  while (pair.a_cq.poll()) requests++;
  EXPECT_LE(requests, 2u);
  EXPECT_EQ(rig_.a.events.async, (std::vector<Events::Async>{{IBV_EVENT_DEVICE_FATAL, 1}}));
}

TEST_F(FaultRules, KillAtTheNthCompletionLeavesItUnwritten) {
  Pair pair(rig_);
  rig_.fault(a(), "kill@cqe=3");
  for (int i = 0; i < 5; i++) {
    post_write(pair, 100);
    rig_.run_for(100'000);
  }
  EXPECT_EQ(pair.a_cq.drain().size(), 2u) << "the third was executed, but nobody learns of it";
  EXPECT_EQ(b().get(HwCounter::kRxWriteRequests), 3u);
  EXPECT_TRUE(rig_.a.nic->dead());
}

TEST_F(FaultRules, CompletionsOfOtherNicsDoNotCount) {
  Pair pair(rig_, 1024, {}, patient);
  rig_.fault(b(), "drop-acks@cqe=1");  // RDMA WRITEs complete at the requester only
  write_ok(pair, 4096);
  write_ok(pair, 4096);
  EXPECT_EQ(faults(b()), kRules);
  TestMr receive(*rig_.b.nic, 100);
  pair.b.post_recv({receive.sge(0, 100)});
  pair.a.post_send({.opcode = kWqeSend, .sges = {from_.sge(0, 100)}});
  const auto lost = completion(pair);
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->syndrome, kSyndromeRetryExceeded);
  EXPECT_EQ(faults(b()), kDropAcks);
}

// ---- Flap and GIDs

TEST_F(FaultRules, AFlapIsSeenAndSurvived) {
  Pair pair(rig_, 1024, {}, [](TestQp& a, TestQp&) { a.attr.timeout = 10; });
  rig_.fault(a(), "flap=2/3x2");
  rig_.run_for(500'000, 10'000);
  post_write(pair, 4096);
  const auto done = completion(pair);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->opcode, kCqeRequester);
  rig_.run_for(20'000'000, 10'000);
  using Async = Events::Async;
  EXPECT_EQ(rig_.a.events.async, (std::vector<Async>{{IBV_EVENT_PORT_ERR, 1},
                                                     {IBV_EVENT_PORT_ACTIVE, 1},
                                                     {IBV_EVENT_PORT_ERR, 1},
                                                     {IBV_EVENT_PORT_ACTIVE, 1}}));
}

TEST_F(FaultRules, AFlapBetweenTwoLooksIsStillTold) {
  rig_.fault(a(), "flap=2/3x1");
  rig_.a.core.pass();
  rig_.a.events.async.clear();
  rig_.fault(a(), "flap=2/3x2");
  rig_.clock.advance(3'000'000);  // up again
  rig_.a.core.pass();
  rig_.a.events.async.clear();
  rig_.clock.advance(5'000'000);  // it was down meanwhile
  rig_.a.core.pass();
  EXPECT_EQ(rig_.a.events.async,
            (std::vector<Events::Async>{{IBV_EVENT_PORT_ERR, 1}, {IBV_EVENT_PORT_ACTIVE, 1}}));
}

class GidChanges : public FaultRules, public ::testing::WithParamInterface<const char*> {};

TEST_P(GidChanges, OldConnectionsGetNoAnswerAndNewOnesWork) {
  Pair old(rig_, 1024, {}, [](TestQp& a, TestQp&) {
    a.attr.timeout = 8;
    a.attr.retry_cnt = 1;
  });
  write_ok(old, 100);
  rig_.fault(b(), GetParam());
  rig_.run_for(10'000);
  EXPECT_EQ(rig_.b.events.async, (std::vector<Events::Async>{{IBV_EVENT_GID_CHANGE, 1}}));
  post_write(old, 100);
  const auto failed = completion(old);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->syndrome, kSyndromeRetryExceeded);

  // Uses the table as it is now.
  Pair fresh(rig_, 1024, {}, [&](TestQp&, TestQp& other) {
    while (gid_is_empty(b(), other.gid_index)) other.gid_index += 2;
  });
  write_ok(fresh, 4096);
  rig_.fault(b(), "gid-restore");
  rig_.run_for(10'000);
  EXPECT_EQ(rig_.b.events.async.size(), 2u);
  post_write(fresh, 100);
  const auto gone = completion(fresh, 60'000'000'000);
  ASSERT_TRUE(gone);
  EXPECT_EQ(gone->syndrome, kSyndromeRetryExceeded);
}

INSTANTIATE_TEST_SUITE_P(Kinds, GidChanges, ::testing::Values("gid-change", "gid-change=index"));

TEST_F(FaultRules, LinkLocalConnectionsOutliveAChangeOfTheAddress) {
  Pair pair(rig_, 1024, {}, [](TestQp& a, TestQp& b) { a.gid_index = b.gid_index = 1; });
  write_ok(pair, 100);
  rig_.fault(b(), "gid-change");
  rig_.fault(a(), "gid-change=index");
  write_ok(pair, 4096);
}

// ---- Records

TEST_F(FaultRules, QueuePairsAndTheirErrorsCanBeSeen) {
  Pair pair(rig_, 1024, {}, patient);
  const FabricQp* entry = nullptr;
  for (const FabricQp& qp : rig_.fabric->qp)
    if (qp.number == pair.a.number()) entry = &qp;
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->state, static_cast<uint32_t>(IBV_QPS_RTS));
  EXPECT_EQ(entry->peer_number, pair.b.number());
  EXPECT_EQ(entry->peer_ipv4_be, b().ipv4_be);
  write_ok(pair, 4096);
  rig_.run_for(110'000'000, 1'000'000);
  EXPECT_EQ(entry->sq_psn, (pair.a.attr.sq_psn + 4) & kPsnMask);
  rig_.fault(b(), "drop-data");
  post_write(pair, 100);
  ASSERT_TRUE(completion(pair));
  EXPECT_EQ(entry->state, static_cast<uint32_t>(IBV_QPS_ERR));
  EXPECT_EQ(entry->syndrome, static_cast<uint32_t>(kSyndromeRetryExceeded));
  Event event;
  ASSERT_TRUE(event_read(*rig_.fabric, rig_.fabric->events.written, &event));
  EXPECT_EQ(event.kind, EventKind::kQpError);
  EXPECT_EQ(event.qpn, pair.a.number());
  EXPECT_EQ(event.syndrome, static_cast<uint32_t>(kSyndromeRetryExceeded));
  EXPECT_EQ(pair.a.destroy(), 0);
  EXPECT_EQ(entry->pid, 0);
}

TEST_F(FaultRules, PortsCountBytesAndRequests) {
  Pair pair(rig_, 1024, {}, patient);
  write_ok(pair, 4096);
  EXPECT_EQ(a().tx_packets, 4u);
  EXPECT_EQ(b().rx_packets, 4u);
  EXPECT_EQ(a().tx_bytes, 4096u + 4 * 12 + 16);
  EXPECT_EQ(b().rx_bytes, a().tx_bytes);
  EXPECT_EQ(b().get(HwCounter::kRxWriteRequests), 1u);
  EXPECT_EQ(b().get(HwCounter::kRxReadRequests), 0u);
}

}  // namespace
}  // namespace cxemu::test
