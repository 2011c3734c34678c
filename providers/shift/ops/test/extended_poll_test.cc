// ibv_start_poll and the calls that belong to it, in each state of a group.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include "group/extended.h"
#include "group/test/fake.h"
#include "ops/completion_queues.h"
#include "ops/entry.h"
#include "ops/extended_cqs.h"
#include "ops/tables.h"

namespace shift::ops {
namespace {

using group::CompletionQueue;
using group::ExtendedPoll;
using group::FakeCq;
using group::FakeQp;
using group::Group;
using group::kBackup;
using group::kDefault;
using group::World;
using Ids = std::vector<uint64_t>;

constexpr uint64_t kFlags = uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                            IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
constexpr uint64_t kClockBegin = 5'000'000;

// The default NIC's own extended poll over the same completions; its clock ticks with each one.
struct FakeExtended {
  ibv_cq_ex ex{};  // first
  FakeCq* source = nullptr;
  ibv_wc current{};
  uint64_t clock = kClockBegin;
  bool is_open = false;

  static FakeExtended& of(ibv_cq_ex* cq) { return *reinterpret_cast<FakeExtended*>(cq); }
  int take() {
    if (source->waiting.empty()) return ENOENT;
    current = source->waiting.front();
    source->waiting.pop_front();
    ex.wr_id = current.wr_id;
    ex.status = current.status;
    clock += 10;
    return 0;
  }
  FakeExtended() {
    ex.start_poll = [](ibv_cq_ex* c, ibv_poll_cq_attr*) {
      const int error = of(c).take();
      if (error == 0) of(c).is_open = true;
      return error;
    };
    ex.next_poll = [](ibv_cq_ex* c) { return of(c).take(); };
    ex.end_poll = [](ibv_cq_ex* c) { of(c).is_open = false; };
    ex.read_opcode = [](ibv_cq_ex* c) { return of(c).current.opcode; };
    ex.read_vendor_err = [](ibv_cq_ex* c) { return of(c).current.vendor_err; };
    ex.read_wc_flags = [](ibv_cq_ex* c) { return of(c).current.wc_flags; };
    ex.read_byte_len = [](ibv_cq_ex* c) { return of(c).current.byte_len; };
    ex.read_imm_data = [](ibv_cq_ex* c) { return of(c).current.imm_data; };
    ex.read_qp_num = [](ibv_cq_ex* c) { return of(c).current.qp_num; };
    ex.read_src_qp = [](ibv_cq_ex* c) { return of(c).current.src_qp; };
    ex.read_slid = [](ibv_cq_ex* c) { return uint32_t{of(c).current.slid}; };
    ex.read_sl = [](ibv_cq_ex* c) { return of(c).current.sl; };
    ex.read_dlid_path_bits = [](ibv_cq_ex* c) { return of(c).current.dlid_path_bits; };
    ex.read_completion_ts = [](ibv_cq_ex* c) { return of(c).clock; };
    ex.read_completion_wallclock_ns = [](ibv_cq_ex* c) { return of(c).clock * 2; };
  }
};

class ExtendedPollTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    cq_ = world_.make_cq();
    cq_->extended = std::make_unique<ExtendedPoll>(*cq_);
    device_.source = &World::fake(cq_, kDefault);
    cq_->extended->real = &device_.ex;
    cq_->extended->needs_device = GetParam();
    cq_->extended->read_flags = GetParam() ? uint32_t{kFlags} : uint32_t{IBV_WC_STANDARD_FLAGS};
    cq_->extended->clock_khz = 1'000'000;
    install_readers(cq_->cq_ex, kFlags);
    group_ = world_.make_group(cq_);
    ex_ = &cq_->cq_ex;
  }
  FakeQp& on_default() { return World::fake(group_, kDefault); }
  FakeQp& on_backup() { return World::fake(group_, kBackup); }
  void send(uint64_t first, uint64_t last) {
    for (uint64_t id = first; id <= last; id++) group::post_send(*group_, id, IBV_WR_SEND);
  }
  int start() {
    ibv_poll_cq_attr attr{};
    return ibv_start_poll(ex_, &attr);
  }
  // One start, and at most `most` completions.
  Ids poll(size_t most) {
    Ids ids;
    if (start() != 0) return ids;
    do {
      ids.push_back(ex_->wr_id);
    } while (ids.size() < most && ibv_next_poll(ex_) == 0);
    ibv_end_poll(ex_);
    return ids;
  }
  void complete(int count) {
    for (int i = 0; i < count; i++) ASSERT_TRUE(on_default().complete_send());
  }

