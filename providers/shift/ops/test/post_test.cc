// ibv_post_send, ibv_post_recv and ibv_poll_cq in each state of a group.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include "group/locked.h"
#include "group/test/asleep.h"
#include "group/test/fake.h"
#include "ops/entry.h"
#include "ops/tables.h"
#include "ops/windows.h"

namespace shift::ops {
namespace {

using group::FakeQp;
using group::Group;
using group::kBackup;
using group::kBackupLkey;
using group::kDefault;
using group::kLkey;
using group::Route;
using group::World;
using Ids = std::vector<uint64_t>;

// A chain of requests with one element each.
struct Chain {
  explicit Chain(const Ids& ids, int num_sge = 1) {
    sge = {0x5000, 8, kLkey};
    sends.resize(ids.size());
    recvs.resize(ids.size());
    for (size_t i = 0; i < ids.size(); i++) {
      sends[i] = {};
      sends[i].wr_id = ids[i];
      sends[i].sg_list = &sge;
      sends[i].num_sge = num_sge;
      sends[i].opcode = IBV_WR_SEND;
      sends[i].send_flags = IBV_SEND_SIGNALED;
      sends[i].next = i + 1 < ids.size() ? &sends[i + 1] : nullptr;
      recvs[i] = {ids[i], i + 1 < ids.size() ? &recvs[i + 1] : nullptr, &sge, num_sge};
    }
  }
  ibv_sge sge;
  std::vector<ibv_send_wr> sends;
  std::vector<ibv_recv_wr> recvs;
};

class Post : public ::testing::Test {
 protected:
  FakeQp& on_default() { return World::fake(group_, kDefault); }
  FakeQp& on_backup() { return World::fake(group_, kBackup); }

  int send(const Ids& ids, int num_sge = 1) {
    Chain chain(ids, num_sge);
    bad_send_ = nullptr;
    const int error = post_send(group_->handle(), chain.sends.data(), &bad_send_);
    if (bad_send_ != nullptr) bad_id_ = bad_send_->wr_id;
    return error;
  }
  int recv(const Ids& ids, int num_sge = 1) {
    Chain chain(ids, num_sge);
    ibv_recv_wr* bad = nullptr;
    const int error = post_recv(group_->handle(), chain.recvs.data(), &bad);
    if (bad != nullptr) bad_id_ = bad->wr_id;
    return error;
  }
  void leave_default() { ASSERT_TRUE(group::fence({group_})[0]); }
  void switch_over() {
    leave_default();
    ASSERT_EQ(group::commit(*group_, group::kBackup, group::kBackup), group::Commit::kDone);
    ASSERT_EQ(group::replay(*group_, group_->life.control.peer_received).refusal, nullptr);
  }
  Ids journalled() {
    Ids ids;
    for (uint64_t p = 0; p < group_->send.journal.head(); p++) {
      ids.push_back(group_->send.journal.at(p).wr_id);
    }
    return ids;
  }
  static Ids posted(const FakeQp& qp) {
    Ids ids;
    for (const auto& s : qp.sends) ids.push_back(s.wr.wr_id);
    return ids;
  }
  static Ids received(const FakeQp& qp) {
    Ids ids;
    for (const auto& r : qp.recvs) ids.push_back(r.wr_id);
    return ids;
  }

