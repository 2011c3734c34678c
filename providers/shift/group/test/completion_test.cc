// What becomes of a completion while a fault is handled: it is counted, delivered, held back or
// dropped.
#include "group/completion.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "group/completion_events.h"
#include "group/errors.h"
#include "group/test/asleep.h"
#include "group/test/fake.h"

namespace shift::group {
namespace {

using Ids = std::vector<uint64_t>;

class Completion : public ::testing::Test {
 protected:
  FakeQp& on_default() { return World::fake(group_, kDefault); }
  FakeQp& on_backup() { return World::fake(group_, kBackup); }

  World world_;
  CompletionQueue* cq_ = world_.make_cq();
  Group* group_ = world_.make_group(cq_);
};

TEST(PathError, IsWhatABrokenPathCausesAndNothingElse) {
  for (int status = IBV_WC_SUCCESS; status <= IBV_WC_TM_RNDV_INCOMPLETE; status++) {
    const bool expected = status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_RETRY_EXC_ERR ||
                          status == IBV_WC_FATAL_ERR || status == IBV_WC_RESP_TIMEOUT_ERR;
    EXPECT_EQ(is_path_error(static_cast<ibv_wc_status>(status)), expected) << status;
  }
}

TEST_F(Completion, SuccessesAreCountedByKindAndDeliveredInOrder) {
  for (uint64_t id = 1; id <= 3; id++) post_send(*group_, id, IBV_WR_SEND);
  post_recv(*group_, 10);
  on_default().complete_send();
  on_default().complete_recv();
  on_default().complete_send();
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{1, 10, 2}));
  EXPECT_EQ(group_->counters.done[0], 2u);
  EXPECT_EQ(group_->counters.done[1], 1u);
  EXPECT_TRUE(world_.sink.faults.empty());
}

TEST_F(Completion, APathErrorIsHeldBackAndReported) {
  for (uint64_t id = 1; id <= 3; id++) post_send(*group_, id, IBV_WR_SEND);
  on_default().complete_send();
  on_default().break_with(IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{1}));
  EXPECT_EQ(group_->counters.done[0], 1u);
  EXPECT_EQ(group_->life.errors.original.status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(group_->life.errors.original.vendor_err, 0x42u);
  ASSERT_EQ(world_.sink.faults.size(), 1u) << "once, however many requests it flushes";
  EXPECT_EQ(world_.sink.faults[0].event, fsm::Event::kPathFault);
  EXPECT_EQ(world_.sink.faults[0].group, group_);
}

// rxe gives the first status when its link or address is gone; a request gets the others at a peer
// whose NIC is going.
class Doubtful : public Completion, public ::testing::WithParamInterface<ibv_wc_status> {};
INSTANTIATE_TEST_SUITE_P(Statuses, Doubtful,
                         ::testing::Values(IBV_WC_LOC_QP_OP_ERR, IBV_WC_REM_ACCESS_ERR,
                                           IBV_WC_REM_OP_ERR));

TEST_P(Doubtful, AnErrorIsTheNicsUntilItIsRepeated) {
  for (uint64_t id = 1; id <= 2; id++) post_send(*group_, id, IBV_WR_SEND);
  on_default().break_with(GetParam());
  EXPECT_TRUE(poll_all(cq_).empty());
  ASSERT_EQ(world_.sink.faults.size(), 1u);
  EXPECT_EQ(world_.sink.faults[0].event, fsm::Event::kPathFault);

  leave_for(*group_, kBackup, kBackup);
  ASSERT_EQ(replay(*group_, 0).refusal, nullptr);
  // If the request fails in the same way on a healthy NIC, the error is the application's own.
  on_backup().break_with(GetParam());
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_EQ(world_.believe(), 1u);
  const auto completions = poll_all(cq_);
  ASSERT_EQ(wr_ids(completions), (Ids{1, 2}));
  EXPECT_EQ(completions[0].status, GetParam());
  EXPECT_EQ(world_.sink.faults.size(), 1u);
}

