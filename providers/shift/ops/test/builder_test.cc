// ibv_wr_*: the journal keeps the same record of a request by whichever interface it came.
#include "ops/builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>

#include "group/test/fake.h"
#include "ops/entry.h"
#include "ops/tables.h"
#include "ops/test/built.h"
#include "util/test/random.h"

namespace shift::ops {
namespace {

using group::FakeQp;
using group::Group;
using group::is_atomic;
using group::kBackup;
using group::kDefault;
using group::kLkey;
using group::kRkey;
using group::World;

void expect_journalled(const Group& group, uint64_t position, const Built& r) {
  ibv_send_wr wr;
  ibv_sge sges[64];
  group.send.journal.rebuild(position, &wr, sges);
  ASSERT_EQ(wr.wr_id, r.wr.wr_id);
  ASSERT_EQ(wr.opcode, r.wr.opcode);
  const bool has_imm = wr.opcode == IBV_WR_SEND_WITH_IMM || wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  if (has_imm) {
    ASSERT_EQ(wr.imm_data, r.wr.imm_data);
  }
  if (is_atomic(wr.opcode)) {
    ASSERT_EQ(wr.wr.atomic.remote_addr, r.wr.wr.atomic.remote_addr);
    ASSERT_EQ(wr.wr.atomic.compare_add, r.wr.wr.atomic.compare_add);
    ASSERT_EQ(wr.wr.atomic.swap, r.wr.wr.atomic.swap);
    ASSERT_EQ(wr.wr.atomic.rkey, r.wr.wr.atomic.rkey);
  } else if (wr.opcode != IBV_WR_SEND && wr.opcode != IBV_WR_SEND_WITH_IMM) {
    ASSERT_EQ(wr.wr.rdma.remote_addr, r.wr.wr.rdma.remote_addr);
    ASSERT_EQ(wr.wr.rdma.rkey, r.wr.wr.rdma.rkey);
  }
  if (!r.inline_data.empty()) {
    ASSERT_EQ(wr.send_flags, r.wr.send_flags | IBV_SEND_INLINE);
    ASSERT_EQ(wr.num_sge, 1);
    ASSERT_EQ(std::string(reinterpret_cast<char*>(sges[0].addr), sges[0].length), r.inline_data);
    return;
  }
  ASSERT_EQ(wr.send_flags, r.wr.send_flags);
  ASSERT_EQ(wr.num_sge, static_cast<int>(r.sges.size()));
  for (size_t i = 0; i < r.sges.size(); i++) {
    ASSERT_EQ(sges[i].addr, r.sges[i].addr);
    ASSERT_EQ(sges[i].length, r.sges[i].length);
    ASSERT_EQ(sges[i].lkey, r.sges[i].lkey);
  }
}

class Builder : public ::testing::Test {
 protected:
  Builder() {
    group_->real_ex = &real_.ex;
    install_builder(*group_);
    qp_ = &group_->qp;
  }
  void make_hot() {
    std::lock_guard lock(group_->send.mutex);
    group_->send.bias.adopt(&group_->send);
  }
  void leave_default() { ASSERT_TRUE(group::fence({group_})[0]); }
  void simple(uint64_t id) {
    qp_->wr_id = id;
    qp_->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(qp_);
    ibv_wr_set_sge(qp_, kLkey, 0x5000, 8);
  }

