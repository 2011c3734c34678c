// A path has broken, and the NIC's queues are read for what was posted: what cannot be read is not
// posted again, and the application gets each request back.
#include <gtest/gtest.h>

#include <vector>

#include "group/failing.h"
#include "group/member_qp.h"
#include "group/park.h"
#include "group/replay.h"
#include "group/test/fake.h"
#include "group/test/readable.h"

namespace shift::group {
namespace {

using Ids = std::vector<uint64_t>;

class Unreadable : public ::testing::Test {
 protected:
  Unreadable() {
    ReadableQueues::give_to(*group_);
    group_->send.renew(group_->cap, group_->sq_sig_all, true);
    group_->recv.renew(group_->cap, true);
    for (uint64_t id = 1; id <= 3; id++) post_send(*group_, id, IBV_WR_SEND);
    for (uint64_t id = 11; id <= 12; id++) post_recv(*group_, id);
  }
  FakeQp& backup() { return World::fake(group_, kBackup); }

  World world_;
  CompletionQueue* cq_ = world_.make_cq();
  Group* group_ = world_.make_group(cq_);
};

TEST_F(Unreadable, WhatIsReadIsPostedAgain) {
  leave_for(*group_, kBackup, kBackup);
  EXPECT_EQ(ReadableQueues::looks, 5);
  ASSERT_EQ(replay(*group_, 1).refusal, nullptr);
  EXPECT_EQ(posted_ids(backup(), *group_), (Ids{2, 3}));
  EXPECT_EQ(backup().recvs.size(), 2u);
}

// C1, C4: a request that is not known must not run.
TEST_F(Unreadable, RequestsAreRefused) {
  ReadableQueues::sends = Reading::kNothing;
  leave_for(*group_, kBackup, kBackup);
  EXPECT_STREQ(replay(*group_, 0).refusal, "what was posted cannot be read from the NIC's queue");
  EXPECT_EQ(posted_ids(backup(), *group_), Ids{});
}

TEST_F(Unreadable, ReceivesAreRefused) {
  ReadableQueues::receives = Reading::kNothing;
  ASSERT_TRUE(fence({group_})[0]);
  EXPECT_EQ(commit(*group_, kBackup, kBackup), Commit::kKeyMissing);
  EXPECT_TRUE(backup().recvs.empty());
}

// C1: also then each request completes, once and in order.
TEST_F(Unreadable, TheApplicationGetsEachRequestBack) {
  ReadableQueues::sends = ReadableQueues::receives = Reading::kNothing;
  ASSERT_TRUE(fence({group_})[0]);
  fail(*group_);
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{1, 2, 3, 11, 12}));
}

// Receives that come from a shared queue are in no journal of the group.
TEST_F(Unreadable, ASharedQueueLeavesNothingToRead) {
  World::Options options;
  options.srq = world_.make_srq(8);
  Group* group = world_.make_group(cq_, cq_, options);
  group->counters.done[1] = 3;
  park({&group, 1});
  ASSERT_EQ(commit(*group, kBackup, kBackup), Commit::kDone);
  EXPECT_EQ(group->recv.posted, group->recv.journal.head());
  EXPECT_FALSE(waits_for_registration(*group));
}

TEST_F(Unreadable, AResetOfTheDefaultIsTold) {
  (void)member_qp_to_state(*group_, kDefault, IBV_QPS_ERR);
  (void)member_qp_to_state(*group_, kBackup, IBV_QPS_RESET);
  EXPECT_EQ(ReadableQueues::resets, 0);
  ASSERT_EQ(member_qp_to_state(*group_, kDefault, IBV_QPS_RESET), 0);
  EXPECT_EQ(ReadableQueues::resets, 1);
}

}  // namespace
}  // namespace shift::group
