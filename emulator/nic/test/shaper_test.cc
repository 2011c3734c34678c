// Rates of NICs, in virtual time: what programs get of them, judged by the messages that complete.
#include <gtest/gtest.h>

#include "fabric/gid.h"
#include "nic/bucket.h"
#include "rig.h"

namespace cxemu::test {
namespace {

constexpr uint64_t kRate = 25'000'000;  // 200 Mbit/s
constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kShapeStep = 50'000;
constexpr uint32_t kMessage = 64 << 10;

// A queue pair that always has WRITEs to do.
struct Flow {
  Flow(Rig& rig, Process& from, Process& to, uint8_t service_level = 0, uint32_t message = kMessage,
       uint8_t timeout = 14)
      : from_cq(*from.nic, from.events),
        to_cq(*to.nic, to.events),
        a(*from.nic, from.events, from_cq, from_cq),
        b(*to.nic, to.events, to_cq, to_cq),
        source(*from.nic, message),
        target(*to.nic, message) {
    for (TestQp* qp : {&a, &b}) {
      qp->attr.path_mtu = IBV_MTU_4096;
      qp->attr.timeout = timeout;
      qp->attr.ah_attr.sl = service_level;
    }
    rig.connect(a, b);
  }
  ~Flow() {
    for (TestQp* qp : {&a, &b})
      if (qp->qp != nullptr) qp->destroy();
  }
  void run(uint64_t ahead = 16) {
    while (const auto one = from_cq.poll()) {
      ASSERT_EQ(one->opcode, kCqeRequester);
      done += source.bytes.size();
    }
    for (; posted < done + ahead * source.bytes.size(); posted += source.bytes.size())
      a.post_send({.opcode = kWqeWrite,
                   .sges = {source.sge(0, static_cast<uint32_t>(source.bytes.size()))},
                   .remote_address = target.address(),
                   .rkey = target.key});
  }

  TestCq from_cq, to_cq;
  TestQp a, b;
  TestMr source, target;
  uint64_t posted = 0, done = 0;  // bytes
};

class Shaped : public ::testing::Test {
 protected:
  Shaped()
      : c_(*rig_.fabric, rig_.net, rig_.clock, 3, rig_.a.fabric_nic, Rig::tuning_default()),
        d_(*rig_.fabric, rig_.net, rig_.clock, 4, third_nic(*rig_.fabric), Rig::tuning_default()) {}

  static FabricNic& third_nic(FabricFile& fabric) {
    FabricNic& nic = fabric.nic[2 * kMaxNicsPerHost];
    nic.host = 2;
    fabric.host_name[2][0] = 'd';
    nic.ipv4_be = htobe32(127u << 24 | 99 << 16 | 3 << 8 | 1);
    nic.used = 1;
    fabric.host_count = 3;
    return nic;
  }
  FabricNic& a() { return rig_.a.fabric_nic; }
  FabricNic& b() { return rig_.b.fabric_nic; }
  void rates(FabricNic& nic, uint64_t tx, uint64_t rx) { shape_set(*rig_.fabric, nic, tx, rx); }
  void step() {
    for (Process* process : {&rig_.a, &rig_.b, &c_, &d_})
      if (process != dead_) process->core.pass();
    rig_.clock.advance(kShapeStep);
  }
  // Returns how much of kRate each flow got in so many seconds, after a while to begin with.
  std::vector<double> shares(const std::vector<Flow*>& flows, double seconds = 1) {
    std::vector<double> before(flows.size()), all;
    const auto go = [&](double span) {
      for (double spent = 0; spent < span * kSecond; spent += kShapeStep) {
        for (Flow* flow : flows) flow->run();
        step();
      }
    };
    go(0.1);
    for (size_t i = 0; i < flows.size(); i++) before[i] = static_cast<double>(flows[i]->done);
    go(seconds);
    for (size_t i = 0; i < flows.size(); i++)
      all.push_back((static_cast<double>(flows[i]->done) - before[i]) / kRate / seconds);
    return all;
  }
  // Packets carry headers, and messages end when they end.
  static constexpr double kNear = 0.02;

