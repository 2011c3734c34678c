// Every way in which a work request can fail, and the state of the QP afterwards.
#include <gtest/gtest.h>

#include <cstring>

#include "rig.h"

namespace cxemu::test {
namespace {

class Errors : public ::testing::Test {
 protected:
  void SetUp() override { pair_.emplace(rig_); }

  SendWr write(uint32_t length = 100) const {
    return {.opcode = kWqeWrite,
            .sges = {local_.sge(0, length)},
            .remote_address = remote_.address(),
            .rkey = remote_.key};
  }
  // Runs until side a has `count` completions.
  std::vector<Completion> a_completions(size_t count) { return completions(pair_->a_cq, count); }
  std::vector<Completion> completions(TestCq& cq, size_t count) {
    std::vector<Completion> all;
    rig_.run_until([&] {
      for (const Completion& one : cq.drain()) all.push_back(one);
      return all.size() >= count;
    });
    rig_.run_for(1'000'000);
    for (const Completion& one : cq.drain()) all.push_back(one);
    EXPECT_EQ(all.size(), count);
    all.resize(count);
    return all;
  }
  // Expects the error, and that the two WQEs after it are flushed although they are not signaled.
  void expect_error_and_flush(const SendWr& bad, uint8_t syndrome, uint8_t vendor) {
    const uint16_t good = pair_->a.post_send(write());
    const uint16_t first = pair_->a.post_send(bad);
    SendWr silent = write();
    silent.signaled = false;
    const uint16_t second = pair_->a.post_send(silent);
    const uint16_t third = pair_->a.post_send(silent);
    const auto all = a_completions(4);
    EXPECT_EQ(all[0].opcode, kCqeRequester);
    EXPECT_EQ(all[0].wqe_counter, good);
    EXPECT_EQ(all[1].opcode, kCqeRequesterError);
    EXPECT_EQ(all[1].syndrome, syndrome);
    EXPECT_EQ(all[1].vendor, vendor);
    EXPECT_EQ(all[1].wqe_counter, first);
    EXPECT_EQ(all[1].wqe_opcode, bad.opcode);
    for (size_t i = 2; i < 4; i++) {
      EXPECT_EQ(all[i].opcode, kCqeRequesterError);
      EXPECT_EQ(all[i].syndrome, kSyndromeFlush);
      EXPECT_EQ(all[i].vendor, 0xf9);
      EXPECT_EQ(all[i].wqe_counter, i == 2 ? second : third);
    }
    EXPECT_EQ(pair_->a.query().qp_state, IBV_QPS_ERR);
  }
  void expect_b_dead(ibv_event_type event) {
    EXPECT_EQ(pair_->b.query().qp_state, IBV_QPS_ERR);
    EXPECT_EQ(rig_.b.events.async, (std::vector<Events::Async>{{event, TestQp::kUserHandle}}));
    EXPECT_EQ(rig_.b.nic->qp_async_events(pair_->b.qp), 1u);
    EXPECT_TRUE(rig_.a.events.async.empty());
  }

