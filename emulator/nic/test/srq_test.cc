// Shared receive queues: the list of entries, several queue pairs, the limit, and what a failed
// queue pair leaves behind.
#include <gtest/gtest.h>

#include <random>

#include "rig.h"

namespace cxemu::test {
namespace {

class SrqTest : public ::testing::Test {
 protected:
  SrqTest() {
    for (TestQp* qp : {&a1_, &a2_, &b1_, &b2_}) {
      qp->attr.rnr_retry = 7;
      qp->attr.min_rnr_timer = 1;
    }
    rig_.connect(a1_, b1_);
    rig_.connect(a2_, b2_);
  }
  static QpOptions shared(const TestSrq& srq, ibv_qp_type type = IBV_QPT_RC) {
    return {.type = type, .srq = srq.srq};
  }
  SendWr send(uint32_t length) const { return {.sges = {local_.sge(0, length)}}; }
  void settle() { rig_.run_for(300'000); }
  size_t limit_events() const {
    size_t count = 0;
    for (const Events::Async& one : rig_.b.events.async) {
      count += one == Events::Async{IBV_EVENT_SRQ_LIMIT_REACHED, TestSrq::kUserHandle};
    }
    return count;
  }
  size_t last_wqe_events() const {
    size_t count = 0;
    for (const Events::Async& one : rig_.b.events.async) {
      count += one == Events::Async{IBV_EVENT_QP_LAST_WQE_REACHED, TestQp::kUserHandle};
    }
    return count;
  }

  Rig rig_;
  TestCq a_cq_{*rig_.a.nic, rig_.a.events}, b_cq_{*rig_.b.nic, rig_.b.events};
  TestSrq srq_{*rig_.b.nic, rig_.b.events};
  TestQp a1_{*rig_.a.nic, rig_.a.events, a_cq_, a_cq_},
      a2_{*rig_.a.nic, rig_.a.events, a_cq_, a_cq_};
  TestQp b1_{*rig_.b.nic, rig_.b.events, b_cq_, b_cq_, shared(srq_)};
  TestQp b2_{*rig_.b.nic, rig_.b.events, b_cq_, b_cq_, shared(srq_)};
  TestMr local_{*rig_.a.nic, 8192};
  TestMr remote_{*rig_.b.nic, 8192};
};

TEST_F(SrqTest, QueuePairsTakeInTheOrderOfPosting) {
  for (int i = 0; i < 4; i++) srq_.post({remote_.sge(0, 100)});
  a1_.post_send(send(1));
  settle();
  a2_.post_send(send(2));
  settle();
  a1_.post_send(send(3));
  settle();
  const auto received = b_cq_.drain();
  ASSERT_EQ(received.size(), 3u);
  const uint32_t qpns[] = {b1_.number(), b2_.number(), b1_.number()};
  for (uint16_t i = 0; i < 3; i++) {
    EXPECT_EQ(received[i].wqe_counter, i);
    EXPECT_EQ(received[i].qpn, qpns[i]);
    EXPECT_EQ(received[i].uidx, TestQp::kUidx) << "the library finds the queue by the queue pair";
    EXPECT_EQ(received[i].byte_count, i + 1u);
  }
}

// Entries come back in another order than they were taken, so the list does not stay sorted.
TEST_F(SrqTest, ListIsFollowedThroughManyRounds) {
  std::vector<uint16_t> held;
  uint32_t received = 0, posted = 0;
  std::mt19937 random(3);
  while (received < 500) {
    while (posted - received + held.size() < 7) {
      srq_.post({remote_.sge(0, 1000)});
      posted++;
    }
    (random() % 2 != 0 ? a1_ : a2_).post_send(send(received % 1000 + 1));
    settle();
    const auto got = b_cq_.drain();
    ASSERT_EQ(got.size(), 1u) << received;
    EXPECT_EQ(got[0].byte_count, received % 1000 + 1);
    held.push_back(got[0].wqe_counter);
    received++;
    while (held.size() > random() % 4) {
      const size_t which = random() % held.size();
      srq_.free(held[which]);
      held.erase(held.begin() + static_cast<long>(which));
    }
    a_cq_.drain();
  }
}

TEST_F(SrqTest, EmptyQueueIsReceiverNotReady) {
  a1_.post_send(send(10));
  settle();
  EXPECT_TRUE(a_cq_.drain().empty());
  srq_.post({remote_.sge(0, 100)});
  EXPECT_TRUE(rig_.run_until([&] { return !b_cq_.drain().empty(); }, 20'000'000));
  EXPECT_EQ(a1_.query().qp_state, IBV_QPS_RTS);
}

TEST_F(SrqTest, LimitTellsOncePerArming) {
  for (int i = 0; i < 4; i++) srq_.post({remote_.sge(0, 100)});
  uint32_t limit = 77;
  ASSERT_EQ(rig_.b.nic->srq_limit_set(srq_.srq, 3), 0);
  ASSERT_EQ(rig_.b.nic->srq_limit_get(srq_.srq, &limit), 0);
  EXPECT_EQ(limit, 3u);
  a1_.post_send(send(1));
  settle();
  EXPECT_EQ(limit_events(), 0u) << "three are left, which is not fewer than three";
  a1_.post_send(send(1));
  settle();
  EXPECT_EQ(limit_events(), 1u);
  ASSERT_EQ(rig_.b.nic->srq_limit_get(srq_.srq, &limit), 0);
  EXPECT_EQ(limit, 0u);
  a1_.post_send(send(1));
  settle();
  EXPECT_EQ(limit_events(), 1u);
  // When the limit is armed above the current number, the event comes at once.
  ASSERT_EQ(rig_.b.nic->srq_limit_set(srq_.srq, 5), 0);
  EXPECT_EQ(limit_events(), 2u);
  EXPECT_EQ(rig_.b.nic->srq_limit_set(srq_.srq, 8), EINVAL) << "as many as there are entries";
}

TEST_F(SrqTest, FailedQueuePairLeavesEntriesToTheOthers) {
  for (int i = 0; i < 2; i++) srq_.post({remote_.sge(0, 100)});
  ASSERT_EQ(b1_.to_state(IBV_QPS_ERR), 0);
  settle();
  EXPECT_TRUE(b_cq_.drain().empty());
  EXPECT_EQ(last_wqe_events(), 1u);
  settle();
  EXPECT_EQ(last_wqe_events(), 1u);
  a2_.post_send(send(5));
  settle();
  ASSERT_EQ(b_cq_.drain().size(), 1u);
  // Each failure is reported again.
  ASSERT_EQ(b1_.to_state(IBV_QPS_RESET), 0);
  ASSERT_EQ(b1_.to_state(IBV_QPS_ERR), 0);
  settle();
  EXPECT_EQ(last_wqe_events(), 2u);
}

TEST_F(SrqTest, EntryOfAMessageThatBrokeOffIsFlushedBeforeTheEvent) {
  srq_.post({remote_.sge(0, 4000)});
  srq_.post({remote_.sge(0, 4000)});
  rig_.net.filter = [&](const Packet& packet) {
    return packet.opcode == Operation::kSendMiddle ? 0 : 1;
  };
  a1_.post_send(send(4000));
  rig_.run_for(20'000);
  ASSERT_EQ(b1_.to_state(IBV_QPS_ERR), 0);
  settle();
  const auto received = b_cq_.drain();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].syndrome, kSyndromeFlush);
  EXPECT_EQ(received[0].wqe_counter, 0);
  EXPECT_EQ(last_wqe_events(), 1u);
}

TEST_F(SrqTest, EntryThatIsTooSmallIsSpentByTheError) {
  srq_.post({remote_.sge(0, 10)});
  srq_.post({remote_.sge(0, 100)});
  a1_.post_send(send(11));
  settle();
  auto received = b_cq_.drain();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].syndrome, kSyndromeLocalLength);
  EXPECT_EQ(received[0].wqe_counter, 0);
  EXPECT_EQ(last_wqe_events(), 1u);
  a2_.post_send(send(12));
  settle();
  received = b_cq_.drain();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].wqe_counter, 1);
}