  World world_;
  group::CompletionQueue* cq_ = world_.make_cq();
  Group* group_ = world_.make_group(cq_);
  FakeBuilder real_;
  ibv_qp_ex* qp_ = nullptr;
};

TEST_F(Builder, TheJournalHoldsWhatWasBuilt) {
  Random random;
  for (bool parked : {false, true}) {
    if (parked) {
      leave_default();
    } else {
      make_hot();
    }
    uint64_t id = 0;
    for (int batch = 0; batch < 200; batch++) {
      std::vector<Built> requests;
      ibv_wr_start(qp_);
      for (uint32_t n = random.below(5); n > 0; n--) {
        requests.push_back(random_request(random, ++id));
        build(qp_, requests.back(), random);
      }
      const uint64_t before = group_->send.journal.head();
      ASSERT_EQ(ibv_wr_complete(qp_), 0);
      ASSERT_EQ(group_->send.journal.head(), before + requests.size());
      for (size_t i = 0; i < requests.size(); i++) {
        SCOPED_TRACE(parked ? "parked" : "hot");
        ASSERT_NO_FATAL_FAILURE(expect_journalled(*group_, before + i, requests[i]));
      }
      // All requests count as completed, so that the journal has room again.
      group_->counters.done[0] = group_->send.journal.at(before).signaled_total;
      group_->send.journal.init(16, 2, 64, false);
      group_->counters.done[0] = 0;
    }
  }
}

TEST_F(Builder, AHotBatchIsForwarded) {
  make_hot();
  ibv_wr_start(qp_);
  simple(1);
  simple(2);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  EXPECT_EQ(real_.started, 1);
  EXPECT_EQ(real_.completed, 1);
  EXPECT_EQ(real_.requests, 2);
}

TEST_F(Builder, ARequestMayHaveNoData) {
  make_hot();
  ibv_wr_start(qp_);
  simple(1);
  ibv_wr_send(qp_);
  ibv_wr_set_sge_list(qp_, 0, nullptr);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  ibv_send_wr wr;
  ibv_sge sges[64];
  group_->send.journal.rebuild(1, &wr, sges);
  EXPECT_EQ(wr.num_sge, 0);
}

TEST_F(Builder, ARefusedBatchLeavesNoTrace) {
  make_hot();
  real_.error = ENOMEM;
  ibv_wr_start(qp_);
  simple(1);
  EXPECT_EQ(ibv_wr_complete(qp_), ENOMEM);
  EXPECT_EQ(group_->send.journal.head(), 0u);
  EXPECT_TRUE(world_.sink.faults.empty());
}

TEST_F(Builder, AnAbortedBatchLeavesNoTrace) {
  for (bool hot : {false, true}) {
    if (hot) make_hot();
    ibv_wr_start(qp_);
    simple(1);
    ibv_wr_abort(qp_);
    EXPECT_EQ(group_->send.journal.head(), 0u);
  }
  EXPECT_EQ(real_.aborted, 1);
  // The batch left neither a lock held nor a use of the queue announced.
  auto lock = lock_queue(group_->send);
  EXPECT_TRUE(lock.owns_lock());
}

TEST_F(Builder, TheFirstBatchGoesTheClassicWay) {
  ibv_wr_start(qp_);
  simple(1);
  simple(2);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  EXPECT_EQ(World::fake(group_, kDefault).sends.size(), 2u);
  EXPECT_EQ(group_->send.journal.head(), 2u);
  EXPECT_EQ(real_.started, 0);
}

TEST_F(Builder, AWindowIsBoundByEachWay) {
  for (bool hot : {false, true}) {
    SCOPED_TRACE(hot ? "hot" : "classic");
    if (hot) make_hot();
    ibv_mw mw{};
    ibv_mr mr{};
    const ibv_mw_bind_info info{&mr, 0x5000, 64, IBV_ACCESS_REMOTE_WRITE};
    ibv_wr_start(qp_);
    qp_->wr_id = 1;
    qp_->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_bind_mw(qp_, &mw, 0x99, &info);
    const uint64_t position = group_->send.journal.head();
    ASSERT_EQ(ibv_wr_complete(qp_), 0);
    EXPECT_EQ(real_.requests, hot ? 1 : 0);
    ibv_send_wr wr;
    ibv_sge sges[2];
    group_->send.journal.rebuild(position, &wr, sges);
    if (!hot) wr = World::fake(group_, kDefault).sends.back().wr;
    EXPECT_EQ(wr.opcode, IBV_WR_BIND_MW);
    EXPECT_EQ(wr.bind_mw.mw, &mw);
    EXPECT_EQ(wr.bind_mw.rkey, 0x99u);
    EXPECT_EQ(wr.bind_mw.bind_info.mr, &mr);
    EXPECT_EQ(wr.bind_mw.bind_info.length, 64u);
  }
}

// Requests that the NIC did not take must not be replayed later.
TEST_F(Builder, TheClassicWaysRefusalLeavesOnlyWhatWasTaken) {
  World::fake(group_, kDefault).sends_accepted = 1;
  ibv_wr_start(qp_);
  simple(1);
  simple(2);
  simple(3);
  EXPECT_EQ(ibv_wr_complete(qp_), ENOMEM);
  EXPECT_EQ(group_->send.journal.head(), 1u);
  EXPECT_EQ(group_->send.journal.at(0).wr_id, 1u);
  EXPECT_EQ(group_->send.journal.notifications_posted(), 1u);
  ibv_wr_start(qp_);
  simple(4);
  World::fake(group_, kDefault).sends_accepted = 1;
  World::fake(group_, kDefault).post_error = EIO;
  EXPECT_EQ(ibv_wr_complete(qp_), group_->send.build.fast ? 0 : EIO);
}

// C1, C2: a failed doorbell has the same effect as with ibv_post_send.
TEST_F(Builder, ABatchIsTakenWhoseDoorbellFails) {
  for (bool hot : {false, true}) {
    if (hot) make_hot();
    const uint64_t before = group_->send.journal.head();
    real_.error = World::fake(group_, kDefault).doorbell_error = EIO;
    ibv_wr_start(qp_);
    ASSERT_EQ(group_->send.build.fast, hot);
    simple(1);
    simple(2);
    EXPECT_EQ(ibv_wr_complete(qp_), 0);
    EXPECT_EQ(group_->send.journal.head(), before + 2);
    EXPECT_EQ(group_->send.journal.notifications_posted(), before + 2);
    EXPECT_EQ(world_.sink.faults.size(), hot ? 2u : 1u);
    EXPECT_EQ(group_->send.given_from, UINT64_MAX) << "nobody knows what the NIC has";
  }
}

TEST_F(Builder, WithoutProtectionABatchWhoseDoorbellFailsIsRefused) {
  group_->life.errors.members[kDefault].accept = group::Accept::kPass;
  for (bool hot : {false, true}) {
    if (hot) make_hot();
    real_.error = World::fake(group_, kDefault).doorbell_error = EIO;
    ibv_wr_start(qp_);
    simple(1);
    EXPECT_EQ(ibv_wr_complete(qp_), EIO);
    EXPECT_EQ(group_->send.journal.head(), 0u);
  }
}

TEST_F(Builder, AParkedBatchGoesToTheBackupLater) {
  leave_default();
  ibv_wr_start(qp_);
  simple(1);
  simple(2);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  EXPECT_EQ(real_.started, 0);
  ASSERT_EQ(group::commit(*group_, group::kBackup, group::kBackup), group::Commit::kDone);
  ASSERT_EQ(group::replay(*group_, 0).refusal, nullptr);
  EXPECT_EQ(World::fake(group_, kBackup).sends.size(), 2u);
}

TEST_F(Builder, ABatchLargerThanTheQueueIsRefusedAsAWhole) {
  leave_default();
  ibv_wr_start(qp_);
  for (uint64_t id = 1; id <= 17; id++) simple(id);
  EXPECT_EQ(ibv_wr_complete(qp_), ENOMEM);
  EXPECT_EQ(group_->send.journal.head(), 0u);
  ibv_wr_start(qp_);
  for (uint64_t id = 1; id <= 16; id++) simple(id);
  EXPECT_EQ(ibv_wr_complete(qp_), 0);
  ibv_wr_start(qp_);
  simple(17);
  EXPECT_EQ(ibv_wr_complete(qp_), ENOMEM);
}

TEST_F(Builder, TooMuchInlineDataFailsTheBatch) {
  leave_default();
  std::string large(1000, 'x');
  ibv_wr_start(qp_);
  qp_->wr_id = 1;
  qp_->wr_flags = 0;
  ibv_wr_send(qp_);
  ibv_wr_set_inline_data(qp_, large.data(), large.size());
  EXPECT_NE(ibv_wr_complete(qp_), 0);
  EXPECT_EQ(group_->send.journal.head(), 0u);
}

// C4: the NIC's request has less room for inline data than the journal.
TEST_F(Builder, InlineDataThatTheNicWouldRefuseFailsTheBatch) {
  leave_default();
  group_->cap.max_inline_data = 32;
  std::string data(33, 'x');
  const ibv_data_buf parts[2] = {{data.data(), 16}, {data.data() + 16, 17}};
  for (const bool list : {false, true}) {
    ibv_wr_start(qp_);
    qp_->wr_flags = 0;
    ibv_wr_send(qp_);
    if (list) {
      ibv_wr_set_inline_data_list(qp_, 2, parts);
    } else {
      ibv_wr_set_inline_data(qp_, data.data(), data.size());
    }
    EXPECT_EQ(ibv_wr_complete(qp_), ENOMEM);
    EXPECT_EQ(group_->send.journal.head(), 0u);
  }
  ibv_wr_start(qp_);
  ibv_wr_send(qp_);
  ibv_wr_set_inline_data(qp_, data.data(), 32);
  EXPECT_EQ(ibv_wr_complete(qp_), 0);
}

TEST_F(Builder, WithoutAPathBatchesAreFlushed) {
  group::fail(*group_);
  ibv_wr_start(qp_);
  simple(1);
  simple(2);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  EXPECT_EQ(group::wr_ids(group::poll_all(cq_)), (std::vector<uint64_t>{1, 2}));
}

// The program builds a batch on one queue, and before the batch ends it waits for the control
// thread, as ibv_destroy_qp() of another QP does. Meanwhile that thread takes all queues off their
// path.
struct InABatch {
  InABatch() {
    own->real_ex = &real.ex;
    install_builder(*own);
  }
  // This thread owns the queues of all groups but, without `hot`, of the first one.
  void begin(bool hot) {
    for (Group* group : {other, third, own}) {
      if (group == own && !hot) continue;
      std::lock_guard lock(group->send.mutex);
      group->send.adopt();
    }
    (void)poll_cq(&cq->cq, 1, &wc);
    ibv_wr_start(&own->qp);
    ASSERT_EQ(own->send.build.fast, hot);
  }
  void end(uint64_t wr_id) {
    own->qp.wr_id = wr_id;
    own->qp.wr_flags = 0;
    ibv_wr_send(&own->qp);
    ibv_wr_set_sge(&own->qp, kLkey, 0x5000, 8);
    EXPECT_EQ(ibv_wr_complete(&own->qp), 0);
  }
  // Whether the call returns on the control thread while the batch is open. A call that waits for
  // the batch never returns; the bound is far beyond what a busy machine takes.
  bool control_returns(const std::function<void()>& call) {
    std::promise<void> returned;
    std::thread control([&] {
      call();
      returned.set_value();
    });
    const bool is_free =
        returned.get_future().wait_for(std::chrono::minutes(1)) == std::future_status::ready;
    if (!is_free) ibv_wr_abort(&own->qp);
    control.join();
    return is_free;
  }

