// Receives that are taken back from a member's shared queue: those that another member needs, and
// stale ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "group/fence.h"
#include "group/member_qp.h"
#include "group/park.h"
#include "group/stock.h"
#include "group/test/shared_receives.h"

namespace shift::group {
namespace {

// C7: the other groups keep the NIC, and half of its receives are recalled by empty messages.
TEST_F(Shared, WhenSomeLeaveReceivesAreRecalled) {
  ASSERT_EQ(post({1, 2, 3, 4, 5, 6}), 0);
  ASSERT_TRUE(leave({a_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  EXPECT_EQ(world_.sink.receives_wanted_calls, 1);
  recall();
  EXPECT_EQ(on(kBackup), (Ids{1, 2, 3}));
  EXPECT_EQ(on(kDefault), (Ids{4, 5, 6}));
  EXPECT_EQ(srq_->members[kDefault].stale, 0u);
  receive(a_);
  receive(b_);
  EXPECT_EQ(srq_->live, 6u);
  auto ids = wr_ids(poll_all(cq_));
  std::ranges::sort(ids);
  EXPECT_EQ(ids, (Ids{1, 4}));
  EXPECT_EQ(b_->counters.done[1], 1u);
}

// Its messages have all arrived, so the next recall need not connect again.
TEST_F(Shared, ARecallThatGotAllStaysConnected) {
  ASSERT_EQ(post({1, 2, 3, 4}), 0);
  ASSERT_TRUE(leave({a_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  recall();
  ASSERT_EQ(on(kBackup), (Ids{1, 2}));
  ASSERT_EQ(world_.context.own_qps.size(), 2u);
  for (const ibv_qp* qp : world_.context.own_qps) EXPECT_EQ(qp->state, IBV_QPS_RTS);
}

// A command thread makes the QPs for this, and must not call a program's allocators.
TEST_F(Shared, ReceivesAreRecalledPastAParentDomain) {
  static std::vector<ibv_pd*> seen;
  seen.clear();
  ibv_pd parent{};
  parent.context = world_.nic(kDefault).context();
  ProtectionDomain domain{};
  domain.base = &world_.pd;
  domain.real = world_.pd.real;
  domain.real[kDefault] = &parent;
  srq_->pd = &domain;
  StockVerbs table = *stock;
  table.create_qp = [](ibv_pd* pd, ibv_qp_init_attr* init) {
    seen.push_back(pd);
    return fake_stock()->create_qp(pd, init);
  };
  const StockVerbs* const before = std::exchange(stock, &table);
  ASSERT_EQ(post({1, 2, 3, 4}), 0);
  ASSERT_TRUE(leave({a_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  recall();
  EXPECT_EQ(on(kBackup), (Ids{1, 2}));
  EXPECT_EQ(seen, (std::vector{world_.pd.real[kDefault], world_.pd.real[kDefault]}));
  stock = before;
  srq_->pd = &world_.pd;
}

// C7: an idle QP does not notice that its NIC is broken. The receives there must not stay with it.
TEST_F(Shared, WhatCannotBeRecalledIsSaid) {
  ASSERT_EQ(post({1, 2, 3, 4}), 0);
  ASSERT_TRUE(leave({a_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  world_.nic(kDefault).loops = false;
  recall();
  EXPECT_EQ(world_.sink.stuck, std::vector<int>{kDefault});
  EXPECT_TRUE(on(kBackup).empty());
  ASSERT_TRUE(leave({b_}));
  ASSERT_EQ(go(b_, kBackup), Commit::kDone);
  EXPECT_EQ(on(kBackup), (Ids{1, 2, 3, 4}));
}

// C7: each attempt takes long on a NIC that carries nothing, and fences need the same thread.
TEST_F(Shared, RecallsDoNotPileUp) {
  ASSERT_EQ(post({1, 2, 3, 4}), 0);
  ASSERT_TRUE(leave({a_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  world_.nic(kDefault).loops = false;
  for (int i = 0; i < 5; i++) srq_->recall_some(kBackup);
  tasks_.run();
  EXPECT_EQ(world_.sink.stuck, std::vector<int>{kDefault});
}

// Their receives become free anyway, and the NIC that they leave may carry nothing.
TEST_F(Shared, NothingIsRecalledFromGroupsThatLeave) {
  ASSERT_EQ(post({1, 2, 3, 4}), 0);
  ASSERT_TRUE(leave({a_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  receives_leave_begin(*b_);
  recall();
  EXPECT_TRUE(on(kBackup).empty());
  receives_leave_cancel(*b_);
  recall();
  EXPECT_EQ(on(kBackup), (Ids{1, 2}));
}

// An application's thread may end the group while the control thread begins to shut its path. A
// count that is left over would keep recalls away for good.
TEST_F(Shared, AGroupThatHasLeftIsNotAboutTo) {
  receives_leave_begin(*b_);
  receives_leave_begin(*b_);
  EXPECT_EQ(srq_->members[kDefault].leaving, 1);
  receives_leave(*b_);
  EXPECT_EQ(srq_->members[kDefault].leaving, 0);
  receives_leave_begin(*b_);
  receives_leave_cancel(*b_);
  receives_leave(*b_);
  EXPECT_EQ(srq_->members[kDefault].leaving, 0);
  EXPECT_EQ(srq_->members[kDefault].groups, 1);
}

// It may stay on the queue for long, where a NIC does not report the last receive.
TEST_F(Shared, AGroupThatFailsInItsFenceIsNotAboutToLeave) {
  park({{b_}});
  Fence shut({b_}, std::chrono::milliseconds(10));
  EXPECT_EQ(srq_->members[kDefault].leaving, 1);
  shut.forget(b_);
  EXPECT_EQ(srq_->members[kDefault].leaving, 0);
  EXPECT_EQ(srq_->members[kDefault].groups, 2);
  tasks_.run();
}

// A fence that the NIC was in the middle of a recall for need not wait until that is late.
TEST_F(Shared, ARecallEndsWhenTheGroupsLeave) {
  ASSERT_EQ(post({1, 2, 3, 4}), 0);
  ASSERT_TRUE(leave({a_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  srq_->recall_some(kBackup);  // its task waits
  receives_leave_begin(*b_);
  tasks_.run();
  EXPECT_TRUE(on(kBackup).empty());
  ASSERT_TRUE(leave({b_}));
  ASSERT_EQ(go(b_, kBackup), Commit::kDone);
  EXPECT_EQ(on(kBackup), (Ids{1, 2, 3, 4}));
}

TEST_F(Shared, AMemberThatRunsDryAsksAgain) {
  ASSERT_EQ(post({1, 2, 3, 4, 5, 6, 7, 8}), 0);
  ASSERT_TRUE(leave({a_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  // Does all recalls that were asked for meanwhile.
  for (int calls = 0; calls < world_.sink.receives_wanted_calls; calls++) recall();
  const int before = world_.sink.receives_wanted_calls;
  for (int i = 0; i < 4; i++) receive(a_);
  EXPECT_EQ(poll_all(cq_).size(), 4u);
  EXPECT_EQ(world_.sink.receives_wanted_calls, before + 1);
  recall();
  EXPECT_EQ(on(kBackup).size(), 2u);
  EXPECT_EQ(on(kDefault).size(), 2u);
}

// Nobody can tell which group a message waits for.
TEST_F(Shared, ALastReceiveTakesTurns) {
  ASSERT_EQ(post({1}), 0);
  ASSERT_TRUE(leave({a_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  EXPECT_EQ(world_.sink.receives_wanted_calls, 0);
  EXPECT_EQ(world_.sink.receives_scarce_calls, 1);
  recall();
  EXPECT_EQ(on(kDefault), (Ids{1}));
  for (const int next : {kBackup, kDefault, kBackup}) {
    EXPECT_EQ(srq_->take_turn(), 0u);
    for (int i = 0; i < 2; i++) recall();
    EXPECT_EQ(on(next), (Ids{1}));
    EXPECT_EQ(on(kBackup).size() + on(kDefault).size(), 1u);
  }
  EXPECT_EQ(world_.sink.receives_scarce_calls, 1);
  receive(a_);
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{1}));
  ASSERT_EQ(post({2}), 0);
  EXPECT_EQ(on(kBackup), (Ids{2})) << "the next one goes where the last one was used";
  EXPECT_EQ(srq_->take_turn(), 1u);
  for (int i = 0; i < 2; i++) recall();
  EXPECT_EQ(on(kDefault), (Ids{2}));
  ASSERT_EQ(post({3}), 0);
  EXPECT_EQ(on(kBackup), (Ids{3}));
  EXPECT_EQ(srq_->take_turn(), std::nullopt);
}

TEST_F(Shared, OneOfTwoReceivesMoves) {
  ASSERT_EQ(post({1, 2}), 0);
  ASSERT_TRUE(leave({a_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  EXPECT_EQ(world_.sink.receives_wanted_calls, 1);
  recall();
  EXPECT_EQ(on(kBackup), (Ids{1}));
  EXPECT_EQ(on(kDefault), (Ids{2}));
}

// C2: a NIC must not write into memory that the application has got back.
TEST_F(Shared, StaleReceivesAreTakenOutBeforeTheWayBack) {
  ASSERT_EQ(post({1, 2, 3, 4}), 0);
  ASSERT_TRUE(leave({a_, b_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  ASSERT_EQ(go(b_, kBackup), Commit::kDone);
  receive(a_);
  ASSERT_EQ(wr_ids(poll_all(cq_)), (Ids{1}));
  ASSERT_TRUE(leave({a_, b_}));
  EXPECT_EQ(go(a_, kDefault), Commit::kUnusable);
  EXPECT_TRUE(srq_->cleanse(kDefault));
  EXPECT_TRUE(real(kDefault).waiting.empty());
  World::fake(a_, kDefault).qp.state = IBV_QPS_RTS;  // as if it were connected again
  ASSERT_EQ(go(a_, kDefault), Commit::kDone);
  EXPECT_EQ(on(kDefault), (Ids{2, 3, 4}));
  EXPECT_EQ(srq_->members[kBackup].stale, 3u);
  receive(a_);
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{2}));
}

TEST_F(Shared, AMemberThatCannotBeCleansedIsNotConnected) {
  ASSERT_EQ(post({1, 2}), 0);
  ASSERT_TRUE(leave({a_, b_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  world_.nic(kDefault).refuses = true;
  EXPECT_FALSE(srq_->cleanse(kDefault));
  EXPECT_EQ(member_qp_connect(*a_, kDefault, {}, {}), EAGAIN);
  EXPECT_EQ(srq_->members[kDefault].stale, 2u);
}

// A completion can be lost with the recall's own connection; then there are fewer receives than
// stale slots.
TEST_F(Shared, CleansingEndsWhenTheQueueIsFoundEmpty) {
  ASSERT_EQ(post({1, 2, 3}), 0);
  ASSERT_TRUE(leave({a_, b_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  real(kDefault).waiting.pop_back();
  EXPECT_TRUE(srq_->cleanse(kDefault));
  EXPECT_EQ(srq_->members[kDefault].stale, 0u);
  EXPECT_EQ(srq_->free.size() + srq_->live, srq_->slot_count);
}

}  // namespace
}  // namespace shift::group