// The addresses in its entries belong to the queue's protection domain, not to the queue pair's.
TEST_F(SrqTest, EntriesUseTheQueuesDomain) {
  TestSrq other(*rig_.b.nic, rig_.b.events, {.pd = 2});
  TestQp b3(*rig_.b.nic, rig_.b.events, b_cq_, b_cq_, shared(other));
  TestQp a3(*rig_.a.nic, rig_.a.events, a_cq_, a_cq_);
  rig_.connect(a3, b3);
  TestMr in_domain(*rig_.b.nic, 100, IBV_ACCESS_LOCAL_WRITE, 2);
  other.post({in_domain.sge(0, 100)});
  other.post({remote_.sge(0, 100)});
  a3.post_send(send(1));
  settle();
  auto received = b_cq_.drain();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].syndrome, kSyndromeNone);
  a3.post_send(send(1));
  settle();
  received = b_cq_.drain();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].syndrome, kSyndromeLocalProtection);
}

TEST_F(SrqTest, StaysWhileAQueuePairUsesIt) {
  EXPECT_EQ(rig_.b.nic->srq_destroy(srq_.srq), EBUSY);
  ASSERT_EQ(rig_.b.nic->qp_destroy(b1_.qp), 0);
  EXPECT_EQ(rig_.b.nic->srq_destroy(srq_.srq), EBUSY);
  ASSERT_EQ(rig_.b.nic->qp_destroy(b2_.qp), 0);
  EXPECT_EQ(rig_.b.nic->srq_destroy(srq_.srq), 0);
}