TEST_P(Doubtful, AnErrorOnADeadNicIsNeverTheApplications) {
  post_send(*group_, 1, IBV_WR_SEND);
  on_default().break_with(GetParam());
  EXPECT_TRUE(poll_all(cq_).empty());
  leave_for(*group_, kBackup, kBackup);
  ASSERT_EQ(replay(*group_, 0).refusal, nullptr);
  world_.context.members[kBackup].dead = true;
  on_backup().break_with(GetParam());
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_TRUE(world_.sink.doubted.empty());
  ASSERT_EQ(world_.sink.faults.size(), 2u);
  EXPECT_EQ(world_.sink.faults[1].event, fsm::Event::kPathFault);
}

TEST_P(Doubtful, AnErrorOfALaterRequestIsAnotherFault) {
  for (uint64_t id = 1; id <= 2; id++) post_send(*group_, id, IBV_WR_SEND);
  on_default().break_with(GetParam());
  leave_for(*group_, kBackup, kBackup);
  ASSERT_EQ(replay(*group_, 0).refusal, nullptr);
  ASSERT_TRUE(on_backup().complete_send());
  on_backup().break_with(GetParam());
  EXPECT_EQ(wr_ids(poll_all(cq_)), Ids{1});
  EXPECT_EQ(world_.sink.faults.back().event, fsm::Event::kPathFault);
}

// A driver that lets go of its NIC first destroys the memory regions.
TEST_F(Completion, AnErrorThatIsNotBelievedIsRepeatedOnTheNextPath) {
  post_recv(*group_, 10);
  post_send(*group_, 1, IBV_WR_SEND);
  on_default().break_with(IBV_WC_LOC_PROT_ERR);
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_EQ(world_.sink.doubted.size(), 1u);
  EXPECT_EQ(group_->life.errors.original.status, IBV_WC_LOC_PROT_ERR);

  leave_for(*group_, kBackup, kBackup);
  EXPECT_FALSE(kept_pass(*group_, kDefault)) << "the fence has ended the wait";
  ASSERT_EQ(replay(*group_, 0).refusal, nullptr);
  on_backup().break_with(IBV_WC_LOC_PROT_ERR);
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_TRUE(kept_pass(*group_, kBackup));
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{1, 10})) << "repeated where nothing is wrong";
}

