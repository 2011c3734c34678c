// Extended reliable connections: the request names the receive queue, and the queue determines its
// CQ and the memory it may use.
#include <gtest/gtest.h>

#include "rig.h"

namespace cxemu::test {
namespace {

constexpr uint32_t kDomain = 5;

class Xrc : public ::testing::Test {
 protected:
  Xrc() { rig_.connect(a_, b_); }

  SendWr to(const TestSrq& srq, uint32_t length, uint8_t opcode = kWqeSend) const {
    SendWr wr = {.opcode = opcode,
                 .sges = {local_.sge(0, length)},
                 .remote_address = remote_.address(),
                 .rkey = remote_.key};
    wr.srqn = srq.number();
    return wr;
  }
  uint8_t exchange(const SendWr& wr) {
    a_.post_send(wr);
    std::vector<Completion> sent;
    EXPECT_TRUE(rig_.run_until([&] { return !(sent = a_cq_.drain()).empty(); }));
    EXPECT_EQ(sent.size(), 1u);
    return sent.empty() ? 0xff : sent[0].syndrome;
  }

  Rig rig_;
  TestCq a_cq_{*rig_.a.nic, rig_.a.events};
  TestCq first_cq_{*rig_.b.nic, rig_.b.events}, second_cq_{*rig_.b.nic, rig_.b.events};
  TestSrq first_{*rig_.b.nic, rig_.b.events, {.pd = 7, .cq = first_cq_.cq, .xrcd = kDomain}};
  TestSrq second_{*rig_.b.nic, rig_.b.events, {.pd = 7, .cq = second_cq_.cq, .xrcd = kDomain}};
  TestQp a_{*rig_.a.nic, rig_.a.events, a_cq_, a_cq_, {.type = IBV_QPT_XRC_SEND}};
  TestQp b_{*rig_.b.nic,
            rig_.b.events,
            first_cq_,
            first_cq_,
            {.type = IBV_QPT_XRC_RECV, .xrcd = kDomain}};
  TestMr local_{*rig_.a.nic, 8192};
  TestMr remote_{*rig_.b.nic, 8192,
                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                     IBV_ACCESS_REMOTE_ATOMIC,
                 7};
};

TEST_F(Xrc, OneConnectionReachesSeveralQueues) {
  first_.post({remote_.sge(0, 4000)});
  second_.post({remote_.sge(4000, 4000)});
  EXPECT_EQ(exchange(to(second_, 3000)), kSyndromeNone);
  EXPECT_EQ(exchange(to(first_, 2000)), kSyndromeNone);
  for (auto [cq, length] : {std::pair{&first_cq_, 2000u}, std::pair{&second_cq_, 3000u}}) {
    const auto received = cq->drain();
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].byte_count, length);
    EXPECT_EQ(received[0].wqe_counter, 0);
    EXPECT_EQ(received[0].uidx, TestSrq::kUidx) << "the library finds the queue by itself";
    EXPECT_EQ(received[0].qpn, b_.number());
  }
}

TEST_F(Xrc, WritesReadsAndAtomicsUseTheQueuesDomain) {
  EXPECT_EQ(exchange(to(first_, 5000, kWqeWrite)), kSyndromeNone);
  EXPECT_EQ(exchange(to(first_, 5000, kWqeRead)), kSyndromeNone);
  EXPECT_EQ(exchange(to(first_, 8, kWqeFetchAdd)), kSyndromeNone);
  first_.post({});
  EXPECT_EQ(exchange(to(first_, 10, kWqeWriteImm)), kSyndromeNone);
  EXPECT_EQ(first_cq_.drain().size(), 1u);
  TestSrq stranger(*rig_.b.nic, rig_.b.events, {.pd = 8, .cq = first_cq_.cq, .xrcd = kDomain});
  EXPECT_EQ(exchange(to(stranger, 10, kWqeWrite)), kSyndromeRemoteAccess);
}

TEST_F(Xrc, EmptyQueueIsReceiverNotReady) {
  a_.post_send(to(first_, 10));
  rig_.run_for(100'000);
  EXPECT_TRUE(a_cq_.drain().empty());
  first_.post({remote_.sge(0, 100)});
  EXPECT_TRUE(rig_.run_until([&] { return !a_cq_.drain().empty(); }));
}

TEST_F(Xrc, QueuesOfOtherDomainsAndNonesAreInvalidRequests) {
  TestSrq elsewhere(*rig_.b.nic, rig_.b.events, {.pd = 7, .cq = first_cq_.cq, .xrcd = kDomain + 1});
  elsewhere.post({remote_.sge(0, 100)});
  EXPECT_EQ(exchange(to(elsewhere, 10)), kSyndromeRemoteInvalidRequest);
  EXPECT_EQ(b_.query().qp_state, IBV_QPS_ERR);
}

TEST_F(Xrc, OrdinarySharedQueueCannotBeNamed) {
  TestSrq plain(*rig_.b.nic, rig_.b.events, {.pd = 7});
  plain.post({remote_.sge(0, 100)});
  EXPECT_EQ(exchange(to(plain, 10)), kSyndromeRemoteInvalidRequest);
}

TEST_F(Xrc, QueueCanGoWhileAMessageForItArrives) {
  auto doomed = std::make_unique<TestSrq>(*rig_.b.nic, rig_.b.events,
                                          SrqOptions{.pd = 7, .cq = first_cq_.cq, .xrcd = kDomain});
  doomed->post({remote_.sge(0, 8000)});
  rig_.net.filter = [](const Packet& packet) {
    return packet.opcode == Operation::kSendLast ? 0 : 1;
  };
  a_.post_send(to(*doomed, 8000));
  rig_.run_for(100'000);
  ASSERT_EQ(rig_.b.nic->srq_destroy(doomed->srq), 0);
  rig_.net.filter = nullptr;
  std::vector<Completion> sent;
  EXPECT_TRUE(rig_.run_until([&] { return !(sent = a_cq_.drain()).empty(); }));
  EXPECT_EQ(sent[0].syndrome, kSyndromeRemoteInvalidRequest);
}

TEST_F(Xrc, CompletionQueueStaysWhileAQueueUsesIt) {
  EXPECT_EQ(rig_.b.nic->cq_destroy(second_cq_.cq), EBUSY);
  ASSERT_EQ(rig_.b.nic->srq_destroy(second_.srq), 0);
  EXPECT_EQ(rig_.b.nic->cq_destroy(second_cq_.cq), 0);
}

TEST_F(Xrc, ManyMessagesUnderLoss) {
  rig_.net.loss = 0.05;
  uint32_t received = 0;
  for (uint32_t i = 0; i < 100; i++) {
    TestSrq& srq = i % 2 != 0 ? first_ : second_;
    srq.post({remote_.sge(0, 8000)});
    EXPECT_EQ(exchange(to(srq, 3000 + i)), kSyndromeNone);
    for (TestCq* cq : {&first_cq_, &second_cq_}) {
      for (const Completion& one : cq->drain()) {
        EXPECT_EQ(one.byte_count, 3000 + i);
        srq.free(one.wqe_counter);
        received++;
      }
    }
  }
  EXPECT_EQ(received, 100u);
}

}  // namespace
}  // namespace cxemu::test