  World world_;
  group::CompletionQueue* cq_ = world_.make_cq();
  Group* group_ = world_.make_group(cq_);
  ibv_send_wr* bad_send_ = nullptr;
  uint64_t bad_id_ = 0;
};

// A message without bytes needs no element.
TEST_F(Post, AReceiveWithoutElementsIsTakenOnEveryPath) {
  ASSERT_EQ(recv({1}, 0), 0);
  leave_default();
  ASSERT_EQ(recv({2}, 0), 0);
  EXPECT_EQ(recv({3}, -1), EINVAL);
  ASSERT_EQ(group::commit(*group_, group::kBackup, group::kBackup), group::Commit::kDone);
  ASSERT_EQ(recv({4}, 0), 0);
  EXPECT_EQ(received(on_backup()), (Ids{1, 2, 4}));
}

// So do the receives after it. A receive whose key names no region is refused at once.
TEST_F(Post, AReceiveWaitsWhileItsRegionIsBeingRegistered) {
  switch_over();
  auto* region = world_.make_region(0x30, 0x40, group::MemoryRegion::Twin::kRunning);
  const auto recv_with = [&](uint64_t id, uint32_t lkey) {
    Chain chain({id});
    chain.sge.lkey = lkey;
    ibv_recv_wr* bad = nullptr;
    return post_recv(group_->handle(), chain.recvs.data(), &bad);
  };
  EXPECT_EQ(recv_with(7, 0x30), 0);
  EXPECT_EQ(recv({8}), 0);
  EXPECT_EQ(recv_with(9, 0xbad), EINVAL);
  EXPECT_EQ(received(on_backup()), Ids{});
  EXPECT_EQ(group::go_on(*group_), 0);
  EXPECT_EQ(received(on_backup()), Ids{});
  region->twins_set(group::MemoryRegion::Twin::kReady);
  EXPECT_EQ(group::go_on(*group_), 0);
  EXPECT_EQ(received(on_backup()), (Ids{7, 8}));
}

// A world with one QP, on which the next post is slow or hot.
struct Fresh {
  explicit Fresh(bool hot, group::Accept accept = group::Accept::kGuard) {
    group->life.errors.members[kDefault].accept = accept;
    if (!hot) return;
    EXPECT_EQ(post(Chain({9})), 0);
    EXPECT_TRUE(qp.complete_send());
  }
  int post(Chain&& chain) { return post(chain); }
  int post(Chain& chain) { return post_send(group->handle(), chain.sends.data(), &bad); }
  uint64_t journalled() const { return group->send.journal.head(); }