// C1: the application's own error and all flushes after it, as the NIC gave them.
TEST_F(Completion, ErrorsThatAreKeptComeInTheirOrder) {
  for (uint64_t id = 1; id <= 2; id++) post_send(*group_, id, IBV_WR_SEND);
  post_recv(*group_, 10);
  on_default().break_with(IBV_WC_LOC_PROT_ERR);
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_TRUE(poll_all(cq_).empty());
  post_send(*group_, 3, IBV_WR_SEND);  // the NIC flushes it at once
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_TRUE(kept_pass(*group_, kDefault));
  const auto completions = poll_all(cq_);
  EXPECT_EQ(wr_ids(completions), (Ids{1, 2, 10, 3}));
  EXPECT_EQ(completions.front().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(completions.back().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(completions.back().qp_num, group_->qpn());
  EXPECT_EQ(cq_->kept_errors, 0);
}

// The thread that polls must not become the owner of a hot path that looks at the NIC's CQ only.
TEST_F(Completion, NobodyOwnsAQueueWhileErrorsAreKept) {
  post_send(*group_, 1, IBV_WR_SEND);
  on_default().break_with(IBV_WC_LOC_PROT_ERR);
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_FALSE(cq_->bias.has_owner());
  EXPECT_TRUE(kept_pass(*group_, kDefault));
  EXPECT_EQ(wr_ids(poll_all(cq_)), Ids{1});
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_TRUE(cq_->bias.has_owner());
}

TEST_F(Completion, TheErrorsOfADestroyedQpAreForgotten) {
  Group* const group = world_.make_group(cq_);
  post_send(*group, 1, IBV_WR_SEND);
  World::fake(group, kDefault).break_with(IBV_WC_LOC_PROT_ERR);
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_NE(cq_->kept_errors, 0);
  purge(*cq_, group);
  EXPECT_EQ(cq_->kept_errors, 0);
  EXPECT_FALSE(kept_pass(*group, kDefault));
  EXPECT_TRUE(poll_all(cq_).empty());
}

// The flushes of the receive queue may be polled before the error that caused them.
TEST_F(Completion, AFlushIsNotTheOriginalErrorWhenTheRealOneFollows) {
  CompletionQueue* recv_cq = world_.make_cq();
  Group* group = world_.make_group(cq_, recv_cq, {});
  post_recv(*group, 10);
  post_send(*group, 1, IBV_WR_SEND);
  World::fake(group, kDefault).break_with(IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(poll_all(recv_cq).empty());
  EXPECT_EQ(group->life.errors.original.status, IBV_WC_SUCCESS);
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_EQ(group->life.errors.original.status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(Completion, TheApplicationsOwnErrorPassesWithAllThatFollowsIt) {
  for (uint64_t id = 1; id <= 3; id++) post_send(*group_, id, IBV_WR_SEND);
  on_default().break_with(IBV_WC_REM_INV_REQ_ERR);
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_EQ(world_.believe(), 1u);
  const auto completions = poll_all(cq_);
  EXPECT_EQ(wr_ids(completions), (Ids{1, 2, 3}));
  EXPECT_EQ(completions[0].status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(completions[1].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(completions[0].qp_num, group_->qpn());
  EXPECT_TRUE(world_.sink.faults.empty());
}

TEST_F(Completion, WithoutProtectionErrorsPassAsTheyCome) {
  group_->life.errors.members[kDefault].accept = Accept::kPass;
  for (uint64_t id = 1; id <= 2; id++) post_send(*group_, id, IBV_WR_SEND);
  on_default().break_with(IBV_WC_RETRY_EXC_ERR);
  const auto completions = poll_all(cq_);
  EXPECT_EQ(wr_ids(completions), (Ids{1, 2}));
  EXPECT_EQ(completions[0].status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(completions[0].vendor_err, 0x42u);
  // The application knows now that the QP is broken, so nothing can be masked from here on.
  ASSERT_EQ(world_.sink.faults.size(), 1u);
  EXPECT_EQ(world_.sink.faults[0].event, fsm::Event::kAppError);
}

TEST_F(Completion, ACompletionOfAnUnknownQpIsNotTouched) {
  ibv_wc wc{};
  wc.wr_id = 5;
  wc.status = IBV_WC_RETRY_EXC_ERR;
  wc.qp_num = 0xabcdef;
  World::fake(cq_, kDefault).waiting.push_back(wc);
  const auto completions = poll_all(cq_);
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].qp_num, 0xabcdefu);
  EXPECT_EQ(completions[0].status, IBV_WC_RETRY_EXC_ERR);
}

// C8
TEST_F(Completion, CompletionsOfAnOldEpochAreDropped) {
  post_send(*group_, 1, IBV_WR_SEND);
  post_send(*group_, 2, IBV_WR_SEND);
  group_->life.errors.members[kDefault].accept = Accept::kDrop;
  on_default().complete_send();
  on_default().break_with(IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_EQ(group_->counters.done[0], 0u);
  EXPECT_TRUE(world_.sink.faults.empty());
}

TEST_F(Completion, MarkersShowThatAQueueIsDrainedAndNobodySeesThem) {
  group_->life.errors.switching = true;
  ibv_wc marker{};
  marker.status = IBV_WC_WR_FLUSH_ERR;
  marker.qp_num = group_->qpn();
  const auto begin = [this](OwnRequest::Kind kind) { return own_begin(*group_, kDefault, kind); };
  marker.wr_id = begin(OwnRequest::Kind::kRecvMarker);
  World::fake(cq_, kDefault).waiting.push_back(marker);
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_FALSE(group_->life.markers.drained[0]);
  EXPECT_TRUE(group_->life.markers.drained[1]);
  marker.wr_id = begin(OwnRequest::Kind::kSendMarker);
  World::fake(cq_, kDefault).waiting.push_back(marker);
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_TRUE(group_->life.markers.drained[0]);
  // This marker comes out after the application has seen an error of its own.
  marker.wr_id = begin(OwnRequest::Kind::kSendMarker);
  group_->life.errors.members[kDefault].accept = Accept::kPass;
  World::fake(cq_, kDefault).waiting.push_back(marker);
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_TRUE(world_.sink.faults.empty());
}

TEST_F(Completion, WhileDrainingSuccessesCountAndErrorsAreKeptQuiet) {
  post_recv(*group_, 10);
  post_recv(*group_, 11);
  post_send(*group_, 1, IBV_WR_SEND);
  group_->life.errors.switching = true;
  on_default().complete_recv();
  on_default().break_with(IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{10}));
  EXPECT_EQ(group_->counters.done[1], 1u);
  EXPECT_TRUE(world_.sink.faults.empty());
}

// C1, C9
TEST_F(Completion, TheBackupsCompletionsShowTheApplicationsNumbers) {
  cq_->poll_all = true;
  group_->life.errors.members[kBackup].accept = Accept::kGuard;
  ibv_qp* real = group_->real[kBackup];
  ibv_recv_wr wr{10, nullptr, nullptr, 0}, *bad;
  ASSERT_EQ(real->context->ops.post_recv(real, &wr, &bad), 0);
  ASSERT_TRUE(on_backup().complete_recv(123));
  const auto completions = poll_all(cq_);
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].qp_num, group_->qpn());
  EXPECT_EQ(completions[0].src_qp, group_->life.ends.remote.qpn);
  EXPECT_EQ(completions[0].byte_len, 123u);
  EXPECT_EQ(group_->counters.done[1], 1u);
}

TEST_F(Completion, AFaultNamesTheMemberItHappenedOn) {
  cq_->poll_all = true;
  group_->life.errors.members[kDefault].accept = Accept::kDrop;
  group_->life.errors.members[kBackup].accept = Accept::kGuard;
  ibv_qp* real = group_->real[kBackup];
  ibv_send_wr wr{}, *bad;
  ASSERT_EQ(real->context->ops.post_send(real, &wr, &bad), 0);
  on_backup().break_with(IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(poll_all(cq_).empty());
  ASSERT_FALSE(world_.sink.faults.empty());
  EXPECT_EQ(world_.sink.faults[0].event, fsm::Event::kPathFault);
  EXPECT_EQ(world_.sink.faults[0].member, kBackup);
}

TEST_F(Completion, WhatWaitsComesBeforeWhatIsNew) {
  for (uint64_t id = 1; id <= 6; id++) post_send(*group_, id, IBV_WR_SEND);
  for (int i = 0; i < 4; i++) on_default().complete_send();
  ibv_wc wc[2];
  ASSERT_EQ(poll_slow(*cq_, 2, wc), 2);
  EXPECT_EQ(wc[1].wr_id, 2u);
  on_default().complete_send();
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{3, 4, 5}));
}

TEST_F(Completion, TheHotPathStaysBarredWhileAnythingWaitsOrIsWrong) {
  if (thread_slot_get() == nullptr) GTEST_SKIP() << "no membarrier(2) here";
  auto hot = [&] {
    const bool entered = cq_->bias.enter(tls_slot, cq_);
    Bias::leave(tls_slot);
    return entered;
  };
  for (uint64_t id = 1; id <= 2; id++) post_send(*group_, id, IBV_WR_SEND);
  for (int i = 0; i < 2; i++) on_default().complete_send();
  ibv_wc wc;
  ASSERT_EQ(poll_slow(*cq_, 1, &wc), 1);
  EXPECT_FALSE(hot()) << "a completion waits";
  cq_->slow_groups = 1;
  ASSERT_EQ(poll_slow(*cq_, 1, &wc), 1);
  EXPECT_FALSE(hot()) << "a group is off its default path";
  cq_->slow_groups = 0;
  ASSERT_EQ(poll_slow(*cq_, 1, &wc), 0);
  EXPECT_TRUE(hot());
}

// The hot poll passes on completions that it has not looked at; those of other QPs stay.
TEST_F(Completion, AHotPollThatMeetsAnErrorKeepsTheOthersCompletions) {
  Group* other = world_.make_group(cq_);
  auto wc_of = [](Group* group, uint64_t id, ibv_wc_status status) {
    ibv_wc wc{};
    wc.wr_id = id;
    wc.status = status;
    wc.qp_num = group->qpn();
    return wc;
  };
  ibv_wc wc[5] = {wc_of(group_, 1, IBV_WC_SUCCESS), wc_of(group_, 2, IBV_WC_RETRY_EXC_ERR),
                  wc_of(other, 3, IBV_WC_SUCCESS), wc_of(group_, 4, IBV_WC_WR_FLUSH_ERR),
                  wc_of(other, 5, IBV_WC_SUCCESS)};
  ASSERT_EQ(poll_error(*cq_, 5, wc, nullptr, 1, 5), 3);
  EXPECT_EQ(wc[0].wr_id, 1u);
  EXPECT_EQ(wc[1].wr_id, 3u);
  EXPECT_EQ(wc[2].wr_id, 5u);
  EXPECT_EQ(other->counters.done[0], 2u);
  EXPECT_EQ(group_->counters.done[0], 0u);  // the hot loop has counted the first one itself
}

TEST_F(Completion, PurgingForgetsOneQpOnly) {
  Group* other = world_.make_group(cq_);
  post_send(*group_, 1, IBV_WR_SEND);
  post_send(*other, 2, IBV_WR_SEND);
  on_default().complete_send();
  World::fake(other, kDefault).complete_send();
  cq_->last_qpn = group_->qpn();
  cq_->last_counters = &group_->counters;
  inspect(*cq_);
  purge(*cq_, group_);
  EXPECT_EQ(cq_->last_counters, nullptr);
  EXPECT_EQ(cq_->groups, std::vector<Group*>{other});
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{2}));
}

TEST_F(Completion, ALookFindsWhatNobodyPolled) {
  post_send(*group_, 1, IBV_WR_SEND);
  on_default().break_with(IBV_WC_RETRY_EXC_ERR);
  inspect(*cq_);
  ASSERT_FALSE(world_.sink.faults.empty());
  EXPECT_EQ(world_.sink.faults[0].event, fsm::Event::kPathFault);
}

class WithChannel : public Completion {
 protected:
  WithChannel() {
    channel_.inject_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    cq_->channel = &channel_;
  }
  ~WithChannel() override { close(channel_.inject_fd); }
  uint64_t events() {
    uint64_t count = 0;
    return read(channel_.inject_fd, &count, sizeof count) == sizeof count ? count : 0;
  }
  CompletionChannel channel_;
};

TEST_F(WithChannel, OneEventForAnArmedQueue) {
  ibv_wc wc{};
  wc.qp_num = group_->qpn();
  put_side(*cq_, wc);
  EXPECT_EQ(events(), 0u) << "nobody asked";
  cq_->armed = true;
  put_side(*cq_, wc);
  EXPECT_EQ(events(), 1u);
  EXPECT_FALSE(cq_->armed);
  put_side(*cq_, wc);
  EXPECT_EQ(events(), 0u) << "one per request";
  EXPECT_EQ(channel_.injected.size(), 1u);
}

TEST_F(WithChannel, AnEmptyQueueRaisesNone) {
  cq_->armed = true;
  signal_side(*cq_);
  EXPECT_EQ(events(), 0u);
  EXPECT_TRUE(cq_->armed);
}

// The control thread has taken the completion out of the real CQ; the application must still wake
// up.
TEST_F(WithChannel, WhatALookCollectsWakesTheApplication) {
  cq_->armed = true;
  post_send(*group_, 1, IBV_WR_SEND);
  on_default().complete_send();
  inspect(*cq_);
  EXPECT_EQ(events(), 1u);
}

// C1: two threads, each with its own CQ, meet an error of one QP.
TEST(TwoPollers, BothErrorsAreGiven) {
  World world;
  CompletionQueue* const send_cq = world.make_cq();
  CompletionQueue* const recv_cq = world.make_cq();
  Group* const group = world.make_group(send_cq, recv_cq, {});
  FakeQp& qp = World::fake(group, kDefault);
  post_recv(*group, 7);
  post_send(*group, 1, IBV_WR_SEND);
  ibv_wc wc{};
  wc.qp_num = qp.qp.qp_num;
  wc.wr_id = 7;
  wc.status = IBV_WC_LOC_LEN_ERR;
  World::fake(recv_cq, kDefault).waiting.push_back(wc);
  wc.wr_id = 1;
  wc.status = IBV_WC_LOC_PROT_ERR;
  World::fake(send_cq, kDefault).waiting.push_back(wc);

  std::thread poller([&] { EXPECT_TRUE(poll_all(send_cq).empty()); });
  EXPECT_TRUE(poll_all(recv_cq).empty());
  poller.join();
  EXPECT_TRUE(world.sink.faults.empty());
  EXPECT_TRUE(kept_pass(*group, kDefault));
  EXPECT_EQ(wr_ids(poll_all(recv_cq)), (std::vector<uint64_t>{7}));
  EXPECT_EQ(wr_ids(poll_all(send_cq)), (std::vector<uint64_t>{1}));
}

}  // namespace
}  // namespace shift::group
