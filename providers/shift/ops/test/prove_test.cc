// The layer counts on the NIC's own queues only when the first requests could be read back from
// them as they were posted. Otherwise it copies each request, now and in later lives of the QP.
#include "ops/prove.h"

#include <cstring>
#include <thread>

#include "group/test/readable.h"
#include "ops/builder.h"
#include "ops/test/queue_pairs.h"

namespace shift::ops {
namespace {

using group::ReadableQueues;
using group::Reading;

class Proofs : public QueuePairs {
 protected:
  Proofs() { begin(); }
  // Makes a group whose queues can be read.
  void begin() {
    group_ = world_.make_group(cq_);
    ReadableQueues::give_to(*group_);
    group_->life_begin();
  }

  group::SendQueue& sends() { return group_->send; }

  int post(ibv_send_wr wr, std::vector<ibv_sge> sges) {
    ibv_send_wr* bad;
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(sges.size());
    return post_send_noted(group_->handle(), &wr, &bad);
  }
  int post_one(uint64_t wr_id) {
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    return post(wr, {{0x5000 + wr_id, 8, group::kLkey}});
  }
  int receive_one(uint64_t wr_id) {
    ibv_sge sge{0x6000 + wr_id, 8, group::kLkey};
    ibv_recv_wr wr{wr_id, nullptr, &sge, 1}, *bad;
    return post_recv_noted(group_->handle(), &wr, &bad);
  }
  // The journal holds the whole request or receive.
  void expect_copied(uint64_t position, uint64_t wr_id) {
    ibv_send_wr wr;
    ibv_sge sges[group::kMaxSge];
    sends().journal.rebuild(position, &wr, sges);
    ASSERT_EQ(wr.wr_id, wr_id);
    ASSERT_EQ(wr.num_sge, 1);
    ASSERT_EQ(sges[0].addr, 0x5000 + wr_id);
  }
  void expect_receive_copied(uint64_t position, uint64_t wr_id) {
    ibv_recv_wr wr;
    ibv_sge sges[group::kMaxSge];
    group_->recv.journal.rebuild(position, &wr, sges);
    ASSERT_EQ(wr.wr_id, wr_id);
    ASSERT_EQ(wr.num_sge, 1);
    ASSERT_EQ(sges[0].addr, 0x6000 + wr_id);
  }
};

TEST_F(Proofs, AQueueThatCanBeReadIsNoted) {
  ASSERT_EQ(post_one(1), 0);
  EXPECT_EQ(ReadableQueues::looks, 1);
  for (uint64_t wr_id : {2, 3}) ASSERT_EQ(post_one(wr_id), 0);
  for (uint64_t wr_id : {4, 5}) ASSERT_EQ(receive_one(wr_id), 0);
  EXPECT_EQ(ReadableQueues::looks, 2) << "only the first ones are proven";
  EXPECT_TRUE(sends().journal.is_noting());
  EXPECT_TRUE(group_->recv.journal.is_noting());
  group::park({&group_, 1});
  EXPECT_FALSE(sends().journal.is_noting());
  for (uint64_t i = 0; i < 3; i++) ASSERT_NO_FATAL_FAILURE(expect_copied(i, i + 1));
  for (uint64_t i = 0; i < 2; i++) ASSERT_NO_FATAL_FAILURE(expect_receive_copied(i, i + 4));
}

TEST_F(Proofs, AQueueOfAnotherFormatIsCopiedFromItsFirstRequestOn) {
  for (const Reading reading : {Reading::kWrong, Reading::kNothing}) {
    begin();
    ASSERT_TRUE(sends().journal.is_noting());
    ReadableQueues::sends = ReadableQueues::receives = reading;
    for (uint64_t wr_id = 1; wr_id <= 3; wr_id++) {
      ASSERT_EQ(post_one(wr_id), 0);
      ASSERT_NO_FATAL_FAILURE(expect_copied(wr_id - 1, wr_id));
      ASSERT_EQ(receive_one(wr_id), 0);
      ASSERT_NO_FATAL_FAILURE(expect_receive_copied(wr_id - 1, wr_id));
    }
    EXPECT_EQ(ReadableQueues::looks, 2);
    EXPECT_EQ(sends().journal.known_from(), 0u);
    // A reset begins another life, and the queues still have their format.
    group_->life_begin();
    ReadableQueues::sends = ReadableQueues::receives = Reading::kRight;
    ASSERT_EQ(post_one(7), 0);
    ASSERT_NO_FATAL_FAILURE(expect_copied(0, 7));
    ASSERT_EQ(receive_one(8), 0);
    ASSERT_NO_FATAL_FAILURE(expect_receive_copied(0, 8));
    EXPECT_EQ(ReadableQueues::looks, 2);
  }
}

TEST_F(Proofs, EachLifeIsProvenAnew) {
  ASSERT_EQ(post_one(1), 0);
  {
    auto lock = lock_queue(sends());  // takes the queue from its owner, as a reset does
    group_->life_begin();
  }
  ReadableQueues::sends = Reading::kWrong;
  ASSERT_EQ(post_one(2), 0);
  ASSERT_NO_FATAL_FAILURE(expect_copied(0, 2));
  EXPECT_EQ(ReadableQueues::looks, 2);
}

// What a provider leaves out or changes is no other format.
TEST_F(Proofs, RequestsOfAllShapesAreProven) {
  uint8_t bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto at = reinterpret_cast<uintptr_t>(bytes);
  ibv_send_wr empty{}, inlined{}, atomic{}, imm{};
  empty.opcode = IBV_WR_RDMA_WRITE;
  inlined.opcode = IBV_WR_SEND;
  inlined.send_flags = IBV_SEND_INLINE;
  atomic.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  atomic.wr.atomic = {1, 2, 3, 4};
  imm.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  imm.imm_data = 5;
  const std::vector<std::pair<ibv_send_wr, std::vector<ibv_sge>>> all = {
      {empty, {}},
      {empty, {{1, 0, 2}, {3, 4, 5}}},
      {inlined, {{at, 3, 0}, {at + 4, 2, 0}}},
      {inlined, {{at, 0, 0}}},
      {atomic, {{at, 64, 1}}},
      {imm, {{at, 8, 1}}}};
  for (size_t i = 0; i < all.size(); i++) {
    begin();
    ASSERT_EQ(post(all[i].first, all[i].second), 0);
    EXPECT_EQ(ReadableQueues::looks, 1);
    EXPECT_TRUE(sends().journal.is_noting()) << i;
  }
}

// The hot path does not look whether its notes are good for anything.
TEST_F(Proofs, NoThreadOwnsAQueueThatIsNotProven) {
  if (group::thread_slot_get() == nullptr) GTEST_SKIP() << "no membarrier(2) here";
  {
    std::scoped_lock lock(sends().mutex, group_->recv.mutex);
    sends().adopt();
    group_->recv.adopt();
  }
  EXPECT_FALSE(sends().bias.has_owner());
  EXPECT_FALSE(group_->recv.bias.has_owner());
  ASSERT_EQ(post_one(1), 0);
  ASSERT_EQ(receive_one(1), 0);
  EXPECT_TRUE(sends().bias.has_owner());
  EXPECT_TRUE(group_->recv.bias.has_owner());
}

class BuilderProofs : public Proofs {
 protected:
  BuilderProofs() {
    real_.wr_start = [](ibv_qp_ex*) { started++; };
    real_.wr_complete = [](ibv_qp_ex*) { return 0; };
    real_.wr_send = [](ibv_qp_ex*) {};
    real_.wr_set_sge = [](ibv_qp_ex*, uint32_t, uint64_t, uint32_t) {};
    group_->real_ex = &real_;
    install_builder(*group_);
    started = 0;
  }
  void build(uint64_t wr_id) {
    ibv_qp_ex* const qp = &group_->qp;
    qp->wr_id = wr_id;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(qp);
    ibv_wr_set_sge(qp, group::kLkey, 0x5000 + wr_id, 8);
  }
  void batch(uint64_t first, uint64_t last) {
    ibv_wr_start(&group_->qp);
    for (uint64_t wr_id = first; wr_id <= last; wr_id++) build(wr_id);
    ASSERT_EQ(ibv_wr_complete(&group_->qp), 0);
  }