  Rig rig_;
  std::optional<Pair> pair_;
  TestMr local_{*rig_.a.nic, 8192};
  TestMr remote_{*rig_.b.nic, 8192};
};

TEST_F(Errors, WrongRemoteKey) {
  SendWr bad = write();
  bad.rkey += 0x100;
  expect_error_and_flush(bad, kSyndromeRemoteAccess, 0x88);
  expect_b_dead(IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(Errors, WriteBeyondTheRegion) {
  SendWr bad = write(5000);
  bad.remote_address += 8192 - 4999;
  expect_error_and_flush(bad, kSyndromeRemoteAccess, 0x88);
  EXPECT_EQ(remote_.bytes[8191], 0) << "nothing of it is placed";
  expect_b_dead(IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(Errors, RegionWithoutTheRight) {
  TestMr read_only(*rig_.b.nic, 100, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  SendWr bad = write();
  bad.remote_address = read_only.address();
  bad.rkey = read_only.key;
  expect_error_and_flush(bad, kSyndromeRemoteAccess, 0x88);
}

TEST_F(Errors, RegionOfAnotherProtectionDomain) {
  TestMr foreign(*rig_.b.nic, 100, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 2);
  SendWr bad = write();
  bad.remote_address = foreign.address();
  bad.rkey = foreign.key;
  expect_error_and_flush(bad, kSyndromeRemoteAccess, 0x88);
}

TEST_F(Errors, OperationNotAllowedOnTheQp) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  ASSERT_EQ(pair_->b.modify(attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), 0);
  SendWr bad = write();
  bad.opcode = kWqeRead;
  expect_error_and_flush(bad, kSyndromeRemoteAccess, 0x88);
  expect_b_dead(IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(Errors, MisalignedAtomic) {
  SendWr bad = write(8);
  bad.opcode = kWqeFetchAdd;
  bad.remote_address += 4;
  expect_error_and_flush(bad, kSyndromeRemoteInvalidRequest, 0x89);
  expect_b_dead(IBV_EVENT_QP_REQ_ERR);
}

TEST_F(Errors, MoreReadsThanTheResponderHolds) {
  Pair pair(rig_, 1024, {}, [](TestQp& a, TestQp& b) {
    a.attr.max_rd_atomic = 4;
    b.attr.max_dest_rd_atomic = 1;
  });
  pair_->a.to_state(IBV_QPS_RESET);
  for (int i = 0; i < 4; i++) {
    SendWr read = write(8192);
    read.opcode = kWqeRead;
    pair.a.post_send(read);
  }
  const auto all = completions(pair.a_cq, 4);
  EXPECT_EQ(all[0].opcode, kCqeRequester);
  EXPECT_EQ(all[1].syndrome, kSyndromeRemoteInvalidRequest);
  EXPECT_EQ(all[2].syndrome, kSyndromeFlush);
}

TEST_F(Errors, LocalKeyWrong) {
  SendWr bad = write();
  bad.sges[0].lkey += 0x100;
  expect_error_and_flush(bad, kSyndromeLocalProtection, 0x51);
  EXPECT_EQ(pair_->b.query().qp_state, IBV_QPS_RTS) << "nothing was sent";
  EXPECT_EQ(pair_->b.query().rq_psn, psn_add(pair_->a.attr.sq_psn, 1));
}

TEST_F(Errors, LocalRangeWrongInTheSecondPart) {
  SendWr bad = write();
  bad.sges.push_back(local_.sge(8000, 193));
  expect_error_and_flush(bad, kSyndromeLocalProtection, 0x51);
}

TEST_F(Errors, ReadIntoReadOnlyMemory) {
  TestMr constant(*rig_.a.nic, 100, IBV_ACCESS_REMOTE_READ);
  SendWr bad = write();
  bad.opcode = kWqeRead;
  bad.sges = {constant.sge(0, 100)};
  expect_error_and_flush(bad, kSyndromeLocalProtection, 0x51);
}

TEST_F(Errors, UnsupportedOpcode) {
  SendWr bad = write();
  bad.opcode = 0x26;
  expect_error_and_flush(bad, kSyndromeLocalQpOperation, 0x68);
}

TEST_F(Errors, UnwalkableRingIsGivenUp) {
  pair_->a.post_send(write());
  rig_.run_for(100'000);
  memset(pair_->a.block(1), 0, 64);
  pair_->a.ring_send(5);
  const auto all = a_completions(2);
  EXPECT_EQ(all[1].syndrome, kSyndromeLocalQpOperation);
  EXPECT_EQ(all[1].wqe_counter, 1);
  EXPECT_EQ(pair_->a.query().qp_state, IBV_QPS_ERR);
}

TEST_F(Errors, DoorbellBeyondTheRing) {
  for (int i = 0; i < 4; i++) pair_->a.post_send(write());
  pair_->a.ring_send(0x8000);
  const auto all = a_completions(1);
  EXPECT_EQ(all[0].syndrome, kSyndromeLocalQpOperation);
}

TEST_F(Errors, ReceiveTooSmall) {
  TestMr small(*rig_.b.nic, 2000);
  pair_->b.post_recv({small.sge(0, 1500)});
  pair_->b.post_recv({small.sge(0, 1500)});
  SendWr bad = write(1501);
  bad.opcode = kWqeSend;
  expect_error_and_flush(bad, kSyndromeRemoteInvalidRequest, 0x89);
  const auto at_b = completions(pair_->b_cq, 2);
  EXPECT_EQ(at_b[0].opcode, kCqeResponderError);
  EXPECT_EQ(at_b[0].syndrome, kSyndromeLocalLength);
  EXPECT_EQ(at_b[0].wqe_counter, 0);
  EXPECT_EQ(at_b[1].opcode, kCqeResponderError);
  EXPECT_EQ(at_b[1].syndrome, kSyndromeFlush);
  EXPECT_EQ(at_b[1].wqe_counter, 1);
  EXPECT_TRUE(rig_.b.events.async.empty()) << "a completion tells it";
}

TEST_F(Errors, ReceiveIntoMemoryThatIsGone) {
  TestMr gone(*rig_.b.nic, 2000);
  pair_->b.post_recv({gone.sge(0, 2000)});
  ASSERT_EQ(rig_.b.nic->mr_deregister(gone.key), 0);
  SendWr bad = write();
  bad.opcode = kWqeSend;
  expect_error_and_flush(bad, kSyndromeRemoteOperation, 0x8a);
  const auto at_b = completions(pair_->b_cq, 1);
  EXPECT_EQ(at_b[0].syndrome, kSyndromeLocalProtection);
}

TEST_F(Errors, RegionGoneInTheMiddleOfAReadResponse) {
  EngineTuning tuning = Rig::tuning_default();
  tuning.qp_send_bytes = 2000;
  Rig rig(1, tuning);
  Pair pair(rig);
  TestMr local(*rig.a.nic, 100'000), remote(*rig.b.nic, 100'000);
  pair.a.post_send({.opcode = kWqeRead,
                    .sges = {local.sge(0, 100'000)},
                    .remote_address = remote.address(),
                    .rkey = remote.key});
  for (int i = 0; i < 10; i++) rig.step();
  ASSERT_EQ(rig.b.nic->mr_deregister(remote.key), 0);
  std::optional<Completion> one;
  ASSERT_TRUE(rig.run_until([&] { return (one = pair.a_cq.poll()).has_value(); }));
  EXPECT_EQ(one->syndrome, kSyndromeRemoteAccess);
}

// Flush: WQEs complete in order and once, including those posted later, in both queues.

TEST_F(Errors, ModifyToErrFlushesBothQueues) {
  rig_.fault_set(rig_.b.fabric_nic, kDropData);
  for (int i = 0; i < 3; i++) {
    SendWr silent = write();
    silent.signaled = false;
    pair_->a.post_send(silent);
    pair_->a.post_recv({local_.sge(0, 10)});
  }
  rig_.run_for(10'000);
  ASSERT_EQ(pair_->a.to_state(IBV_QPS_ERR), 0);
  pair_->a.post_send(write());
  pair_->a.post_recv({local_.sge(0, 10)});
  const auto all = a_completions(8);
  std::vector<uint16_t> sends, recvs;
  for (const Completion& one : all) {
    EXPECT_EQ(one.syndrome, kSyndromeFlush);
    (one.opcode == kCqeRequesterError ? sends : recvs).push_back(one.wqe_counter);
  }
  EXPECT_EQ(sends, (std::vector<uint16_t>{0, 1, 2, 3}));
  EXPECT_EQ(recvs, (std::vector<uint16_t>{0, 1, 2, 3}));
  EXPECT_TRUE(rig_.a.events.async.empty());
  EXPECT_EQ(rig_.a.fabric_nic.qp_errors.load(), 0u) << "the application wanted it";
}

TEST_F(Errors, QpNeverConnectedFlushesToo) {
  TestCq cq(*rig_.a.nic, rig_.a.events);
  TestQp qp(*rig_.a.nic, rig_.a.events, cq, cq);
  ASSERT_EQ(qp.to_init(), 0);
  qp.post_recv({local_.sge(0, 10)});
  ASSERT_EQ(qp.to_state(IBV_QPS_ERR), 0);
  qp.post_recv({local_.sge(0, 10)});
  qp.post_send(write());
  EXPECT_EQ(completions(cq, 3).size(), 3u);
}

TEST_F(Errors, HalfReceivedMessageIsFlushedFirst) {
  TestMr target(*rig_.b.nic, 8192);
  pair_->b.post_recv({target.sge(0, 8192)});
  pair_->b.post_recv({target.sge(0, 8192)});
  rig_.net.filter = [](const Packet& packet) {
    return packet.opcode == Operation::kSendMiddle ? 0 : 1;
  };
  SendWr send = write(8192);
  send.opcode = kWqeSend;
  pair_->a.post_send(send);
  rig_.run_for(10'000);
  ASSERT_EQ(pair_->b.to_state(IBV_QPS_ERR), 0);
  const auto at_b = completions(pair_->b_cq, 2);
  EXPECT_EQ(at_b[0].wqe_counter, 0);
  EXPECT_EQ(at_b[1].wqe_counter, 1);
}

TEST_F(Errors, AQpInErrAnswersNothing) {
  ASSERT_EQ(pair_->b.to_state(IBV_QPS_ERR), 0);
  uint64_t answers = 0;
  rig_.net.filter = [&](const Packet& packet) {
    answers += opcode_is_response(packet.opcode) ? 1 : 0;
    return 1;
  };
  pair_->a.post_send(write());
  const auto all = a_completions(1);
  EXPECT_EQ(all[0].syndrome, kSyndromeRetryExceeded);
  EXPECT_EQ(answers, 0u);
  EXPECT_EQ(remote_.bytes[0], 0);
}

TEST_F(Errors, QpWorksAgainAfterReset) {
  pair_->a.to_state(IBV_QPS_ERR);
  pair_->b.to_state(IBV_QPS_ERR);
  rig_.run_for(10'000);
  for (TestQp* qp : {&pair_->a, &pair_->b}) {
    ASSERT_EQ(qp->to_state(IBV_QPS_RESET), 0);
    qp->reset_indices();
  }
  rig_.connect(pair_->a, pair_->b);
  local_.bytes[0] = 0x5a;
  EXPECT_EQ(pair_->a.post_send(write()), 0);
  const auto all = a_completions(1);
  EXPECT_EQ(all[0].opcode, kCqeRequester);
  EXPECT_EQ(remote_.bytes[0], 0x5a);
}

// Faults between execution and acknowledgement, and between two packets of one message.

TEST_F(Errors, ExecutedButNotAcknowledged) {
  rig_.fault_set(rig_.a.fabric_nic, kDropAcks);
  local_.bytes[0] = 0x77;
  pair_->a.post_send(write());
  const auto all = a_completions(1);
  EXPECT_EQ(all[0].syndrome, kSyndromeRetryExceeded);
  EXPECT_EQ(all[0].vendor, 0x81);
  EXPECT_EQ(remote_.bytes[0], 0x77) << "it was executed";
  EXPECT_EQ(pair_->b.query().rq_psn, psn_add(pair_->a.attr.sq_psn, 1));
}

TEST_F(Errors, BrokenOffBetweenTwoPackets) {
  int packets = 0;
  rig_.net.filter = [&](const Packet&) { return ++packets <= 3 ? 1 : 0; };
  std::fill(local_.bytes.begin(), local_.bytes.end(), uint8_t{1});
  pair_->a.post_send(write(8192));
  const auto all = a_completions(1);
  EXPECT_EQ(all[0].syndrome, kSyndromeRetryExceeded);
  EXPECT_EQ(remote_.bytes[3 * 1024 - 1], 1);
  EXPECT_EQ(remote_.bytes[3 * 1024], 0);
  EXPECT_EQ(pair_->b.query().rq_psn, psn_add(pair_->a.attr.sq_psn, 3));
}

}  // namespace
}  // namespace cxemu::test