  World world_;
  FakeExtended device_;
  CompletionQueue* cq_ = nullptr;
  Group* group_ = nullptr;
  ibv_cq_ex* ex_ = nullptr;
};

// The layer looks into the CQ to find out whether an event is for the application. The fields of
// the completions must survive that look, also while the classic poll is the hot one.
TEST_P(ExtendedPollTest, LookingTakesNothingAway) {
  ibv_wc wc[1];
  EXPECT_EQ(poll_cq(&cq_->cq, 1, wc), 0);
  send(1, 1);
  complete(1);
  EXPECT_TRUE(has_news(cq_));
  ASSERT_EQ(start(), 0);
  EXPECT_EQ(ex_->wr_id, 1u);
  if (GetParam()) {
    EXPECT_EQ(ibv_wc_read_completion_ts(ex_), kClockBegin + 10);
  }
  ibv_end_poll(ex_);
}

TEST_P(ExtendedPollTest, NothingIsThere) {
  EXPECT_EQ(start(), ENOENT);
  EXPECT_EQ(start(), ENOENT);  // the second start is hot
  ibv_poll_cq_attr attr{.comp_mask = 1};
  EXPECT_EQ(ibv_start_poll(ex_, &attr), EINVAL);
  EXPECT_FALSE(device_.is_open);
}

TEST_P(ExtendedPollTest, AllComeInOrderAndAreCounted) {
  ASSERT_EQ(start(), ENOENT);  // this thread becomes the owner
  send(1, 16);
  complete(16);
  group::post_recv(*group_, 40);
  ASSERT_TRUE(on_default().complete_recv(99));
  Ids ids = poll(100);
  ASSERT_EQ(ids.size(), 17u);
  for (uint64_t i = 0; i < 16; i++) EXPECT_EQ(ids[i], i + 1);
  EXPECT_EQ(ids[16], 40u);
  EXPECT_EQ(group_->counters.done[0], 16u);
  EXPECT_EQ(group_->counters.done[1], 1u);
  EXPECT_EQ(start(), ENOENT);
}