  Rig rig_;
  Process c_;  // on the NIC of a
  Process d_;  // on a host of its own
  Process* dead_ = nullptr;
};

TEST_F(Shaped, SendsAtItsRate) {
  rates(a(), kRate, 0);
  Flow flow(rig_, rig_.a, rig_.b);
  EXPECT_NEAR(shares({&flow})[0], 1, kNear);
  EXPECT_EQ(a().retransmits, 0u);
}

TEST_F(Shaped, ReceivesAtItsRate) {
  rates(b(), 0, kRate);
  Flow flow(rig_, rig_.a, rig_.b);
  EXPECT_NEAR(shares({&flow})[0], 1, kNear);
  EXPECT_EQ(a().retransmits, 0u);
}

TEST_F(Shaped, ReadsAreSentByTheOtherEnd) {
  rates(b(), kRate, 0);
  Flow flow(rig_, rig_.a, rig_.b);
  uint64_t done = 0;
  for (uint64_t spent = 0; spent < kSecond; spent += kShapeStep) {
    while (flow.from_cq.poll()) done += kMessage;
    for (; flow.posted < done + 4 * kMessage; flow.posted += kMessage)
      flow.a.post_send({.opcode = kWqeRead,
                        .sges = {flow.source.sge(0, kMessage)},
                        .remote_address = flow.target.address(),
                        .rkey = flow.target.key});
    step();
  }
  EXPECT_NEAR(static_cast<double>(done - kShapeCredit) / kRate, 1, kNear);
}

TEST_F(Shaped, DirectionsAreIndependent) {
  rates(a(), kRate, kRate / 2);
  Flow out(rig_, rig_.a, rig_.b), in(rig_, rig_.b, rig_.a);
  const auto got = shares({&out, &in});
  EXPECT_NEAR(got[0], 1, kNear);
  EXPECT_NEAR(got[1], 0.5, kNear);
}

TEST_F(Shaped, ManySendersGetTheReceiversRate) {
  rates(b(), 0, kRate);
  rates(a(), kRate, 0);
  rates(d_.fabric_nic, kRate, 0);
  Flow one(rig_, rig_.a, rig_.b), other(rig_, d_, rig_.b);
  const auto got = shares({&one, &other});
  EXPECT_NEAR(got[0] + got[1], 1, kNear);
  EXPECT_NEAR(got[0], 0.5, 0.05);
}

// The receiver does not count on its senders.
TEST_F(Shaped, HandOverAlonePaces) {
  rates(b(), 0, kRate);
  rig_.fabric->shaping = 0;
  Flow flow(rig_, rig_.a, rig_.b);
  EXPECT_NEAR(shares({&flow})[0], 1, kNear);
}

TEST_F(Shaped, LittleIsUnderWayToASlowReceiver) {
  rates(b(), 0, kRate);
  Flow flow(rig_, rig_.a, rig_.b);
  shares({&flow}, 0.2);
  EXPECT_LT(a().tx_bytes, flow.done + 2 * kShapeCredit);
  EXPECT_EQ(b().dropped_packets, 0u);
}

TEST_F(Shaped, TwoProcessesShareANic) {
  rates(a(), kRate, 0);
  Flow one(rig_, rig_.a, rig_.b), other(rig_, c_, rig_.b);
  const auto got = shares({&one, &other});
  EXPECT_NEAR(got[0] + got[1], 1, kNear);
  EXPECT_NEAR(got[0], 0.5, 0.05);
}

// One process has three of the four queue pairs.
TEST_F(Shaped, QueuePairsGetTheSameWhateverTheirProcesses) {
  rates(a(), kRate, 0);
  Flow alone(rig_, c_, rig_.b), one(rig_, rig_.a, rig_.b), two(rig_, rig_.a, rig_.b),
      three(rig_, rig_.a, d_);
  for (const double share : shares({&alone, &one, &two, &three})) EXPECT_NEAR(share, 0.25, 0.03);
}

// The receiver's turn has come, the sender's has not.
TEST_F(Shaped, WhoWaitsForItsTurnSleeps) {
  rates(a(), kRate, 0);
  rates(b(), 0, 2 * kRate);
  Flow one(rig_, rig_.a, rig_.b), two(rig_, rig_.a, rig_.b), other(rig_, c_, rig_.b);
  int awake = 0;
  constexpr int kPasses = 2'000;
  for (int i = 0; i < kPasses; i++) {
    for (Flow* flow : {&one, &two, &other}) flow->run();
    step();
    awake += rig_.a.core.quiet_ns(kSecond) == 0 ? 1 : 0;
  }
  EXPECT_LT(awake, kPasses / 5);
}

// A turn is one packet and takes 20 passes, so that passes alone would let the same queue pair go
// first each time.
TEST_F(Shaped, QueuePairsTakeTurns) {
  constexpr uint32_t kPayload = 4096, kPacket = kPayload + 28;
  rates(a(), kPacket * 1000, 0);
  Flow one(rig_, rig_.a, rig_.b, 0, kPayload), two(rig_, rig_.a, rig_.b, 0, kPayload),
      three(rig_, rig_.a, d_, 0, kPayload), four(rig_, rig_.a, d_, 0, kPayload);
  constexpr double kAll = 1000. * kPayload / kRate;
  for (const double share : shares({&one, &two, &three, &four}))
    EXPECT_NEAR(share / kAll, 0.25, 0.01);
}

// A slow receiver holds up those who send to it, and nobody else.
TEST_F(Shaped, OneSlowReceiverDoesNotHoldUpTheOthers) {
  rates(a(), kRate, 0);
  rates(b(), 0, kRate / 10);
  Flow slow(rig_, rig_.a, rig_.b), other(rig_, rig_.a, d_);
  const auto got = shares({&slow, &other});
  EXPECT_NEAR(got[0], 0.1, kNear);
  EXPECT_NEAR(got[1], 0.9, 0.05);
}

TEST_F(Shaped, AHigherClassGoesFirst) {
  for (const bool receiver : {false, true}) {
    rates(a(), receiver ? 0 : kRate, 0);
    rates(b(), 0, receiver ? kRate : 0);
    Process& other_process = receiver ? d_ : c_;
    Flow low(rig_, rig_.a, rig_.b), high(rig_, other_process, rig_.b, 3),
        same(rig_, rig_.a, rig_.b, 1);
    auto got = shares({&low, &high, &same});
    EXPECT_NEAR(got[1], 1, 0.03) << receiver;
    EXPECT_LT(got[0], 0.02);
    // When it has no more to send, the others have everything: the next class first.
    got = shares({&low, &same});
    EXPECT_NEAR(got[1], 1, 0.03) << receiver;
    got = shares({&low});
    EXPECT_NEAR(got[0], 1, kNear) << receiver;
  }
}

TEST_F(Shaped, IdleTimeIsWorthNoMoreThanTheCredit) {
  rates(a(), kRate, 0);
  Flow flow(rig_, rig_.a, rig_.b);
  shares({&flow}, 0.2);
  for (uint64_t spent = 0; spent < kSecond; spent += kShapeStep) step();  // idle
  const uint64_t before = a().tx_bytes;
  constexpr uint64_t kSpan = 4'000'000;
  for (uint64_t spent = 0; spent < kSpan; spent += kShapeStep) {
    flow.run(32);
    step();
  }
  const uint64_t sent = a().tx_bytes - before;
  const uint64_t carried = kRate * kSpan / kSecond;
  EXPECT_GE(sent, kShapeCredit);
  EXPECT_LE(sent, kShapeCredit + carried + kRate / 1000);
}

TEST_F(Shaped, ADeadProcessIsNotWaitedFor) {
  rates(a(), kRate, 0);
  // It dies while it has booked, and wishes to go first.
  Flow dying(rig_, c_, rig_.b, 3), flow(rig_, rig_.a, rig_.b);
  shares({&dying, &flow}, 0.1);
  dead_ = &c_;
  EXPECT_NEAR(shares({&flow})[0], 1, kNear);
  dead_ = nullptr;
}

TEST_F(Shaped, AQueuePairThatIsGoneIsNotWaitedFor) {
  rates(a(), kRate, 0);
  Flow gone(rig_, rig_.a, rig_.b), flow(rig_, rig_.a, rig_.b);
  for (int i = 0; i < 30; i++) {
    gone.run();
    flow.run();
    step();
  }
  gone.a.destroy();
  EXPECT_NEAR(shares({&flow})[0], 1, kNear);
}

// What is booked for a short message is given back.
TEST_F(Shaped, ShortMessagesCostNoMoreThanTheirBytes) {
  rates(a(), kRate, 0);
  Flow flow(rig_, rig_.a, rig_.b), small(rig_, c_, rig_.b, 0, 64);
  double spent = 0;
  uint64_t before = 0;
  for (int i = 0; i < 24'000; i++) {
    if (i == 4'000) before = flow.done;
    flow.run();
    if (i % 20 == 0) small.run(1);
    step();
    if (i >= 4'000) spent += kShapeStep;
  }
  EXPECT_NEAR(static_cast<double>(flow.done - before) / kRate * kSecond / spent, 1, kNear);
  EXPECT_GT(small.done, 64u * 200);
}

TEST_F(Shaped, WaitingForATurnIsNoTimeout) {
  rates(a(), kRate, 0);
  std::vector<std::unique_ptr<Flow>> flows;
  std::vector<Flow*> all;
  for (int i = 0; i < 24; i++) {
    // The timeout is 8 ms, and a turn comes each 24 ms.
    flows.push_back(std::make_unique<Flow>(rig_, rig_.a, rig_.b, 0, kMessage, 11));
    all.push_back(flows.back().get());
  }
  double sum = 0;
  for (const double share : shares(all, 0.5)) sum += share;
  EXPECT_NEAR(sum, 1, 0.05);
  EXPECT_EQ(a().retransmits, 0u);
}

TEST_F(Shaped, SlowLeavesAPartAndHealTheWhole) {
  rates(a(), kRate, kRate);
  Flow out(rig_, rig_.a, rig_.b), in(rig_, rig_.b, rig_.a);
  rig_.fault(a(), "slow=40");
  auto got = shares({&out, &in});
  EXPECT_NEAR(got[0], 0.4, kNear);
  EXPECT_NEAR(got[1], 0.4, kNear);
  rig_.fault(a(), "heal");
  got = shares({&out, &in});
  EXPECT_NEAR(got[0], 1, kNear);
  EXPECT_NEAR(got[1], 1, kNear);
}

TEST_F(Shaped, SlowCanWaitForAPacket) {
  rates(a(), kRate, kRate);
  Flow out(rig_, rig_.a, rig_.b);
  rig_.fault(a(), "slow=10@packet=2000");
  EXPECT_NEAR(shares({&out}, 0.1)[0], 1, 0.05);
  EXPECT_NEAR(shares({&out})[0], 0.1, kNear);
}

TEST_F(Shaped, ARateCanEndAtAnyTime) {
  rates(a(), 1000, 0);
  rates(b(), 0, 1000);
  Flow flow(rig_, rig_.a, rig_.b);
  for (int i = 0; i < 100; i++) {
    flow.run();
    step();
  }
  rates(a(), 0, 0);
  rates(b(), 0, 0);
  EXPECT_GT(shares({&flow}, 0.05)[0], 5);
  EXPECT_EQ(a().retransmits, 0u);
}

TEST_F(Shaped, DatagramsAreNotDropped) {
  rates(b(), 0, kRate);
  TestCq from_cq(*rig_.a.nic, rig_.a.events), to_cq(*rig_.b.nic, rig_.b.events);
  const QpOptions options = {.sq_blocks = 1024, .rq_wqes = 512, .type = IBV_QPT_UD};
  TestQp from(*rig_.a.nic, rig_.a.events, from_cq, from_cq, options);
  TestQp to(*rig_.b.nic, rig_.b.events, to_cq, to_cq, options);
  Rig::start_datagrams(from, 7);
  Rig::start_datagrams(to, 7);
  TestMr source(*rig_.a.nic, 4096), target(*rig_.b.nic, 4096 + 40);
  SendWr wr = {.sges = {source.sge(0, 4096)}, .dest_qpn = to.number(), .qkey = 7};
  nic_gid(b(), 3, wr.gid.raw);
  constexpr int kCount = 400;
  for (int i = 0; i < kCount; i++) {
    to.post_recv({target.sge(0, 4096 + 40)});
    from.post_send(wr);
  }
  const uint64_t start = rig_.clock.now_ns();
  size_t arrived = 0;
  while (arrived < kCount && rig_.clock.now_ns() - start < kSecond) {
    step();
    arrived += to_cq.drain().size();
  }
  EXPECT_EQ(arrived, static_cast<size_t>(kCount));
  const double took = static_cast<double>(rig_.clock.now_ns() - start) / kSecond;
  EXPECT_NEAR(took, (kCount * 4096. - kShapeCredit) / kRate, 0.004);
  from.destroy();
  to.destroy();
}

TEST_F(Shaped, ANicWithoutARateBooksNothing) {
  Flow flow(rig_, rig_.a, rig_.b);
  shares({&flow}, 0.05);
  for (FabricNic* nic : {&a(), &b()}) {
    EXPECT_EQ(nic->shape.tx.booked_ns, 0u);
    EXPECT_EQ(nic->shape.entry.booked_ns, 0u);
    EXPECT_EQ(nic->shape.rx.booked_ns, 0u);
    EXPECT_EQ(nic->faults, 0u);
  }
}

}  // namespace
}  // namespace cxemu::test