  World world;
  group::CompletionQueue* cq = world.make_cq();
  Group* own = world.make_group(cq);
  Group* other = world.make_group(cq);
  Group* third = world.make_group(cq);
  FakeBuilder real;
  ibv_wc wc{};
};

int post_one(Group* group, uint64_t wr_id) {
  ibv_sge sge{0x5000, 8, kLkey};
  ibv_send_wr wr{}, *bad;
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  return post_send(group->handle(), &wr, &bad);
}

TEST(BuilderAndControl, TheControlThreadWaitsForNoBatch) {
  if (group::thread_slot_get() == nullptr) GTEST_SKIP() << "no membarrier(2) here";
  for (bool hot : {true, false}) {
    SCOPED_TRACE(hot ? "hot" : "slow");
    InABatch program;
    ASSERT_NO_FATAL_FAILURE(program.begin(hot));
    Group* const all[] = {program.own, program.other, program.third};
    ASSERT_TRUE(program.control_returns([&] {
      group::park(all);
      EXPECT_TRUE(group::fence({program.other})[0]);
    }));
    // The calls of the program do not wait, either.
    EXPECT_EQ(post_one(program.third, 6), 0);
    EXPECT_EQ(poll_cq(&program.cq->cq, 1, &program.wc), 0);
    EXPECT_TRUE(
        program.control_returns([&] { EXPECT_EQ(group::batch_is_over(*program.own), !hot); }));
    program.end(7);
    EXPECT_TRUE(group::batch_is_over(*program.own));
    // A hot batch is part of what the path was given, and a slow one parks.
    EXPECT_EQ(program.own->send.posted, hot ? 1u : 0u);
    EXPECT_EQ(program.own->send.journal.head(), 1u);
    EXPECT_EQ(program.own->send.journal.at(0).wr_id, 7u);
    EXPECT_EQ(program.third->send.posted, 0u);
    EXPECT_EQ(program.third->send.journal.head(), 1u);
  }
}

// As in the provider's own builder, one batch of a QP follows the other.
TEST_F(Builder, TheSlowBatchesOfTwoThreadsAreNotMixed) {
  leave_default();
  ibv_wr_start(qp_);
  simple(1);
  std::atomic<bool> begins{false}, began{false};
  std::thread second([&] {
    begins = true;
    ibv_wr_start(qp_);
    began = true;
    simple(3);
    EXPECT_EQ(ibv_wr_complete(qp_), 0);
  });
  while (!begins) std::this_thread::yield();
  for (int i = 0; i < 1000; i++) std::this_thread::yield();
  EXPECT_FALSE(began);
  simple(2);
  EXPECT_EQ(ibv_wr_complete(qp_), 0);
  second.join();
  ASSERT_EQ(group_->send.journal.head(), 3u);
  for (uint64_t i = 0; i < 3; i++) EXPECT_EQ(group_->send.journal.at(i).wr_id, i + 1);
}

// Another thread may post while a slow batch is open. It must not become the owner, whose own batch
// would be taken for this one.
TEST_F(Builder, ASlowBatchFollowsWhatOthersPostMeanwhile) {
  ibv_wr_start(qp_);
  simple(2);
  std::thread([&] { EXPECT_EQ(post_one(group_, 1), 0); }).join();
  EXPECT_FALSE(group_->send.bias.has_owner());
  simple(3);
  EXPECT_EQ(ibv_wr_complete(qp_), 0);
  ASSERT_EQ(group_->send.journal.head(), 3u);
  for (uint64_t i = 0; i < 3; i++) EXPECT_EQ(group_->send.journal.at(i).wr_id, i + 1);
  EXPECT_EQ(World::fake(group_, kDefault).sends.size(), 3u);
}

// A READ through a QP that is connected to itself must not pass what a change of path begins.
TEST_F(Builder, BatchesOfAQpThatIsConnectedToItselfAreNeverHot) {
  for (bool aside : {true, false}) {
    build_aside(*group_, aside);
    make_hot();
    ibv_wr_start(qp_);
    EXPECT_EQ(group_->send.build.fast, !aside && group::thread_slot_get() != nullptr);
    ibv_wr_abort(qp_);
  }
}

}  // namespace
}  // namespace shift::ops
