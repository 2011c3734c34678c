// What depends on time: retransmission, RNR, faults and their events. The tests are exact to the
// nanosecond, because time is virtual.
#include <gtest/gtest.h>

#include "rig.h"

namespace cxemu::test {
namespace {

constexpr uint64_t kStep = 1000;

class Timing : public ::testing::Test {
 protected:
  // Returns the time until side a has a completion, and the completion.
  uint64_t elapsed(Pair& pair, Completion* completion, uint64_t step = kStep) {
    const uint64_t start = rig_.clock.now_ns();
    rig_.run_until(
        [&] {
          const auto one = pair.a_cq.poll();
          if (one) *completion = *one;
          return one.has_value();
        },
        100'000'000'000, step);
    return rig_.clock.now_ns() - start;
  }
  SendWr send(const TestMr& from, uint32_t length) {
    return {.opcode = kWqeSend, .sges = {from.sge(0, length)}};
  }

  Rig rig_;
};

// This is what the end of a process waits for.
TEST_F(Timing, SettledMeansPostedSentAndAnswered) {
  Pair pair(rig_);
  TestMr from(*rig_.a.nic, 5000), to(*rig_.b.nic, 5000);
  EXPECT_TRUE(rig_.a.core.settled());
  pair.b.post_recv({to.sge(0, 5000)});
  EXPECT_TRUE(rig_.b.core.settled());  // a receive is not work: it may never be used
  rig_.fault_set(rig_.b.fabric_nic, kDropData);
  pair.a.post_send(send(from, 5000));
  EXPECT_FALSE(rig_.a.core.settled());
  rig_.run_for(100'000);
  EXPECT_FALSE(rig_.a.core.settled());  // sent, and lost
  rig_.fault_set(rig_.b.fabric_nic, 0);
  ASSERT_TRUE(rig_.run_until([&] { return rig_.a.core.settled(); }));
  EXPECT_TRUE(pair.a_cq.poll().has_value());
  EXPECT_TRUE(pair.b_cq.poll().has_value());
  EXPECT_TRUE(rig_.b.core.settled());
}

TEST_F(Timing, RetryExceededTakesAllRetries) {
  for (const uint8_t retries : {0, 1, 7}) {
    for (const uint8_t timeout : {5, 8, 12}) {
      Pair pair(rig_, 1024, {}, [&](TestQp& a, TestQp&) {
        a.attr.timeout = timeout;
        a.attr.retry_cnt = retries;
      });
      rig_.fault_set(rig_.b.fabric_nic, kDropData);
      TestMr local(*rig_.a.nic, 100);
      pair.a.post_send(send(local, 100));
      Completion completion = {};
      const uint64_t took = elapsed(pair, &completion);
      EXPECT_EQ(completion.syndrome, kSyndromeRetryExceeded);
      const uint64_t expected = (retries + 1) * (uint64_t{4096} << timeout);
      EXPECT_GE(took, expected);
      EXPECT_LE(took, expected + (retries + 3) * kStep);
    }
  }
}

TEST_F(Timing, TimeoutZeroWaitsForEver) {
  Pair pair(rig_, 1024, {}, [&](TestQp& a, TestQp&) { a.attr.timeout = 0; });
  rig_.fault_set(rig_.b.fabric_nic, kDropData);
  TestMr local(*rig_.a.nic, 100), remote(*rig_.b.nic, 100);
  pair.b.post_recv({remote.sge(0, 100)});
  pair.a.post_send(send(local, 100));
  rig_.run_for(60'000'000'000, 1'000'000);
  EXPECT_FALSE(pair.a_cq.poll());
}

TEST_F(Timing, ProgressStartsTheTimerAnew) {
  Pair pair(rig_, 1024, {}, [&](TestQp& a, TestQp&) {
    a.attr.timeout = 8;  // 1.05 ms
    a.attr.retry_cnt = 1;
  });
  // Every packet is lost once: 50 timeouts, and none of them may be added to the one before.
  uint32_t last = 0;
  rig_.net.filter = [&](const Packet& packet) {
    const bool first_time = !opcode_is_response(packet.opcode) && packet.psn + 1 != last;
    last = packet.psn + 1;
    return first_time ? 0 : 1;
  };
  TestMr local(*rig_.a.nic, 100), remote(*rig_.b.nic, 100);
  for (int i = 0; i < 50; i++) {
    pair.a.post_send({.opcode = kWqeWrite,
                      .sges = {local.sge(0, 100)},
                      .remote_address = remote.address(),
                      .rkey = remote.key});
    Completion completion = {};
    elapsed(pair, &completion, 10'000);
    ASSERT_EQ(completion.opcode, kCqeRequester);
  }
}

TEST_F(Timing, ShortTimeoutsAreRaisedToTheMinimum) {
  EngineTuning tuning;
  tuning.transport.ack_timeout_min_ns = 4'000'000;
  Rig rig(1, tuning);
  Pair pair(rig, 1024, {}, [&](TestQp& a, TestQp&) {
    a.attr.timeout = 1;
    a.attr.retry_cnt = 0;
  });
  rig.fault_set(rig.b.fabric_nic, kDropData);
  TestMr local(*rig.a.nic, 100);
  pair.a.post_send(send(local, 100));
  rig.run_for(3'990'000);
  EXPECT_FALSE(pair.a_cq.poll());
  rig.run_for(20'000);
  EXPECT_TRUE(pair.a_cq.poll());
}

// A process gets no core for a second: its timers stand still, and what arrived meanwhile counts.
TEST_F(Timing, StallOfTheEngineExpiresNothing) {
  EngineTuning tuning = Rig::tuning_default();
  tuning.step_max_ns = 100'000;
  Rig rig(1, tuning);
  Pair pair(rig, 1024, {}, [&](TestQp& a, TestQp&) {
    a.attr.timeout = 8;
    a.attr.retry_cnt = 0;
  });
  TestMr local(*rig.a.nic, 100), remote(*rig.b.nic, 100);
  pair.a.post_send({.opcode = kWqeWrite,
                    .sges = {local.sge(0, 100)},
                    .remote_address = remote.address(),
                    .rkey = remote.key});
  rig.a.core.pass();
  rig.clock.advance(1'000'000'000);
  rig.a.core.pass();
  EXPECT_FALSE(pair.a_cq.poll());
  for (int i = 0; i < 5; i++) rig.step(0);
  ASSERT_TRUE(pair.a_cq.poll());
}

TEST_F(Timing, ArrivedAnswerCountsBeforeTheTimer) {
  Pair pair(rig_, 1024, {}, [&](TestQp& a, TestQp&) {
    a.attr.timeout = 5;
    a.attr.retry_cnt = 0;
  });
  TestMr local(*rig_.a.nic, 100), remote(*rig_.b.nic, 100);
  pair.a.post_send({.opcode = kWqeWrite,
                    .sges = {local.sge(0, 100)},
                    .remote_address = remote.address(),
                    .rkey = remote.key});
  rig_.a.core.pass();
  rig_.b.core.pass();  // the ACK is on its way
  rig_.clock.advance(1'000'000);
  rig_.a.core.pass();
  const auto one = pair.a_cq.poll();
  ASSERT_TRUE(one);
  EXPECT_EQ(one->opcode, kCqeRequester);
}

TEST_F(Timing, RnrWaitsAsLongAsTheResponderSays) {
  for (const uint8_t code : {1, 12, 20}) {
    Pair pair(rig_, 1024, {}, [&](TestQp& a, TestQp& b) {
      a.attr.rnr_retry = 2;
      b.attr.min_rnr_timer = code;
    });
    TestMr local(*rig_.a.nic, 100);
    pair.a.post_send(send(local, 100));
    Completion completion = {};
    const uint64_t took = elapsed(pair, &completion);
    EXPECT_EQ(completion.syndrome, kSyndromeRnrRetryExceeded);
    EXPECT_GE(took, 2 * rnr_timer_ns(code));
    EXPECT_LE(took, 2 * rnr_timer_ns(code) + 20 * kStep);
    EXPECT_EQ(pair.b.query().qp_state, IBV_QPS_RTS);
  }
}

TEST_F(Timing, RnrRetrySevenIsForEver) {
  Pair pair(rig_);
  TestMr local(*rig_.a.nic, 100), remote(*rig_.b.nic, 100);
  pair.a.post_send(send(local, 100));
  rig_.run_for(20'000'000'000, 100'000);
  EXPECT_FALSE(pair.a_cq.poll());
  pair.b.post_recv({remote.sge(0, 100)});
  Completion completion = {};
  elapsed(pair, &completion);
  EXPECT_EQ(completion.opcode, kCqeRequester);
}

TEST_F(Timing, RnrRetryZeroFailsAtOnce) {
  Pair pair(rig_, 1024, {}, [&](TestQp& a, TestQp&) { a.attr.rnr_retry = 0; });
  TestMr local(*rig_.a.nic, 100);
  pair.a.post_send(send(local, 100));
  Completion completion = {};
  EXPECT_LE(elapsed(pair, &completion), 10 * kStep);
  EXPECT_EQ(completion.syndrome, kSyndromeRnrRetryExceeded);
}

// A WRITE with immediate needs its receive only at the last packet, and only that packet is
// repeated.
TEST_F(Timing, RnrAtTheLastPacketOfAWriteWithImmediate) {
  Pair pair(rig_);
  TestMr local(*rig_.a.nic, 8192), remote(*rig_.b.nic, 8192);
  std::fill(local.bytes.begin(), local.bytes.end(), uint8_t{3});
  uint32_t sent = 0;
  rig_.net.filter = [&](const Packet& packet) {
    sent += opcode_is_write(packet.opcode) ? 1 : 0;
    return 1;
  };
  pair.a.post_send({.opcode = kWqeWriteImm,
                    .sges = {local.sge(0, 8192)},
                    .remote_address = remote.address(),
                    .rkey = remote.key});
  rig_.run_for(5'000);
  EXPECT_EQ(remote.bytes[7 * 1024 - 1], 3);
  EXPECT_EQ(remote.bytes[8191], 0);
  pair.b.post_recv({});
  Completion completion = {};
  elapsed(pair, &completion);
  EXPECT_EQ(completion.opcode, kCqeRequester);
  EXPECT_EQ(remote.bytes, local.bytes);
  EXPECT_LE(sent, 8u + 3);
}

// Faults.

TEST_F(Timing, LinkEventsAreToldOncePerChange) {
  auto& async = rig_.a.events.async;
  rig_.fault_set(rig_.a.fabric_nic, kLinkDown);
  rig_.run_for(10'000);
  EXPECT_EQ(async, (std::vector<Events::Async>{{IBV_EVENT_PORT_ERR, 1}}));
  rig_.fault_set(rig_.a.fabric_nic, kLinkDown | kDropAcks);
  rig_.run_for(10'000);
  EXPECT_EQ(async.size(), 1u);
  rig_.fault_set(rig_.a.fabric_nic, 0);
  rig_.run_for(10'000);
  EXPECT_EQ(async.back(), (Events::Async{IBV_EVENT_PORT_ACTIVE, 1}));
  EXPECT_EQ(async.size(), 2u);
  EXPECT_TRUE(rig_.b.events.async.empty());
}

TEST_F(Timing, LinkDownStopsBothDirectionsAndHeals) {
  Pair pair(rig_);
  TestMr local(*rig_.a.nic, 100), remote(*rig_.b.nic, 100);
  rig_.fault_set(rig_.a.fabric_nic, kLinkDown);
  const SendWr write = {.opcode = kWqeWrite,
                        .sges = {local.sge(0, 100)},
                        .remote_address = remote.address(),
                        .rkey = remote.key};
  pair.a.post_send(write);
  rig_.run_for(3'000'000);
  EXPECT_FALSE(pair.a_cq.poll());
  EXPECT_EQ(rig_.b.fabric_nic.rx_packets.load(), 0u);
  EXPECT_GT(rig_.a.fabric_nic.dropped_packets.load(), 0u);
  rig_.fault_set(rig_.a.fabric_nic, 0);
  Completion completion = {};
  elapsed(pair, &completion);
  EXPECT_EQ(completion.opcode, kCqeRequester) << "within its retries, a flap is not seen";
}

TEST_F(Timing, DeadNicDoesNothingAnyMoreAndStaysDead) {
  Pair pair(rig_);
  TestMr local(*rig_.a.nic, 100), remote(*rig_.b.nic, 100);
  rig_.fault_set(rig_.a.fabric_nic, kDead);
  const SendWr write = {.opcode = kWqeWrite,
                        .sges = {local.sge(0, 100)},
                        .remote_address = remote.address(),
                        .rkey = remote.key};
  pair.a.post_send(write);
  rig_.run_for(100'000'000, 100'000);
  EXPECT_FALSE(pair.a_cq.poll()) << "not even a flush";
  EXPECT_EQ(rig_.a.events.async, (std::vector<Events::Async>{{IBV_EVENT_DEVICE_FATAL, 1}}));
  EXPECT_TRUE(rig_.a.nic->dead());
  EXPECT_EQ(pair.a.to_state(IBV_QPS_ERR), EIO);
  uint32_t key;
  EXPECT_EQ(rig_.a.nic->mr_register(1, 0, 0, 0, 0, &key), EIO);
  EXPECT_EQ(rig_.a.core.nic_open(&rig_.a.fabric_nic, &rig_.a.events), nullptr);

  rig_.fault_set(rig_.a.fabric_nic, 0);  // revived
  rig_.run_for(100'000'000, 100'000);
  EXPECT_FALSE(pair.a_cq.poll());
  EXPECT_TRUE(rig_.a.nic->dead()) << "for what was open when it died";
  EXPECT_EQ(rig_.a.events.async.size(), 1u);
  const auto again = rig_.a.core.nic_open(&rig_.a.fabric_nic, &rig_.a.events);
  ASSERT_NE(again, nullptr);
  EXPECT_FALSE(again->dead());
  EXPECT_EQ(pair.a.destroy(), 0) << "destroying always works";
  EXPECT_EQ(rig_.a.nic->cq_destroy(pair.a_cq.cq), 0);
}

TEST_F(Timing, DelayHoldsEveryPacketAndKeepsOrder) {
  Pair pair(rig_, 256, {}, [&](TestQp& a, TestQp&) { a.attr.timeout = 14; });
  rig_.fault(rig_.a.fabric_nic, "delay=0.3");
  TestMr local(*rig_.a.nic, 4096), remote(*rig_.b.nic, 4096);
  std::fill(local.bytes.begin(), local.bytes.end(), uint8_t{9});
  pair.a.post_send({.opcode = kWqeWrite,
                    .sges = {local.sge(0, 4096)},
                    .remote_address = remote.address(),
                    .rkey = remote.key});
  rig_.run_for(290'000);
  EXPECT_EQ(remote.bytes[0], 0);
  rig_.fault(rig_.a.fabric_nic, "delay=0");
  Completion completion = {};
  const uint64_t took = elapsed(pair, &completion);
  EXPECT_GE(took, 10'000u);
  EXPECT_LE(took, 30'000u);
  EXPECT_EQ(remote.bytes, local.bytes);
  EXPECT_EQ(rig_.a.fabric_nic.retransmits.load(), 0u);
}

TEST_F(Timing, LossIsAsFrequentAsAsked) {
  Pair pair(rig_, 256, {}, [&](TestQp& a, TestQp&) { a.attr.timeout = 6; });
  rig_.fault(rig_.a.fabric_nic, "loss=10");
  TestMr local(*rig_.a.nic, 1 << 16), remote(*rig_.b.nic, 1 << 16);
  for (int i = 0; i < 40; i++) {
    pair.a.post_send({.opcode = kWqeWrite,
                      .sges = {local.sge(0, 1 << 12)},
                      .remote_address = remote.address(),
                      .rkey = remote.key});
    Completion completion = {};
    elapsed(pair, &completion, 10'000);
    ASSERT_EQ(completion.opcode, kCqeRequester);
  }
  const double tried = static_cast<double>(rig_.a.fabric_nic.tx_packets) +
                       static_cast<double>(rig_.b.fabric_nic.tx_packets);
  EXPECT_NEAR(static_cast<double>(rig_.a.fabric_nic.dropped_packets) / tried, 0.1, 0.03);
}

TEST_F(Timing, QuietUntilTheTimer) {
  Pair pair(rig_, 1024, {}, [&](TestQp& a, TestQp&) { a.attr.timeout = 8; });
  EXPECT_EQ(rig_.a.core.quiet_ns(5'000'000), 5'000'000u) << "nothing is under way";
  rig_.fault_set(rig_.b.fabric_nic, kDropData);
  TestMr local(*rig_.a.nic, 100);
  pair.a.post_send(send(local, 100));
  rig_.a.core.pass();
  EXPECT_EQ(rig_.a.core.quiet_ns(5'000'000), uint64_t{4096} << 8);
  EXPECT_EQ(rig_.a.core.quiet_ns(1000), 1000u);
}

}  // namespace
}  // namespace cxemu::test
