// Parking while a thread of the program builds a batch on the hot path: nothing waits for it but
// its own group. The thread may be waiting for the control thread.
#include "group/park.h"

#include <gtest/gtest.h>

#include "group/drain.h"
#include "group/test/batch.h"
#include "group/test/fake.h"

namespace shift::group {
namespace {

using Ids = std::vector<uint64_t>;

class Park : public ::testing::Test {
 protected:
  void SetUp() override {
    if (thread_slot_get() == nullptr) GTEST_SKIP() << "no membarrier(2) here";
  }
  FakeQp& on_default() { return World::fake(group_, kDefault); }
  // Fails the group in the middle of a batch.
  void fail_beside(OpenBatch& batch) {
    ASSERT_TRUE(batch.is_hot);
    ASSERT_TRUE(batch.lets_return([&] { fail(*group_); }));
    ASSERT_FALSE(batch_is_over(*group_));
    EXPECT_TRUE(on_default().in_error());
  }

  World world_;
  CompletionQueue* cq_ = world_.make_cq();
  Group* group_ = world_.make_group(cq_);
};

TEST_F(Park, ABatchHoldsUpOnlyItsOwnGroup) {
  Group* other = world_.make_group(cq_);
  OpenBatch batch(*group_);
  ASSERT_TRUE(batch.is_hot);
  ASSERT_TRUE(batch.lets_return([&] { park({{group_, other}}); }));
  EXPECT_FALSE(batch_is_over(*group_));
  EXPECT_TRUE(batch_is_over(*other));
  EXPECT_TRUE(fence({other})[0]);
  EXPECT_FALSE(on_default().in_error());
  EXPECT_TRUE(poll_all(cq_).empty()) << "polling works meanwhile";
}

// C1, C2: the path has been given the batch, and nothing after it.
TEST_F(Park, TheBatchIsPartOfWhatThePathWasGiven) {
  OpenBatch batch(*group_, [this] { post_send(*group_, 1, IBV_WR_SEND); });
  ASSERT_TRUE(batch.lets_return([&] { park({{group_}}); }));
  EXPECT_FALSE(group_->send.bias.is_quiet());
  batch.end([this] { post_send(*group_, 2, IBV_WR_SEND); });
  EXPECT_TRUE(batch_is_over(*group_));
  auto lock = lock_queue(group_->send);
  EXPECT_EQ(group_->send.route, Route::kParked);
  EXPECT_EQ(group_->send.posted, 2u);
}

// A drain begins when the batch is over; meanwhile the group stays on the hot path.
TEST_F(Park, ADrainLeavesAnOpenBatchAlone) {
  OpenBatch batch(*group_, [this] { post_send(*group_, 1, IBV_WR_SEND); });
  ASSERT_TRUE(batch.is_hot);
  ASSERT_TRUE(batch.lets_return([&] { EXPECT_FALSE(park_sends(*group_)); }));
  EXPECT_EQ(group_->send.route, Route::kOnDefault);
  EXPECT_EQ(group_->recv.route, Route::kOnDefault);
  EXPECT_FALSE(group_->life.path.off_default);
  EXPECT_EQ(cq_->slow_groups, 0);
  batch.end([] {});
  ASSERT_TRUE(park_sends(*group_));
  EXPECT_EQ(group_->send.route, Route::kParked);
  EXPECT_EQ(group_->recv.route, Route::kOnPath) << "the peer needs receives to drain";
  EXPECT_EQ(group_->send.posted, 1u);
  EXPECT_EQ(cq_->slow_groups, 1);
  EXPECT_EQ(group_->life.path.departures, 0u) << "the path is not left yet";
  EXPECT_EQ(unpark(*group_), 0);
  EXPECT_EQ(group_->send.route, Route::kOnDefault);
  EXPECT_EQ(cq_->slow_groups, 0);
}

TEST_F(Park, AGroupIsNotClosedTwice) {
  OpenBatch batch(*group_);
  for (int i = 0; i < 2; i++) ASSERT_TRUE(batch.lets_return([&] { park({{group_}}); }));
  batch.end();
  EXPECT_TRUE(batch_is_over(*group_));
  EXPECT_TRUE(batch_is_over(*group_));
  auto lock = lock_queue(group_->send);
  EXPECT_TRUE(group_->send.bias.is_quiet());
}

// ---- C6: a group that fails in the middle of a batch

TEST_F(Park, WhatCameBeforeABatchFailsAtOnceAndTheBatchLater) {
  OpenBatch batch(*group_, [this] {
    post_send(*group_, 1, IBV_WR_SEND);
    post_send(*group_, 2, IBV_WR_SEND);
    post_recv(*group_, 11);
  });
  ASSERT_NO_FATAL_FAILURE(fail_beside(batch));
  auto completions = poll_all(cq_);
  ASSERT_EQ(wr_ids(completions), (Ids{1, 2, 11}));
  EXPECT_EQ(completions[0].status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(completions[1].status, IBV_WC_WR_FLUSH_ERR);
  batch.end([this] { post_send(*group_, 3, IBV_WR_SEND); });
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_TRUE(batch_is_over(*group_));
  completions = poll_all(cq_);
  ASSERT_EQ(wr_ids(completions), (Ids{3}));
  EXPECT_EQ(completions[0].status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(Park, TheOriginalErrorIsTheBatchsIfNothingCameBefore) {
  OpenBatch batch(*group_);
  ASSERT_NO_FATAL_FAILURE(fail_beside(batch));
  EXPECT_TRUE(poll_all(cq_).empty());
  batch.end([this] {
    post_send(*group_, 1, IBV_WR_SEND);
    post_send(*group_, 2, IBV_WR_SEND);
  });
  EXPECT_TRUE(batch_is_over(*group_));
  const auto completions = poll_all(cq_);
  ASSERT_EQ(wr_ids(completions), (Ids{1, 2}));
  EXPECT_EQ(completions[0].status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(completions[1].status, IBV_WC_WR_FLUSH_ERR);
}

// C1: the NIC may complete a batch before its thread has counted it.
TEST_F(Park, ABatchThatHasSucceededGetsNoError) {
  ibv_send_wr wr{}, *bad;
  wr.wr_id = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  OpenBatch batch(*group_, [&] {
    ASSERT_EQ(group_->real[kDefault]->context->ops.post_send(group_->real[kDefault], &wr, &bad), 0);
    on_default().complete_send();
  });
  ASSERT_NO_FATAL_FAILURE(fail_beside(batch));
  batch.end([&] { group_->send.journal.add(wr); });
  EXPECT_TRUE(batch_is_over(*group_));
  const auto completions = poll_all(cq_);
  ASSERT_EQ(wr_ids(completions), (Ids{1}));
  EXPECT_EQ(completions[0].status, IBV_WC_SUCCESS);
}

// C1: after its own error the application gets the completions of the NIC.
TEST_F(Park, AfterTheApplicationsErrorTheNicFlushesTheBatch) {
  OpenBatch batch(*group_, [this] { post_send(*group_, 1, IBV_WR_SEND); });
  on_default().break_with(IBV_WC_REM_INV_REQ_ERR);
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_EQ(world_.believe(), 1u);
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{1}));
  ASSERT_NO_FATAL_FAILURE(fail_beside(batch));
  batch.end([this] { post_send(*group_, 2, IBV_WR_SEND); });
  EXPECT_TRUE(batch_is_over(*group_));
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{2}));
}

}  // namespace
}  // namespace shift::group