TEST_P(ExtendedPollTest, EveryFieldIsRead) {
  ASSERT_EQ(start(), ENOENT);
  ibv_wc wc{};
  wc.wr_id = 7;
  wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
  wc.byte_len = 1234;
  wc.imm_data = 0x11223344;
  wc.qp_num = group_->qpn();
  wc.src_qp = 0x55;
  wc.wc_flags = IBV_WC_WITH_IMM;
  wc.slid = 3;
  wc.sl = 4;
  wc.dlid_path_bits = 5;
  World::fake(cq_, kDefault).waiting.push_back(wc);
  ASSERT_EQ(start(), 0);
  EXPECT_EQ(ex_->wr_id, 7u);
  EXPECT_EQ(ex_->status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_wc_read_opcode(ex_), IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(ibv_wc_read_byte_len(ex_), 1234u);
  EXPECT_EQ(ibv_wc_read_imm_data(ex_), 0x11223344u);
  EXPECT_EQ(ibv_wc_read_invalidated_rkey(ex_), 0x11223344u);
  EXPECT_EQ(ibv_wc_read_qp_num(ex_), group_->qpn());
  EXPECT_EQ(ibv_wc_read_src_qp(ex_), 0x55u);
  EXPECT_EQ(ibv_wc_read_wc_flags(ex_), unsigned{IBV_WC_WITH_IMM});
  EXPECT_EQ(ibv_wc_read_slid(ex_), 3u);
  EXPECT_EQ(ibv_wc_read_sl(ex_), 4u);
  EXPECT_EQ(ibv_wc_read_dlid_path_bits(ex_), 5u);
  EXPECT_EQ(ibv_wc_read_vendor_err(ex_), 0u);
  if (GetParam()) {
    EXPECT_EQ(ibv_wc_read_completion_ts(ex_), kClockBegin + 10);
    EXPECT_EQ(ibv_wc_read_completion_wallclock_ns(ex_), 2 * (kClockBegin + 10));
  }
  EXPECT_EQ(ibv_next_poll(ex_), ENOENT);
  ibv_end_poll(ex_);
}

TEST_P(ExtendedPollTest, WhatIsLeftBehindComesWithTheNextStart) {
  ASSERT_EQ(start(), ENOENT);
  send(1, 5);
  complete(5);
  EXPECT_EQ(poll(2), (Ids{1, 2}));
  EXPECT_EQ(poll(1), (Ids{3}));
  EXPECT_EQ(poll(9), (Ids{4, 5}));
}

TEST_P(ExtendedPollTest, AClassicPollFindsWhatIsLeftBehind) {
  for (bool hot : {false, true}) {
    if (hot) {
      ASSERT_EQ(start(), ENOENT);
    }
    send(1, 5);
    complete(5);
    EXPECT_EQ(poll(2), (Ids{1, 2}));
    send(6, 6);
    complete(1);
    EXPECT_EQ(group::wr_ids(group::poll_all(cq_)), (Ids{3, 4, 5, 6})) << hot;
  }
}

// A program with an event channel sleeps after it has armed the CQ, and the NIC raises no event for
// completions that the layer has taken from it.
TEST_P(ExtendedPollTest, ArmingPutsTheLeftoversBack) {
  ASSERT_EQ(start(), ENOENT);
  send(1, 3);
  complete(3);
  EXPECT_EQ(poll(1), (Ids{1}));
  ASSERT_EQ(req_notify_cq(&cq_->cq, 0), 0);
  EXPECT_EQ(cq_->side.size(), 2u);
  EXPECT_EQ(poll(9), (Ids{2, 3}));
}

TEST_P(ExtendedPollTest, AnErrorIsHeldBack) {
  ASSERT_EQ(start(), ENOENT);
  send(1, 3);
  complete(1);
  on_default().break_with(IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(poll(9), (Ids{1}));
  EXPECT_EQ(group_->counters.done[0], 1u);
  ASSERT_EQ(world_.sink.faults.size(), 1u);
  EXPECT_EQ(world_.sink.faults[0].event, fsm::Event::kPathFault);
  EXPECT_EQ(start(), ENOENT);
}

// The thread that meets an error gives up its batch. Another thread, which waits for nothing else,
// fills it at once.
TEST_P(ExtendedPollTest, AfterAnErrorTheBatchMayBeAnotherThreads) {
  Group* other = world_.make_group(cq_, cq_, {.depth = 64});
  ASSERT_EQ(start(), ENOENT);  // this thread owns the hot path
  send(1, 2);
  complete(1);
  on_default().break_with(IBV_WC_RETRY_EXC_ERR);
  // More than the rest of the batch holds, so that the second thread finds some in the CQ.
  constexpr uint64_t kFirst = 100, kCount = ExtendedPoll::kBatch + 8;
  for (uint64_t id = kFirst; id < kFirst + kCount; id++) {
    group::post_send(*other, id, IBV_WR_SEND);
  }
  while (World::fake(other, kDefault).complete_send()) {
  }
  std::atomic<bool> met{false};
  struct Waker final : group::FaultSink {
    explicit Waker(std::atomic<bool>& flag) : met(flag) {}
    void fault(Group*, fsm::Event, int, group::Cause) override { met = true; }
    void verdict_wanted(Group*, int) override { met = true; }
    void pump_wanted(Group*) override {}
    std::atomic<bool>& met;
  } waker(met);
  group::fault_sink = &waker;
  Ids theirs;
  std::thread second([&] {
    while (!met) std::this_thread::yield();
    theirs = poll(99);
  });
  Ids all = poll(99);
  second.join();
  group::fault_sink = &world_.sink;
  all.insert(all.end(), theirs.begin(), theirs.end());
  for (Ids more = poll(99); !more.empty(); more = poll(99)) {
    all.insert(all.end(), more.begin(), more.end());
  }
  std::ranges::sort(all);
  Ids expected{1};
  for (uint64_t id = kFirst; id < kFirst + kCount; id++) expected.push_back(id);
  EXPECT_EQ(all, expected);
}

TEST_P(ExtendedPollTest, AnErrorThatIsTheApplicationsOwnIsRead) {
  ASSERT_EQ(start(), ENOENT);
  send(1, 1);
  on_default().break_with(IBV_WC_REM_INV_REQ_ERR);
  ASSERT_EQ(start(), ENOENT);
  EXPECT_EQ(world_.believe(), 1u);
  ASSERT_EQ(start(), 0);
  EXPECT_EQ(ex_->status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(ibv_wc_read_vendor_err(ex_), 0x42u);
  EXPECT_EQ(ibv_wc_read_qp_num(ex_), group_->qpn());
  ibv_end_poll(ex_);
}

// C9: completions have the number, order and identity that they have on the default, also when the
// path changes in the middle of a poll.
TEST_P(ExtendedPollTest, AfterASwitchTheOtherMembersComplete) {
  ASSERT_EQ(start(), ENOENT);
  send(1, 4);
  complete(2);
  ASSERT_EQ(start(), 0);
  EXPECT_EQ(ex_->wr_id, 1u);
  const uint64_t before = GetParam() ? ibv_wc_read_completion_ts(ex_) : 0;
  group::leave_for(*group_, kBackup, kBackup);
  ASSERT_EQ(group::replay(*group_, 2).refusal, nullptr);
  while (on_backup().complete_send()) {
  }
  Ids ids{ex_->wr_id};
  while (ibv_next_poll(ex_) == 0) {
    ids.push_back(ex_->wr_id);
    EXPECT_EQ(ex_->status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_wc_read_qp_num(ex_), group_->qpn());
    if (GetParam()) {
      EXPECT_GE(ibv_wc_read_completion_ts(ex_), before);
      EXPECT_GT(ibv_wc_read_completion_wallclock_ns(ex_), 0u);
    }
  }
  ibv_end_poll(ex_);
  EXPECT_EQ(ids, (Ids{1, 2, 3, 4}));
}

// A provider that holds its lock from start to end makes a second thread wait as well.
TEST_P(ExtendedPollTest, ASecondThreadWaitsForTheEnd) {
  ASSERT_EQ(start(), ENOENT);
  send(1, 4);
  complete(4);
  ASSERT_EQ(start(), 0);
  std::atomic<bool> begun{false};
  Ids others;
  std::thread second([&] {
    begun = true;
    others = poll(9);
  });
  while (!begun) std::this_thread::yield();
  for (int i = 0; i < 100; i++) std::this_thread::yield();
  EXPECT_EQ(ex_->wr_id, 1u);
  ASSERT_EQ(ibv_next_poll(ex_), 0);
  EXPECT_EQ(ex_->wr_id, 2u);
  ibv_end_poll(ex_);
  second.join();
  EXPECT_EQ(others, (Ids{3, 4}));
}

TEST_P(ExtendedPollTest, ThreadsThatShareTheQueueSeeEachCompletionOnce) {
  constexpr uint64_t kCount = 64;
  Group* wide = world_.make_group(cq_, cq_, {.depth = kCount});
  for (uint64_t id = 0; id < kCount; id++) group::post_send(*wide, id, IBV_WR_SEND);
  while (World::fake(wide, kDefault).complete_send()) {
  }
  Ids seen[2];
  std::thread threads[2];
  for (int i = 0; i < 2; i++) {
    threads[i] = std::thread([&, i] {
      for (;;) {
        const Ids some = poll(3);
        if (some.empty()) break;
        seen[i].insert(seen[i].end(), some.begin(), some.end());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  Ids all = seen[0];
  all.insert(all.end(), seen[1].begin(), seen[1].end());
  std::ranges::sort(all);
  ASSERT_EQ(all.size(), kCount);
  for (uint64_t id = 0; id < kCount; id++) EXPECT_EQ(all[id], id);
}

// A program that rests between start and end must not hold up the control thread.
TEST_P(ExtendedPollTest, AFenceDoesNotWaitForTheEnd) {
  ASSERT_EQ(start(), ENOENT);
  send(1, 2);
  complete(2);
  ASSERT_EQ(start(), 0);
  std::thread control([&] { EXPECT_TRUE(group::fence({group_})[0]); });
  control.join();
  EXPECT_EQ(ibv_next_poll(ex_), 0);
  ibv_end_poll(ex_);
}

TEST_P(ExtendedPollTest, ADestroyedQueuePairLeavesNothingBehind) {
  Group* other = world_.make_group(cq_);
  ASSERT_EQ(start(), ENOENT);
  send(1, 2);
  group::post_send(*other, 9, IBV_WR_SEND);
  complete(2);
  ASSERT_TRUE(World::fake(other, kDefault).complete_send());
  EXPECT_EQ(poll(1), (Ids{1}));
  group::purge(*cq_, group_);
  EXPECT_EQ(poll(9), (Ids{9}));
}

INSTANTIATE_TEST_SUITE_P(Fields, ExtendedPollTest, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "Device" : "Plain"; });

}  // namespace
}  // namespace shift::ops
