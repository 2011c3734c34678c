// Shared receive queues: which receive is on which member, and that each is consumed once.
#include "group/shared_queue.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include "group/member_qp.h"
#include "group/test/asleep.h"
#include "group/test/shared_receives.h"
#include "util/test/random.h"

namespace shift::group {
namespace {

// C10: a queue that serves QPs of other types, which are in no group.
TEST(SharedStock, ReceivesOfUnprotectedQpsComeBackByTheirNumbers) {
  World world;
  CompletionQueue* cq = world.make_cq();
  SharedQueue* srq = world.make_srq(8);
  ASSERT_TRUE(srq->claim(false));
  EXPECT_TRUE(srq->claim(false)) << "a second one";
  EXPECT_FALSE(srq->claim(true)) << "a protected one comes too late";
  ibv_sge sge{0x6000, 8, kLkey};
  ibv_recv_wr wr{77, nullptr, &sge, 1}, *bad;
  ASSERT_EQ(srq->post(&wr, &bad), 0);
  FakeSrq& real = FakeSrq::of(srq->members[kDefault].real);
  ASSERT_EQ(real.waiting.size(), 1u);
  ibv_wc wc{};
  wc.wr_id = real.waiting.front().wr_id;
  wc.opcode = IBV_WC_RECV;
  wc.qp_num = 0xdddd;
  World::fake(cq, kDefault).waiting.push_back(wc);
  wc.wr_id = 5;  // a completion of a QP that has its own receive queue
  World::fake(cq, kDefault).waiting.push_back(wc);
  EXPECT_EQ(wr_ids(poll_all(cq)), (std::vector<uint64_t>{77, 5}));
  EXPECT_EQ(srq->live, 0u);
}

TEST_F(Shared, AQueueOfProtectedQpsServesNoOthers) {
  EXPECT_TRUE(srq_->claim(true));
  EXPECT_FALSE(srq_->claim(false));
  srq_->users--;
}

TEST_F(Shared, ReceivesGoToTheDefaultAndComeBackByTheirNumbers) {
  ASSERT_EQ(post({7, 8, 7}), 0);
  EXPECT_EQ(on(kDefault), (Ids{7, 8, 7}));
  EXPECT_EQ(real(kDefault).waiting[0].sges.at(0).lkey, kLkey);
  receive(a_);
  receive(b_);
  receive(a_);
  const auto got = poll_all(cq_);
  EXPECT_EQ(wr_ids(got), (Ids{7, 8, 7}));
  EXPECT_EQ(got[1].qp_num, b_->qpn());
  EXPECT_EQ(a_->counters.done[1], 2u);
  EXPECT_EQ(srq_->live, 0u);
}

TEST_F(Shared, RefusesWhatTheNicWould) {
  EXPECT_EQ(post({1, 2}, 3), EINVAL);
  EXPECT_EQ(bad_id_, 1u);
  EXPECT_EQ(post({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), ENOMEM);
  EXPECT_EQ(bad_id_, 9u);
  EXPECT_EQ(on(kDefault).size(), 8u);
  receive(a_);
  EXPECT_EQ(post({9}), ENOMEM);  // refused until the completion is polled
  EXPECT_EQ(poll_all(cq_).size(), 1u);
  EXPECT_EQ(post({9}), 0);
}

TEST_F(Shared, TakesAsManyElementsAsItWasMadeFor) {
  EXPECT_EQ(post({1}, 2), 0);
  EXPECT_EQ(post({2}, 3), EINVAL);
  EXPECT_EQ(post({3}, -1), EINVAL);
  EXPECT_EQ(on(kDefault), (Ids{1}));
}

TEST_F(Shared, WhenAllHaveLeftTheReceivesFollowInOrder) {
  ASSERT_EQ(post({1, 2, 3, 4, 5}), 0);
  receive(a_);
  ASSERT_TRUE(leave({a_, b_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  EXPECT_EQ(on(kBackup), (Ids{2, 3, 4, 5}));
  EXPECT_EQ(real(kBackup).waiting[0].sges.at(0).lkey, kBackupLkey);
  ASSERT_EQ(go(b_, kBackup), Commit::kDone);
  ASSERT_EQ(post({6}), 0);
  for (Group* group : {b_, a_, b_, b_, a_}) receive(group);
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(srq_->members[kDefault].stale, 4u);
}

TEST_F(Shared, TheLastOneToLeaveBringsTheReceives) {
  ASSERT_EQ(post({1, 2, 3}), 0);
  ASSERT_TRUE(leave({a_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  EXPECT_EQ(on(kBackup), (Ids{}));
  EXPECT_EQ(on(kDefault), (Ids{1, 2, 3}));
  ASSERT_TRUE(leave({b_}));
  EXPECT_EQ(on(kBackup), (Ids{1, 2, 3}));
}

// C2: until the device has sent LAST_WQE_REACHED, another completion may come.
TEST_F(Shared, NothingIsProvenBeforeTheLastReceiveWasTaken) {
  ASSERT_EQ(post({1, 2}), 0);
  // The time is long enough for the send queue to be drained.
  EXPECT_FALSE(fence({a_}, std::chrono::milliseconds(12))[0]);
  EXPECT_TRUE(a_->life.markers.drained[0]);
  EXPECT_EQ(srq_->members[kDefault].groups, 2);
  EXPECT_EQ(std::ranges::count(World::fake(a_, kDefault).walk, IBV_QPS_RESET), 0)
      << "which would lose completions";
}

// Some providers leave in the QP's capabilities how many receives the application asked for in
// vain.
TEST_F(Shared, AQueuePairWithoutItsOwnReceivesGetsNoMarkerThere) {
  a_->cap.max_recv_wr = 8;
  ASSERT_EQ(post({1, 2}), 0);
  EXPECT_TRUE(leave({a_}));
}

TEST_F(Shared, AReceiveThatWasHalfTakenServesAgain) {
  ASSERT_EQ(post({1, 2, 3}), 0);
  World::fake(a_, kDefault).take_half();
  ASSERT_TRUE(leave({a_, b_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  EXPECT_EQ(on(kBackup), (Ids{1, 2, 3}));
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_EQ(a_->counters.done[1], 0u);
}

// Linux's soft-RoCE does not report LAST_WQE_REACHED.
TEST_F(Shared, OnSoftRoceTheQueuePairsAreStopped) {
  a_->context->members[kDefault].is_soft_roce = world_.nic(kDefault).is_soft_roce = true;
  ASSERT_EQ(post({1, 2, 3, 4}), 0);
  post_send(*a_, 20, IBV_WR_SEND);
  receive(a_);
  World::fake(b_, kDefault).take_half();
  FakeQp& qp = World::fake(a_, kDefault);
  ASSERT_TRUE(qp.complete_send());
  for (bool proven : fence({a_, b_})) EXPECT_TRUE(proven);
  // Before RESET the send marker has come out; otherwise completions of requests would be lost. A
  // fence that could not run for a while asks for ERR again.
  auto walk = qp.walk;
  walk.erase(std::unique(walk.begin(), walk.end()), walk.end());
  EXPECT_EQ(walk, (std::vector{IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_ERR}));
  EXPECT_TRUE(qp.pending_sends.empty());
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{1, 20}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  ASSERT_EQ(go(b_, kBackup), Commit::kDone);
  EXPECT_EQ(on(kBackup), (Ids{2, 3, 4})) << "with the one that was lost half taken";
  // There is one receive less to take out.
  EXPECT_EQ(real(kDefault).waiting.size(), 2u);
  EXPECT_TRUE(srq_->cleanse(kDefault));
  EXPECT_TRUE(real(kDefault).waiting.empty());
  EXPECT_EQ(srq_->members[kDefault].stale, 0u);
}

// C2: RESET drops what is not flushed.
TEST_F(Shared, OnSoftRoceTheSendQueueIsDrainedFirst) {
  a_->context->members[kDefault].is_soft_roce = world_.nic(kDefault).is_soft_roce = true;
  post_send(*a_, 20, IBV_WR_SEND);
  FakeQp& qp = World::fake(a_, kDefault);
  const auto resets = [&] { return std::ranges::count(qp.walk, IBV_QPS_RESET); };
  qp.flushes = false;
  Group* const self = a_;
  park({&self, 1});
  Fence shut({a_}, kPatience);
  const auto step = [&] {
    tasks_.run();
    return shut.step(Clock::now());
  };
  for (int i = 0; i < 3; i++) EXPECT_FALSE(step());
  EXPECT_EQ(resets(), 0);
  qp.flushes = true;
  qp.flush();
  while (!step()) {
  }
  EXPECT_EQ(resets(), 1);
  EXPECT_EQ(shut.entries()[0].result, Fence::Result::kProven);
}

// C7: the receive that soft-RoCE has lost with one QP is found when no QP takes receives there.
TEST_F(Shared, OnSoftRoceAllLeaveWithTheFirst) {
  a_->context->members[kDefault].is_soft_roce = world_.nic(kDefault).is_soft_roce = true;
  ASSERT_EQ(post({1, 2}), 0);
  World::fake(a_, kDefault).take_half();
  ASSERT_TRUE(fence({a_})[0]);
  EXPECT_EQ(world_.sink.stuck, (std::vector{kDefault}));
  ASSERT_TRUE(fence({b_})[0]);
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  EXPECT_EQ(on(kBackup), (Ids{1, 2}));
}

TEST_F(Shared, AReceiveThatTheApplicationGotWrongIsConsumed) {
  ASSERT_EQ(post({1, 2}), 0);
  FakeQp& qp = World::fake(a_, kDefault);
  ibv_wc wc{};
  wc.wr_id = real(kDefault).waiting.front().wr_id;
  wc.status = IBV_WC_LOC_LEN_ERR;
  wc.qp_num = qp.qp.qp_num;
  real(kDefault).waiting.pop_front();
  World::fake(cq_, kDefault).waiting.push_back(wc);
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_EQ(srq_->live, 2u);
  EXPECT_EQ(world_.believe(), 1u);
  const auto got = poll_all(cq_);
  ASSERT_EQ(wr_ids(got), (Ids{1}));
  EXPECT_EQ(got[0].status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(srq_->live, 1u);
}

// C2: the NIC is not believed, and the receive serves the next message.
TEST_F(Shared, AReceiveWhoseErrorIsNotBelievedServesAgain) {
  ASSERT_EQ(post({1, 2}), 0);
  ibv_wc wc{};
  wc.wr_id = real(kDefault).waiting.front().wr_id;
  wc.status = IBV_WC_LOC_PROT_ERR;
  wc.qp_num = World::fake(a_, kDefault).qp.qp_num;
  real(kDefault).waiting.pop_front();
  World::fake(cq_, kDefault).waiting.push_back(wc);
  EXPECT_TRUE(poll_all(cq_).empty());
  ASSERT_TRUE(leave({a_, b_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  EXPECT_EQ(on(kBackup), (Ids{1, 2}));
  EXPECT_TRUE(poll_all(cq_).empty());
}

// C2: the receive is not consumed when its completion is held back, since it is never delivered
// then.
TEST_F(Shared, AReceiveThatWentWrongBehindAFaultServesAgain) {
  ASSERT_EQ(post({1, 2}), 0);
  FakeQp& qp = World::fake(a_, kDefault);
  post_send(*a_, 9, IBV_WR_SEND);
  qp.break_with(IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(poll_all(cq_).empty());
  ASSERT_TRUE(a_->life.errors.members[kDefault].fault_reported);
  ibv_wc wc{};
  wc.wr_id = real(kDefault).waiting.front().wr_id;
  wc.status = IBV_WC_LOC_LEN_ERR;
  wc.qp_num = qp.qp.qp_num;
  real(kDefault).waiting.pop_front();
  World::fake(cq_, kDefault).waiting.push_back(wc);
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_EQ(srq_->live, 2u);
  fail(*a_);
  a_->life.control.state = fsm::State::kFailed;
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{9}));
  receives_last_taken(*a_, kDefault);
  ASSERT_TRUE(leave({b_}));
  ASSERT_EQ(go(b_, kBackup), Commit::kDone);
  EXPECT_EQ(on(kBackup), (Ids{1, 2}));
}

TEST_F(Shared, NewReceivesGoWhereThereAreFewest) {
  ASSERT_EQ(post({1, 2}), 0);
  ASSERT_TRUE(leave({a_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  ASSERT_EQ(post({3, 4, 5, 6}), 0);
  EXPECT_EQ(on(kBackup), (Ids{3, 4, 6}));
  EXPECT_EQ(on(kDefault), (Ids{1, 2, 5}));
}

TEST_F(Shared, ADeadNicsReceivesMoveAtOnce) {
  ASSERT_EQ(post({1, 2, 3}), 0);
  world_.context.members[kDefault].dead = true;
  ASSERT_TRUE(fence({a_})[0]);
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  ASSERT_TRUE(fence({b_})[0]);
  EXPECT_EQ(on(kBackup), (Ids{1, 2, 3}));
  EXPECT_EQ(srq_->members[kDefault].stale, 0u);
  EXPECT_FALSE(srq_->cleanse(kDefault) && receives_join(*b_, kDefault) == Join::kDone);
}

// Its QP may complete a receive until the device has sent LAST_WQE_REACHED.
TEST_F(Shared, AFailedGroupLeavesWithItsLastReceive) {
  ASSERT_EQ(post({1, 2}), 0);
  ASSERT_TRUE(leave({b_}));
  ASSERT_EQ(go(b_, kBackup), Commit::kDone);
  fail(*a_);
  a_->life.control.state = fsm::State::kFailed;
  EXPECT_EQ(on(kBackup), (Ids{}));
  receives_last_taken(*a_, kDefault);
  EXPECT_EQ(on(kBackup), (Ids{1, 2}));
}

TEST_F(Shared, AGroupLeavesWithItsLastReceiveOnlyWhenItIsOver) {
  ASSERT_EQ(post({1, 2}), 0);
  ASSERT_TRUE(leave({b_}));
  ASSERT_EQ(go(b_, kBackup), Commit::kDone);
  a_->life.control.state = fsm::State::kActive;
  receives_last_taken(*a_, kDefault);
  EXPECT_EQ(on(kBackup), (Ids{}));
  a_->life.control.state = fsm::State::kClosed;
  receives_last_taken(*a_, kDefault);
  EXPECT_EQ(on(kBackup), (Ids{1, 2}));
}

TEST_F(Shared, AMissingKeyFailsTheCommit) {
  world_.make_region(0x30, 0x40, MemoryRegion::Twin::kFailed);
  ibv_sge sge{0x6000, 8, 0x30};
  ibv_recv_wr wr{1, nullptr, &sge, 1}, *bad;
  ASSERT_EQ(srq_->post(&wr, &bad), 0);
  ASSERT_TRUE(leave({a_, b_}));
  EXPECT_EQ(go(a_, kBackup), Commit::kKeyMissing);
}

// C6: a QP with its own receive queue refuses such a receive, too, since the NIC gets it at once.
TEST_F(Shared, AMissingKeyRefusesTheReceive) {
  world_.make_region(0x30, 0x40, MemoryRegion::Twin::kFailed);
  ASSERT_TRUE(leave({a_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  EXPECT_EQ(post({1, 2}, 1, 0x30), EINVAL);
  EXPECT_EQ(bad_id_, 1u);
  EXPECT_EQ(srq_->live, 0u);
  ASSERT_EQ(post({3, 4}), 0);
  EXPECT_EQ(on(kBackup), (Ids{4}));
  EXPECT_TRUE(world_.sink.refused.empty());
}

TEST_F(Shared, AFullQueueRefusesWhateverTheKey) {
  world_.make_region(0x30, 0x40, MemoryRegion::Twin::kFailed);
  ASSERT_TRUE(leave({a_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  ASSERT_EQ(post({1, 2, 3, 4, 5, 6, 7, 8}), 0);
  EXPECT_EQ(post({9}, 1, 0x30), ENOMEM);
}

// Only the members that traffic is on must be able to take it.
TEST_F(Shared, AKeyThatIsMissingElsewhereRefusesNothing) {
  MemoryRegion* region = world_.make_region(0x30, 0x40);
  region->members[kThird].twin = MemoryRegion::Twin::kFailed;
  ASSERT_TRUE(leave({a_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  EXPECT_EQ(post({1}, 1, 0x30), 0);
  region->members[kThird].twin = MemoryRegion::Twin::kReady;
  region->members[kBackup].twin = MemoryRegion::Twin::kFailed;
  EXPECT_EQ(post({2}, 1, 0x30), EINVAL);
}

// C9: the NIC's own error, and the request that it names.
TEST_F(Shared, OnTheDefaultTheNicsErrorIsTheApplications) {
  ASSERT_EQ(post({1}), 0);
  real(kDefault).post_error = EIO;
  EXPECT_EQ(post({2, 3}), EIO);
  EXPECT_EQ(bad_id_, 2u);
  EXPECT_EQ(srq_->live, 1u);
  real(kDefault).post_error = 0;
  ASSERT_EQ(post({4}), 0);
  EXPECT_EQ(on(kDefault), (Ids{1, 4}));
}

// The receives after it cannot be posted either.
TEST_F(Shared, AMissingKeyFailsWhoCouldHaveHadTheReceive) {
  world_.make_region(0x30, 0x40, MemoryRegion::Twin::kFailed);
  ASSERT_EQ(post({1}, 1, 0x30), 0);
  ASSERT_EQ(post({2, 3}), 0);
  ASSERT_TRUE(leave({a_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  EXPECT_TRUE(world_.sink.refused.empty());
  recall();
  EXPECT_EQ(world_.sink.refused, std::vector{kBackup});
  ASSERT_TRUE(leave({b_}));
  EXPECT_EQ(world_.sink.refused, (std::vector{kBackup, kBackup}));
  EXPECT_TRUE(on(kBackup).empty());
}

TEST_F(Shared, ANicThatTakesNoReceivesIsLeft) {
  ASSERT_EQ(post({1, 2}), 0);
  ASSERT_TRUE(leave({a_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  real(kBackup).post_error = EIO;
  ASSERT_TRUE(leave({b_}));
  EXPECT_EQ(world_.sink.stuck, std::vector{kBackup});
  EXPECT_EQ(go(b_, kBackup), Commit::kUnusable);
  ASSERT_TRUE(leave({a_}));
  ASSERT_EQ(go(a_, kThird), Commit::kDone);
  EXPECT_EQ(on(kThird), (Ids{1, 2}));
}

// A command thread registers the region, and wants the queue for other work, so no thread may hold
// the queue while it waits.
class SharedRegistration : public Shared {
 protected:
  // A call that waited for the region would not return before the region is known to be registered.
  template <typename Call>
  void expect_no_wait(Call call) {
    std::atomic<pid_t> thread{0};
    std::atomic<bool> done{false};
    std::thread caller([&] {
      thread = gettid();
      call();
      done = true;
      while (!seen_) sched_yield();
    });
    while (!done && (thread == 0 || !is_asleep(thread))) sched_yield();
    EXPECT_TRUE(done);
    is_known(MemoryRegion::Twin::kReady);
    seen_ = true;
    caller.join();
    seen_ = false;
  }
  void is_known(MemoryRegion::Twin twin) {
    std::lock_guard lock(world_.context.mutex);
    region_->twins_set(twin);
  }

  static constexpr uint32_t kLate = 0x30;
  MemoryRegion* region_ = world_.make_region(kLate, 0x40, MemoryRegion::Twin::kQueued);
  std::atomic<bool> seen_{false};
};

TEST_F(SharedRegistration, HoldsUpReceivesAndNobodyElse) {
  ASSERT_TRUE(leave({a_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  ASSERT_EQ(post({1, 2}), 0);
  ASSERT_EQ(on(kDefault), (Ids{1}));
  ASSERT_EQ(on(kBackup), (Ids{2}));
  ASSERT_EQ(post({3}), 0);
  const int before = world_.sink.receives_wanted_calls;
  expect_no_wait([&] { EXPECT_EQ(post({4}, 1, kLate), 0); });
  EXPECT_EQ(world_.sink.receives_wanted_calls, before + 1);
  EXPECT_EQ(on(kBackup), (Ids{2}));
  recall();
  EXPECT_EQ(on(kBackup), (Ids{2, 4}));
}

// A recall that runs before the region is registered asks to run again.
TEST_F(SharedRegistration, IsAskedForAgain) {
  ASSERT_TRUE(leave({a_, b_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  ASSERT_EQ(go(b_, kBackup), Commit::kDone);
  ASSERT_EQ(post({1, 2}, 1, kLate), 0);
  EXPECT_EQ(world_.sink.receives_wanted_calls, 1);
  recall();
  EXPECT_EQ(world_.sink.receives_wanted_calls, 2);
  EXPECT_TRUE(on(kBackup).empty());
  is_known(MemoryRegion::Twin::kReady);
  recall();
  EXPECT_EQ(on(kBackup), (Ids{1, 2}));
  EXPECT_EQ(world_.sink.receives_wanted_calls, 2);
}

TEST_F(SharedRegistration, HoldsUpNoRound) {
  ASSERT_EQ(post({1}), 0);
  ASSERT_EQ(post({2}, 1, kLate), 0);
  ASSERT_TRUE(leave({a_, b_}));
  expect_no_wait([&] { EXPECT_EQ(go(a_, kBackup), Commit::kDone); });
  EXPECT_EQ(on(kBackup), (Ids{1}));
  EXPECT_EQ(world_.sink.receives_wanted_calls, 1);
  recall();
  EXPECT_EQ(on(kBackup), (Ids{1, 2}));
}

TEST_F(Shared, TheLimitMovesAlong) {
  ASSERT_EQ(post({1, 2, 3}), 0);
  ASSERT_EQ(srq_->limit_set(2), 0);
  EXPECT_EQ(real(kDefault).limit, 2u);
  EXPECT_EQ(real(kBackup).limit, 0u);
  ASSERT_TRUE(leave({a_, b_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  tasks_.run();
  EXPECT_EQ(real(kBackup).limit, 2u);
  ASSERT_EQ(srq_->limit_set(1), 0);
  tasks_.run();
  EXPECT_EQ(real(kBackup).limit, 1u);
  EXPECT_EQ(real(kDefault).limit, 2u) << "nobody is there";
}

// A NIC that hangs holds up its own command thread alone.
TEST_F(Shared, TheLimitIsSetWhileAFurtherNicHangs) {
  static ibv_srq* hanging;
  static std::atomic<bool> hangs, goes_on;
  hanging = srq_->members[kBackup].real;
  hangs = goes_on = false;
  ASSERT_EQ(srq_->limit_set(2), 0);
  tasks_.run();
  ASSERT_TRUE(leave({a_}));
  ASSERT_EQ(go(a_, kBackup), Commit::kDone);
  StockVerbs table = *stock;
  table.modify_srq = [](ibv_srq* srq, ibv_srq_attr* attr, int mask) {
    if (srq == hanging) hangs = true;
    while (srq == hanging && !goes_on) sched_yield();
    return fake_stock()->modify_srq(srq, attr, mask);
  };
  const StockVerbs* const before = std::exchange(stock, &table);
  std::thread backups([&] { srq_->limit_renew(kBackup); });
  while (!hangs) sched_yield();
  EXPECT_EQ(srq_->limit_set(1), 0);
  srq_->limit_renew(kDefault);
  EXPECT_EQ(real(kDefault).limit, 1u);
  goes_on = true;
  backups.join();
  EXPECT_EQ(real(kBackup).limit, 2u);
  tasks_.run();
  EXPECT_EQ(real(kBackup).limit, 1u);
  stock = before;
}

// The program does not wait for a default NIC that is late, which learns of the limit when it
// answers.
TEST_F(Shared, ALateDefaultLearnsOfTheLimitWhenItAnswers) {
  world_.context.members[kBackup].nic = 1;
  world_.context.members[kThird].nic = 2;
  commands_.late.insert(0);
  ASSERT_EQ(srq_->limit_set(2), 0);
  EXPECT_EQ(real(kDefault).limit, 0u);
  ASSERT_EQ(srq_->limit_set(1), 0);
  commands_.answer(0);
  EXPECT_EQ(real(kDefault).limit, 1u) << "the last one counts";
}

// Any groups move to any members in any order: each receive is consumed once, and none is lost.
TEST_F(Shared, EachReceiveIsConsumedOnceThroughAnyMoves) {
  Random random;
  std::vector<Group*> groups{a_, b_, group_make()};
  std::vector<int> delivered(1, 1);
  auto drain = [&] {
    for (const ibv_wc& wc : poll_all(cq_)) {
      ASSERT_LT(wc.wr_id, delivered.size());
      delivered[wc.wr_id]++;
    }
  };
  auto move = [&](Group* group) {
    if (random.below(2) == 0 && !World::fake(group, group->life.path.member).srq->waiting.empty()) {
      World::fake(group, group->life.path.member).take_half();
    }
    ASSERT_TRUE(leave({group}));
    const int to = static_cast<int>(random.below(3));
    ASSERT_TRUE(srq_->cleanse(to));
    FakeQp& qp = World::fake(group, to);
    qp.qp.state = IBV_QPS_RTS;
    ASSERT_EQ(go(group, to), Commit::kDone);
  };
  for (int step = 0; step < 3000; step++) {
    Group* group = groups[random.below(3)];
    switch (random.below(6)) {
      case 0:
        ASSERT_NO_FATAL_FAILURE(move(group));
        break;
      case 1:
        if (post({delivered.size()}) == 0) delivered.push_back(0);
        break;
      case 2:
        if (world_.sink.receives_wanted_calls > 0) recall();
        break;
      case 3:
        drain();
        break;
      default:
        (void)World::fake(group, group->life.path.member).complete_recv();
        break;
    }
    uint32_t posted = 0;
    for (int m = 0; m < 3; m++) posted += srq_->members[m].posted;
    ASSERT_EQ(posted + srq_->waiting.size(), srq_->live);
    ASSERT_LE(srq_->live, 8u);
  }
  // A group that is alone can get all receives that are left.
  ASSERT_TRUE(leave(groups));
  ASSERT_TRUE(srq_->cleanse(kThird));
  World::fake(a_, kThird).qp.state = IBV_QPS_RTS;
  ASSERT_EQ(go(a_, kThird), Commit::kDone);
  while (World::fake(a_, kThird).complete_recv()) {
  }
  drain();
  for (size_t id = 1; id < delivered.size(); id++) ASSERT_EQ(delivered[id], 1) << id;
}

}  // namespace
}  // namespace shift::group