  World world;
  Group* const group = world.make_group(world.make_cq());
  FakeQp& qp = World::fake(group, kDefault);
  ibv_send_wr* bad = nullptr;
};

// The first call is slow and makes the thread the owner of the queue; the second one is hot.
TEST_F(Post, GoesToTheDefaultAndIntoTheJournal) {
  ASSERT_EQ(send({1, 2}), 0);
  ASSERT_EQ(send({3, 4}), 0);
  EXPECT_EQ(posted(on_default()), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(journalled(), (Ids{1, 2, 3, 4}));
  ASSERT_EQ(recv({11}), 0);
  ASSERT_EQ(recv({12, 13}), 0);
  EXPECT_EQ(received(on_default()), (Ids{11, 12, 13}));
  EXPECT_EQ(group_->recv.journal.head(), 3u);
}

TEST_F(Post, OnlyWhatTheNicAcceptedIsJournalled) {
  for (bool hot : {false, true}) {
    Fresh it(hot);
    const uint64_t before = it.journalled();
    it.qp.sends_accepted = 2;
    Chain chain({1, 2, 3, 4});
    EXPECT_EQ(it.post(chain), ENOMEM);
    EXPECT_EQ(it.bad, &chain.sends[2]);
    EXPECT_EQ(it.journalled(), before + 2);
    EXPECT_TRUE(it.world.sink.faults.empty());
  }
}

// C4: without the refusal the journal would hold a message without its data.
TEST_F(Post, OffTheDefaultInlineDataThatIsTooLongIsRefused) {
  group_->cap.max_inline_data = 32;
  char data[33] = {};
  ibv_sge parts[2] = {{reinterpret_cast<uintptr_t>(data), 16, 0},
                      {reinterpret_cast<uintptr_t>(data) + 16, 16, 0}};
  Chain chain({1, 2, 3});
  for (ibv_send_wr& wr : chain.sends) {
    wr.send_flags |= IBV_SEND_INLINE;
    wr.sg_list = parts;
    wr.num_sge = 2;
  }
  ibv_sge longer[2] = {parts[0], parts[1]};
  longer[1].length++;
  chain.sends[1].sg_list = longer;
  for (const bool parked : {true, false}) {
    if (parked) {
      leave_default();
    } else {
      switch_over();
    }
    const auto before = group_->send.journal.head();
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(post_send(group_->handle(), chain.sends.data(), &bad), ENOMEM);
    EXPECT_EQ(bad, &chain.sends[1]);
    EXPECT_EQ(group_->send.journal.head(), before + 1);
  }
}

TEST_F(Post, ADeviceThatRefusesIsAFault) {
  for (bool hot : {false, true}) {
    Fresh it(hot);
    it.qp.post_error = EIO;
    EXPECT_EQ(it.post(Chain({1})), EIO);
    ASSERT_EQ(it.world.sink.faults.size(), 1u) << hot;
    EXPECT_EQ(it.world.sink.faults[0].event, fsm::Event::kPathFault);
  }
}

// C1, C2: soft-RoCE has the requests in its ring when its doorbell fails. A program that saw the
// error would post them again.
TEST_F(Post, WhatIsQueuedWhenTheDoorbellFailsIsPostedOnce) {
  for (bool hot : {false, true}) {
    Fresh it(hot);
    const uint64_t before = it.journalled();
    it.qp.doorbell_error = EIO;
    EXPECT_EQ(it.post(Chain({1, 2})), 0) << hot;
    EXPECT_EQ(it.journalled(), before + 2);
    ASSERT_EQ(it.world.sink.faults.size(), 1u);
    EXPECT_EQ(it.world.sink.faults[0].event, fsm::Event::kPathFault);
    EXPECT_FALSE(group::errors_pass(*it.group, kDefault)) << "they are not done";
    group::leave_for(*it.group, kBackup, kBackup);
    ASSERT_EQ(group::replay(*it.group, before).refusal, nullptr);
    EXPECT_EQ(posted(World::fake(it.group, kBackup)), (Ids{1, 2}));
  }
}

TEST_F(Post, WithoutProtectionAFailedDoorbellIsShown) {
  for (bool hot : {false, true}) {
    Fresh it(hot, group::Accept::kPass);
    const uint64_t before = it.journalled();
    it.qp.doorbell_error = ENODEV;
    EXPECT_EQ(it.post(Chain({1, 2})), ENODEV) << hot;
    EXPECT_EQ(it.journalled(), before);
    EXPECT_TRUE(group::errors_pass(*it.group, kDefault));
  }
}

// The protection ends between the failed doorbell and the layer's decision: nobody would replay the
// request.
TEST_F(Post, ADoorbellThatFailsWhileTheProtectionEndsIsShown) {
  const pid_t poster = gettid();
  for (bool hot : {false, true}) {
    Fresh it(hot);
    const uint64_t before = it.journalled();
    it.qp.doorbell_error = EIO;
    std::atomic<bool> is_held{false}, is_posted{false};
    std::thread control([&] {
      const group::CqLock lock(*it.group);  // as in errors_pass()
      is_held = true;
      while (!is_posted && !group::is_asleep(poster)) sched_yield();
      it.group->life.errors.members[kDefault].accept = group::Accept::kPass;
    });
    while (!is_held) sched_yield();
    EXPECT_EQ(it.post(Chain({1})), EIO) << hot;
    is_posted = true;
    control.join();
    EXPECT_EQ(it.journalled(), before);
  }
}

// An error of the application's own is kept until the NIC has said that its port is up, and the
// device refuses the next request meanwhile. No NIC gives the error of that request.
TEST_F(Post, WhatIsTakenOverBehindAKeptErrorGetsItsErrorToo) {
  ASSERT_EQ(send({1, 2}), 0);
  on_default().flushes = false;
  on_default().break_with(IBV_WC_LOC_PROT_ERR);
  ibv_wc wc[8];
  ASSERT_EQ(poll_cq(&cq_->cq, 8, wc), 0);
  on_default().doorbell_error = EIO;
  ASSERT_EQ(send({3}), 0);
  EXPECT_FALSE(group::errors_pass(*group_, kDefault));
  group::fail(*group_);
  ASSERT_EQ(poll_cq(&cq_->cq, 8, wc), 3);
  EXPECT_EQ(wc[0].wr_id, 1u);
  EXPECT_EQ(wc[0].status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(wc[2].wr_id, 3u);
  EXPECT_EQ(wc[2].status, IBV_WC_WR_FLUSH_ERR);
}

// C5: the NIC may have executed the request.
TEST_F(Post, OffTheDefaultWhatIsQueuedWhenTheDoorbellFailsIsInFlight) {
  switch_over();
  on_backup().doorbell_error = EIO;
  EXPECT_EQ(send({1}), 0);
  EXPECT_EQ(group_->send.posted, 1u);
  ASSERT_FALSE(world_.sink.faults.empty());
  EXPECT_EQ(world_.sink.faults.back().event, fsm::Event::kPathFault);
}

TEST_F(Post, CompletionsAreCountedOnTheHotPath) {
  ASSERT_EQ(send({1, 2, 3}), 0);
  ASSERT_EQ(recv({11}), 0);
  ibv_wc wc[8];
  ASSERT_EQ(poll_cq(&cq_->cq, 8, wc), 0);  // the thread becomes the owner
  on_default().complete_send();
  on_default().complete_recv();
  on_default().complete_send();
  ASSERT_EQ(poll_cq(&cq_->cq, 8, wc), 3);
  EXPECT_EQ(group_->counters.done[0], 2u);
  EXPECT_EQ(group_->counters.done[1], 1u);
}

TEST_F(Post, AHotPollHoldsAnErrorBack) {
  ASSERT_EQ(send({1, 2, 3}), 0);
  ibv_wc wc[8];
  ASSERT_EQ(poll_cq(&cq_->cq, 8, wc), 0);
  on_default().complete_send();
  on_default().break_with(IBV_WC_RETRY_EXC_ERR);
  ASSERT_EQ(poll_cq(&cq_->cq, 8, wc), 1);
  EXPECT_EQ(wc[0].wr_id, 1u);
  EXPECT_EQ(group_->counters.done[0], 1u);
  ASSERT_EQ(world_.sink.faults.size(), 1u);
  EXPECT_EQ(poll_cq(&cq_->cq, 8, wc), 0);
}

TEST_F(Post, WhileThePathChangesRequestsAreParked) {
  ASSERT_EQ(send({1}), 0);
  leave_default();
  ASSERT_EQ(send({2, 3}), 0);
  ASSERT_EQ(recv({11}), 0);
  EXPECT_EQ(journalled(), (Ids{1, 2, 3}));
  EXPECT_EQ(on_default().sends.size(), 2u);  // the first one and the marker
  EXPECT_TRUE(on_backup().sends.empty());
  EXPECT_TRUE(on_backup().recvs.empty());
}

// The layer, like the NIC, takes no more than the queue's depth, and the caller learns which
// request was refused first.
TEST_F(Post, TheParkingPlaceHasTheQueuesDepth) {
  leave_default();
  Ids ids;
  for (uint64_t id = 1; id <= 16; id++) ids.push_back(id);
  ASSERT_EQ(send(ids), 0);
  EXPECT_EQ(send({17}), ENOMEM);
  EXPECT_EQ(bad_id_, 17u);
  ASSERT_EQ(recv(ids), 0);
  EXPECT_EQ(recv({17}), ENOMEM);
}

TEST_F(Post, WhatTheNicWouldRefuseIsNotParked) {
  leave_default();
  EXPECT_EQ(send({1}, 3), EINVAL);
  EXPECT_EQ(send({1}, -1), EINVAL);
  EXPECT_EQ(recv({1}, 3), EINVAL);
  EXPECT_EQ(bad_id_, 1u);
  EXPECT_EQ(group_->send.journal.head(), 0u);
  EXPECT_EQ(group_->recv.journal.head(), 0u);
}

TEST_F(Post, OnTheBackupRequestsFlowWithItsKeys) {
  switch_over();
  ASSERT_EQ(send({1, 2}), 0);
  ASSERT_EQ(recv({11, 12}), 0);
  EXPECT_EQ(posted(on_backup()), (Ids{1, 2}));
  EXPECT_EQ(received(on_backup()), (Ids{11, 12}));
  EXPECT_EQ(on_backup().sends[0].sges.at(0).lkey, kBackupLkey);
  EXPECT_EQ(on_backup().recvs[0].sges.at(0).lkey, kBackupLkey);
  while (on_backup().complete_send()) {
  }
  while (on_backup().complete_recv()) {
  }
  ibv_wc wc[8];
  ASSERT_EQ(poll_cq(&cq_->cq, 8, wc), 4);
  for (int i = 0; i < 4; i++) EXPECT_EQ(wc[i].qp_num, group_->qpn());
}

TEST_F(Post, AFurtherMemberThatRefusesIsAFaultOfThatMember) {
  switch_over();
  on_backup().post_error = EIO;
  EXPECT_EQ(send({1}), 0);  // accepted: the round decides what becomes of it
  ASSERT_FALSE(world_.sink.faults.empty());
  EXPECT_EQ(world_.sink.faults.back().event, fsm::Event::kPathFault);
  EXPECT_EQ(world_.sink.faults.back().member, kBackup);
}

// C6: the request would be refused on every further path, too.
TEST_F(Post, OffTheDefaultUnregisteredMemoryIsNoFaultOfThePath) {
  switch_over();
  world_.make_region(0x30, 0x40, group::MemoryRegion::Twin::kFailed);
  Chain chain({1});
  chain.sge.lkey = 0x30;
  EXPECT_EQ(post_send(group_->handle(), chain.sends.data(), &bad_send_), 0);
  ASSERT_FALSE(world_.sink.faults.empty());
  EXPECT_EQ(world_.sink.faults.back().event, fsm::Event::kReplayRefused);
}

// Some errors are a fault of the path; with the others every NIC would refuse the request.
TEST_F(Post, OffTheDefaultTheErrorSaysWhoseFaultARefusalIs) {
  for (int error : {EIO, ENODEV, ENOMEM, -ENOMEM, EINVAL, -EINVAL, EOPNOTSUPP}) {
    const bool of_path = error != EINVAL && error != -EINVAL && error != EOPNOTSUPP;
    World world;
    Group* g = world.make_group(world.make_cq());
    group::leave_for(*g, kBackup, kBackup);
    ASSERT_EQ(group::replay(*g, 0).refusal, nullptr);
    World::fake(g, kBackup).post_error = error;
    Chain chain({1});
    ibv_send_wr* bad_send;
    EXPECT_EQ(post_send(g->handle(), chain.sends.data(), &bad_send), 0) << error;
    ASSERT_EQ(world.sink.faults.size(), 1u) << error;
    EXPECT_EQ(world.sink.faults.back().event,
              of_path ? fsm::Event::kPathFault : fsm::Event::kReplayRefused)
        << error;
    ibv_recv_wr* bad_recv = nullptr;
    EXPECT_EQ(post_recv(g->handle(), chain.recvs.data(), &bad_recv), of_path ? 0 : error);
    EXPECT_EQ(bad_recv, of_path ? nullptr : chain.recvs.data());
    EXPECT_EQ(world.sink.faults.size(), of_path ? 2u : 1u) << error;
    EXPECT_EQ(g->recv.journal.head(), of_path ? 1u : 0u) << error;
  }
}

// The error is judged in the same way in the middle of a round.
TEST_F(Post, WhatEveryNicRefusesIsNotReplayedOnAnother) {
  for (int error : {EIO, EINVAL}) {
    World world;
    Group* g = world.make_group(world.make_cq());
    ASSERT_TRUE(group::fence({g})[0]);
    Chain chain({1});
    ibv_send_wr* bad;
    ASSERT_EQ(post_send(g->handle(), chain.sends.data(), &bad), 0);
    World::fake(g, kBackup).post_error = error;
    ASSERT_EQ(group::commit(*g, kBackup, kBackup), group::Commit::kDone);
    const group::ReplayResult result = group::replay(*g, 0);
    EXPECT_EQ(result.path_broken, error == EIO);
    EXPECT_EQ(result.refusal == nullptr, error == EIO);
  }
}

// The NIC turns the bind into a request, which will complete like any other.
TEST_F(Post, ABoundWindowIsInTheJournal) {
  world_.nic(kDefault).verbs.context.ops.bind_mw = [](ibv_qp*, ibv_mw* mw, ibv_mw_bind*) {
    mw->rkey++;
    return 0;
  };
  ibv_mw mw{};
  mw.rkey = 0x70;
  ibv_mr mr{};
  ibv_mw_bind bind{};
  bind.wr_id = 2;
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info = {&mr, 0x5000, 8, IBV_ACCESS_REMOTE_WRITE};
  ASSERT_EQ(send({1}), 0);
  ASSERT_EQ(bind_window(*group_, &mw, &bind), 0);
  EXPECT_EQ(mw.rkey, 0x71u);
  EXPECT_EQ(journalled(), (Ids{1, 2}));
  EXPECT_TRUE(group_->send.journal.is_signaled(group_->send.journal.at(1)));
  leave_default();
  EXPECT_EQ(bind_window(*group_, &mw, &bind), EOPNOTSUPP);
  EXPECT_EQ(mw.rkey, 0x71u);
  EXPECT_EQ(journalled(), (Ids{1, 2}));
}

TEST_F(Post, AfterTheErrorRequestsAreFlushed) {
  group::fail(*group_);
  ASSERT_EQ(send({1, 2}), 0);
  ASSERT_EQ(recv({11}), 0);
  ibv_wc wc[8];
  ASSERT_EQ(poll_cq(&cq_->cq, 8, wc), 3);
  for (int i = 0; i < 3; i++) EXPECT_EQ(wc[i].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ((Ids{wc[0].wr_id, wc[1].wr_id, wc[2].wr_id}), (Ids{1, 2, 11}));
  // Any number of requests is taken, since none stays outstanding.
  for (uint64_t id = 0; id < 100; id++) ASSERT_EQ(send({id}), 0);
}

}  // namespace
}  // namespace shift::ops
