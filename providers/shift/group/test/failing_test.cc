// Giving up: the application sees the completions that it would have seen without the layer (C6).
#include <gtest/gtest.h>

#include "group/test/fake.h"

namespace shift::group {
namespace {

using Ids = std::vector<uint64_t>;

class Failing : public ::testing::Test {
 protected:
  FakeQp& on_default() { return World::fake(group_, kDefault); }
  FakeQp& on_backup() { return World::fake(group_, kBackup); }
  void leave_default() { ASSERT_TRUE(fence({group_})[0]); }

  World world_;
  CompletionQueue* cq_ = world_.make_cq();
  Group* group_ = world_.make_group(cq_);
};

TEST_F(Failing, TheFirstRequestGetsTheOriginalErrorTheOthersAreFlushed) {
  for (uint64_t id = 1; id <= 4; id++) post_send(*group_, id, IBV_WR_SEND, id != 3);
  for (uint64_t id = 11; id <= 12; id++) post_recv(*group_, id);
  on_default().complete_send();
  on_default().complete_recv();
  on_default().break_with(IBV_WC_RESP_TIMEOUT_ERR);
  leave_default();
  park_send(*group_, 5, IBV_WR_SEND);
  fail(*group_);
  const auto completions = poll_all(cq_);
  // Unsignaled requests that are flushed are visible, as with the stock library.
  ASSERT_EQ(wr_ids(completions), (Ids{1, 11, 2, 3, 4, 5, 12}));
  EXPECT_EQ(completions[2].status, IBV_WC_RESP_TIMEOUT_ERR);
  EXPECT_EQ(completions[2].vendor_err, 0x42u);
  for (size_t i = 3; i < completions.size(); i++) {
    EXPECT_EQ(completions[i].status, IBV_WC_WR_FLUSH_ERR) << i;
  }
  for (const ibv_wc& wc : completions) EXPECT_EQ(wc.qp_num, group_->qpn());
}

TEST_F(Failing, AFaultWithoutAnErrorCompletionLooksLikeAnUnreachablePeer) {
  post_send(*group_, 1, IBV_WR_SEND);
  leave_default();  // for example after a port event: the layer has flushed the QP
  fail(*group_);
  const auto completions = poll_all(cq_);
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].status, IBV_WC_RETRY_EXC_ERR);
}

// The round gets as far as the backup, where receives wait, before the peer refuses to move.
TEST_F(Failing, FlushesOfTheNewPathDoNotHideTheError) {
  post_send(*group_, 1, IBV_WR_SEND);
  post_recv(*group_, 11);
  on_default().break_with(IBV_WC_REM_OP_ERR);
  leave_for(*group_, kBackup, kBackup);
  fail(*group_);
  const auto completions = poll_all(cq_);
  ASSERT_EQ(wr_ids(completions), (Ids{1, 11}));
  EXPECT_EQ(completions[0].status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(completions[0].vendor_err, 0x42u);
  EXPECT_EQ(completions[1].status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(Failing, WhatSucceededBeforeIsDeliveredFirst) {
  post_send(*group_, 1, IBV_WR_SEND);
  post_send(*group_, 2, IBV_WR_SEND);
  on_default().complete_send();
  fail(*group_);
  const auto completions = poll_all(cq_);
  ASSERT_EQ(wr_ids(completions), (Ids{1, 2}));
  EXPECT_EQ(completions[0].status, IBV_WC_SUCCESS);
  EXPECT_NE(completions[1].status, IBV_WC_SUCCESS);
}

// Nothing may be written to the application's memory once it has been given the error.
TEST_F(Failing, BothPathsAreShut) {
  leave_default();
  ASSERT_EQ(commit(*group_, kBackup, kBackup), Commit::kDone);
  fail(*group_);
  EXPECT_TRUE(on_default().in_error());
  EXPECT_TRUE(on_backup().in_error());
}

TEST_F(Failing, WhatTheNicsStillGiveIsNotDeliveredTwice) {
  post_send(*group_, 1, IBV_WR_SEND);
  on_default().flushes = false;
  fail(*group_);
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{1}));
  on_default().flushes = true;
  on_default().flush();
  EXPECT_TRUE(poll_all(cq_).empty());
}

TEST_F(Failing, AfterTheReplayOnlyWhatIsIncompleteFails) {
  for (uint64_t id = 1; id <= 4; id++) post_send(*group_, id, IBV_WR_SEND);
  on_default().complete_send();
  leave_default();
  ASSERT_EQ(commit(*group_, kBackup, kBackup), Commit::kDone);
  ASSERT_EQ(replay(*group_, 2).refusal, nullptr);
  on_backup().complete_send();
  on_backup().break_with(IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{1, 2, 3}));
  fail(*group_);
  const auto completions = poll_all(cq_);
  ASSERT_EQ(wr_ids(completions), (Ids{4}));
  EXPECT_EQ(completions[0].status, IBV_WC_RETRY_EXC_ERR);
}