  static inline int started;
  ibv_qp_ex real_{};
};

TEST_F(BuilderProofs, ABatchIsProven) {
  ASSERT_NO_FATAL_FAILURE(batch(1, 2));
  EXPECT_EQ(ReadableQueues::looks, 1);
  EXPECT_TRUE(sends().journal.is_noting());
  ASSERT_NO_FATAL_FAILURE(batch(3, 4));
  EXPECT_TRUE(sends().journal.is_noting());
  for (uint64_t i = 0; i < 4; i++) EXPECT_EQ(sends().journal.wr_id(i), i + 1);
}

TEST_F(BuilderProofs, BatchesForAQueueOfAnotherFormatAreCopied) {
  ReadableQueues::sends = Reading::kWrong;
  for (int life = 0; life < 2; life++) {
    ASSERT_NO_FATAL_FAILURE(batch(1, 2));
    ASSERT_NO_FATAL_FAILURE(batch(3, 4));
    ASSERT_EQ(post_one(5), 0);
    ASSERT_NO_FATAL_FAILURE(batch(6, 6));
    EXPECT_EQ(ReadableQueues::looks, 1);
    EXPECT_EQ(started, sends().bias.is_own() ? 2 + 3 * life : 0);
    for (uint64_t i = 0; i < 6; i++) ASSERT_NO_FATAL_FAILURE(expect_copied(i, i + 1));
    group_->life_begin();
  }
}

// A thread builds a batch the slow way, and another thread posts the first request.
TEST_F(BuilderProofs, AnOpenBatchStaysWhatItIs) {
  ReadableQueues::sends = Reading::kWrong;
  ibv_wr_start(&group_->qp);
  build(2);
  std::thread([&] { ASSERT_EQ(post_one(1), 0); }).join();
  build(3);
  ASSERT_EQ(ibv_wr_complete(&group_->qp), 0);
  EXPECT_EQ(started, 0);
  EXPECT_EQ(on_default().sends.size(), 3u);
  ASSERT_NO_FATAL_FAILURE(batch(4, 4));
  for (uint64_t i = 0; i < 4; i++) ASSERT_NO_FATAL_FAILURE(expect_copied(i, i + 1));
}

}  // namespace
}  // namespace shift::ops