TEST_F(SrqTest, WildLinksAndDoorbellsStayInsideTheBuffer) {
  const uint16_t index = srq_.post({remote_.sge(0, 100)});
  srq_.link(index, 0xffff);
  a1_.post_send(send(1));
  settle();
  EXPECT_EQ(b_cq_.drain().size(), 1u);
  a1_.post_send(send(1));
  srq_.ring(2);  // the slot that index 0xffff wraps to
  settle();
  EXPECT_LE(b_cq_.drain().size(), 1u);
  srq_.ring(1000);  // more than the queue has entries
  a2_.post_send(send(1));
  settle();
  EXPECT_TRUE(b_cq_.drain().empty());
}

TEST_F(SrqTest, ServesTheUnreliableServicesToo) {
  TestQp uc_a(*rig_.a.nic, rig_.a.events, a_cq_, a_cq_, {.type = IBV_QPT_UC});
  TestQp uc_b(*rig_.b.nic, rig_.b.events, b_cq_, b_cq_, shared(srq_, IBV_QPT_UC));
  rig_.connect(uc_a, uc_b);
  uc_a.post_send(send(1));
  settle();
  EXPECT_TRUE(b_cq_.drain().empty());
  EXPECT_EQ(rig_.b.fabric_nic.get(HwCounter::kOutOfBuffer), 1u);
  srq_.post({remote_.sge(0, 100)});
  uc_a.post_send(send(2));
  settle();
  const auto received = b_cq_.drain();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].byte_count, 2u);
  EXPECT_EQ(received[0].qpn, uc_b.number());
}

TEST(SrqObjects, BadQueuesAreRefused) {
  Rig rig;
  uint32_t db = 0;
  std::vector<uint8_t> buffer(4096);
  Srq* srq = nullptr;
  const auto create = [&](uint32_t count, uint32_t shift) {
    const SrqConfig config = {.buffer = buffer.data(),
                              .db = &db,
                              .wqe_count = count,
                              .wqe_shift = shift,
                              .sink = &rig.a.events};
    return rig.a.nic->srq_create(config, &srq);
  };
  EXPECT_EQ(create(0, 6), EINVAL);
  EXPECT_EQ(create(3, 6), EINVAL);
  EXPECT_EQ(create(1 << 16, 6), EINVAL);
  EXPECT_EQ(create(4, 4), EINVAL);
  EXPECT_EQ(create(4, 13), EINVAL);
  EXPECT_EQ(create(4, 5), 0);
  rig.fault_set(rig.a.fabric_nic, kDead);
  EXPECT_EQ(create(4, 5), EIO);
  EXPECT_EQ(rig.a.nic->srq_limit_set(srq, 1), EIO);
}

}  // namespace
}  // namespace cxemu::test