// The peer may refuse between the fault and the fence.
TEST_F(Failing, BeforeTheFenceTheHotPathsAreBarredFirst) {
  if (thread_slot_get() == nullptr) GTEST_SKIP() << "no membarrier(2) here";
  EXPECT_TRUE(poll_all(cq_).empty());  // this thread becomes the owner of the CQ
  {
    std::lock_guard lock(group_->send.mutex);
    group_->send.bias.adopt(&group_->send);
  }
  post_send(*group_, 1, IBV_WR_SEND);
  fail(*group_);
  const bool poll_hot = cq_->bias.enter(tls_slot, cq_);
  Bias::leave(tls_slot);
  EXPECT_FALSE(poll_hot) << "the hot poll would never look at the synthetic errors";
  const bool post_hot = group_->send.bias.enter(tls_slot, &group_->send);
  Bias::leave(tls_slot);
  EXPECT_FALSE(post_hot) << "the hot post would go to a dead QP";
  EXPECT_EQ(cq_->slow_groups, 1) << "destroying the QP takes one off";
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{1}));
}

TEST_F(Failing, AfterTheFenceAGroupCountsOnce) {
  leave_default();
  fail(*group_);
  EXPECT_EQ(cq_->slow_groups, 1);
}

// ---- C1, when the application's own error and a fault of the path meet

TEST_F(Failing, WhatTheApplicationHasSeenPassIsNotGivenAgain) {
  for (uint64_t id = 1; id <= 3; id++) post_send(*group_, id, IBV_WR_SEND);
  for (uint64_t id = 11; id <= 12; id++) post_recv(*group_, id);
  on_default().break_with(IBV_WC_REM_INV_REQ_ERR);
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_EQ(world_.believe(), 1u);
  ibv_wc wc[2];
  ASSERT_EQ(poll_slow(*cq_, 2, wc), 2);
  EXPECT_EQ(wc[0].status, IBV_WC_REM_INV_REQ_ERR);
  park({{group_}});
  park_send(*group_, 4, IBV_WR_SEND);
  EXPECT_FALSE(fence({group_})[0]);
  fail(*group_);
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{3, 11, 12, 4}));
}

TEST_F(Failing, WhatWasHeldBackBeforeTheApplicationsErrorIsGivenWithIt) {
  CompletionQueue* recv_cq = world_.make_cq();
  Group* group = world_.make_group(cq_, recv_cq, {});
  for (uint64_t id = 11; id <= 12; id++) post_recv(*group, id);
  for (uint64_t id = 1; id <= 2; id++) post_send(*group, id, IBV_WR_SEND);
  World::fake(group, kDefault).break_with(IBV_WC_REM_INV_REQ_ERR);
  // The flushes of the receive queue are polled first and look like those of a broken path.
  EXPECT_TRUE(poll_all(recv_cq).empty());
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_EQ(world_.believe(), 1u);
  EXPECT_TRUE(poll_all(cq_).empty()) << "not all of it can be given as the NIC gave it";
  fail(*group);
  const auto sends = poll_all(cq_);
  EXPECT_EQ(wr_ids(sends), (Ids{1, 2}));
  EXPECT_EQ(sends[0].status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(wr_ids(poll_all(recv_cq)), (Ids{11, 12}));
}

// The peer may refuse, or a deadline pass, before the NIC has answered.
TEST_F(Failing, ErrorsThatAreKeptAreGivenOnce) {
  for (uint64_t id = 1; id <= 2; id++) post_send(*group_, id, IBV_WR_SEND);
  post_recv(*group_, 11);
  on_default().break_with(IBV_WC_LOC_PROT_ERR);
  EXPECT_TRUE(poll_all(cq_).empty());
  fail(*group_);
  EXPECT_EQ(world_.believe(), 1u);
  const auto completions = poll_all(cq_);
  EXPECT_EQ(wr_ids(completions), (Ids{1, 2, 11}));
  EXPECT_EQ(completions.front().status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(Failing, OnTheBackupTheApplicationsOwnErrorPassesThough) {
  post_send(*group_, 1, IBV_WR_SEND);
  on_default().break_with(IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(poll_all(cq_).empty());
  leave_default();
  ASSERT_EQ(commit(*group_, kBackup, kBackup), Commit::kDone);
  ASSERT_EQ(replay(*group_, 0).refusal, nullptr);
  on_backup().break_with(IBV_WC_REM_INV_REQ_ERR);
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_EQ(world_.believe(), 1u);
  const auto completions = poll_all(cq_);
  ASSERT_EQ(wr_ids(completions), (Ids{1}));
  EXPECT_EQ(completions[0].status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(Failing, AnErrorFoundWhileGivingUpIsNotGivenTwice) {
  post_send(*group_, 1, IBV_WR_SEND);
  post_send(*group_, 2, IBV_WR_SEND);
  on_default().break_with(IBV_WC_REM_ACCESS_ERR);
  fail(*group_);
  const auto completions = poll_all(cq_);
  ASSERT_EQ(wr_ids(completions), (Ids{1, 2}));
  EXPECT_EQ(completions[0].status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Failing, LaterRequestsAreFlushed) {
  fail(*group_);
  park_send(*group_, 7, IBV_WR_SEND);
  {
    std::lock_guard lock(group_->send.mutex);
    flush_send(*group_, group_->send.journal.head() - 1);
  }
  const auto completions = poll_all(cq_);
  ASSERT_EQ(wr_ids(completions), (Ids{7}));
  EXPECT_EQ(completions[0].status, IBV_WC_WR_FLUSH_ERR);
}

}  // namespace
}  // namespace shift::group
