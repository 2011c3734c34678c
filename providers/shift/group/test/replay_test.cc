// The new path: requests that the peer's counter proves executed are completed; the others run
// again, in order and with the backup's keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "group/test/fake.h"
#include "util/test/random.h"

namespace shift::group {
namespace {

using Ids = std::vector<uint64_t>;

class Replay : public ::testing::Test {
 protected:
  FakeQp& on_default() { return World::fake(group_, kDefault); }
  FakeQp& on_backup() { return World::fake(group_, kBackup); }

  // Does everything before the replay, as the control thread does it.
  void leave_default() {
    ASSERT_TRUE(fence({group_})[0]);
    ASSERT_EQ(commit(*group_, kBackup, kBackup), Commit::kDone);
    if (knows_keys_) group_->life.remote_keys[kBackup][kRkey] = kBackupRkey;
  }
  ReplayResult replay_with(uint64_t peer_received) { return replay(*group_, peer_received); }
  // The backup executes and acknowledges all its requests.
  Ids finish() {
    while (on_backup().complete_send()) {
    }
    return wr_ids(poll_all(cq_));
  }

  World world_;
  CompletionQueue* cq_ = world_.make_cq();
  Group* group_ = world_.make_group(cq_);
  bool knows_keys_ = true;
};

TEST_F(Replay, WhatThePeerHasIsCompletedAndTheRestPostedAgain) {
  for (uint64_t id = 1; id <= 5; id++) post_send(*group_, id, IBV_WR_SEND);
  on_default().complete_send();
  leave_default();
  const auto result = replay_with(3);
  ASSERT_EQ(result.refusal, nullptr);
  EXPECT_EQ(result.completed, 2u);
  EXPECT_EQ(result.posted, 2u);
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{1, 2, 3}));
  EXPECT_EQ(posted_ids(on_backup(), *group_), (Ids{4, 5}));
  EXPECT_EQ(finish(), (Ids{4, 5}));
  EXPECT_EQ(group_->counters.done[0], 5u);
}

TEST_F(Replay, CompletionsMadeFromTheCounterLookLikeTheNics) {
  post_send(*group_, 1, IBV_WR_RDMA_WRITE_WITH_IMM);
  post_send(*group_, 2, IBV_WR_RDMA_WRITE);
  post_send(*group_, 3, IBV_WR_SEND);
  leave_default();
  ASSERT_EQ(replay_with(2).refusal, nullptr);
  const auto completions = poll_all(cq_);
  ASSERT_EQ(wr_ids(completions), (Ids{1, 2, 3}));
  EXPECT_EQ(completions[0].opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(completions[1].opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(completions[2].opcode, IBV_WC_SEND);
  for (const ibv_wc& wc : completions) {
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.qp_num, group_->qpn());
    EXPECT_EQ(wc.byte_len, 8u);
    EXPECT_EQ(wc.wc_flags, wc.wr_id == 1 ? unsigned{IBV_WC_WITH_IMM} : 0u);
  }
}

// During a round the control thread does not listen, so what commit() has asked for is asked again.
TEST_F(Replay, ReceivesThatWaitForTheirRegionAreAskedForAgain) {
  world_.make_region(0x30, 0x40, MemoryRegion::Twin::kRunning);
  post_recv(*group_, 1);
  post_recv(*group_, 2, 0x30);
  leave_default();
  ASSERT_EQ(on_backup().recvs.size(), 1u);
  const int before = world_.sink.pump_wanted_calls;
  ASSERT_EQ(replay_with(0).refusal, nullptr);
  EXPECT_EQ(world_.sink.pump_wanted_calls, before + 1);
}

TEST_F(Replay, NothingIsAskedForWhenAllReceivesArePosted) {
  post_recv(*group_, 1);
  leave_default();
  ASSERT_EQ(replay_with(0).refusal, nullptr);
  EXPECT_EQ(world_.sink.pump_wanted_calls, 0);
}

// A WRITE before an executed notification was executed, too: RC executes in order (C3).
TEST_F(Replay, SilentRequestsBeforeAnExecutedNotificationDoNotRunAgain) {
  post_send(*group_, 1, IBV_WR_RDMA_WRITE, false);
  post_send(*group_, 2, IBV_WR_SEND, false);
  post_send(*group_, 3, IBV_WR_RDMA_WRITE, false);
  post_send(*group_, 4, IBV_WR_SEND);
  leave_default();
  ASSERT_EQ(replay_with(1).refusal, nullptr);
  EXPECT_EQ(posted_ids(on_backup(), *group_), (Ids{3, 4}));
  EXPECT_EQ(finish(), (Ids{4}));
}

TEST_F(Replay, KeysAreTranslated) {
  post_send(*group_, 1, IBV_WR_RDMA_WRITE);
  post_send(*group_, 2, IBV_WR_ATOMIC_FETCH_AND_ADD);
  group_->send.journal.init(16, 2, 64, false);  // none of it was posted, so atomics may move
  leave_default();
  park_send(*group_, 1, IBV_WR_RDMA_WRITE);
  park_send(*group_, 2, IBV_WR_ATOMIC_FETCH_AND_ADD);
  ASSERT_EQ(replay_with(0).refusal, nullptr);
  ASSERT_EQ(on_backup().sends.size(), 2u);
  for (const PostedSend& send : on_backup().sends) {
    EXPECT_EQ(send.sges.at(0).lkey, kBackupLkey);
    EXPECT_EQ(send.sges.at(0).addr, 0x5000u);
  }
  EXPECT_EQ(on_backup().sends[0].wr.wr.rdma.rkey, kBackupRkey);
  EXPECT_EQ(on_backup().sends[0].wr.wr.rdma.remote_addr, 0x9001u);
  EXPECT_EQ(on_backup().sends[1].wr.wr.atomic.rkey, kBackupRkey);
  EXPECT_EQ(on_backup().sends[1].wr.wr.atomic.remote_addr, 0x9002u);
}

TEST_F(Replay, InlinePayloadNeedsNoKey) {
  char text[8] = "payload";
  ibv_sge sge{reinterpret_cast<uintptr_t>(text), sizeof text, 0xdead};
  ibv_send_wr wr{};
  wr.wr_id = 1;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
  post_send(*group_, wr);
  std::fill_n(text, sizeof text, '?');
  leave_default();
  ASSERT_EQ(replay_with(0).refusal, nullptr);
  ASSERT_EQ(on_backup().sends.size(), 1u);
  const ibv_sge& copy = on_backup().sends[0].sges.at(0);
  EXPECT_EQ(std::string(reinterpret_cast<char*>(copy.addr)), "payload");
}

// ---- a READ before an executed notification: its data may be lost, so it runs again

TEST_F(Replay, AReadRunsAgainAndWhatFollowsDoesNotOvertakeIt) {
  post_send(*group_, 1, IBV_WR_RDMA_READ);
  post_send(*group_, 2, IBV_WR_SEND);
  post_send(*group_, 3, IBV_WR_SEND, false);
  leave_default();
  ASSERT_EQ(replay_with(2).refusal, nullptr);
  EXPECT_TRUE(poll_all(cq_).empty()) << "nothing completes before the READ";
  ASSERT_EQ(on_backup().sends.size(), 3u);
  EXPECT_EQ(on_backup().sends[0].wr.opcode, IBV_WR_RDMA_READ);
  EXPECT_EQ(on_backup().sends[0].wr.wr.rdma.rkey, kBackupRkey);
  EXPECT_EQ(on_backup().sends[0].sges.at(0).lkey, kBackupLkey);
  // The SENDs were delivered: stand-ins that move nothing take their places. A SEND without a
  // signal gets one, too, and comes back if the READ fails.
  for (size_t i : {1u, 2u}) {
    EXPECT_EQ(on_backup().sends[i].wr.opcode, IBV_WR_RDMA_WRITE);
    EXPECT_EQ(on_backup().sends[i].wr.wr_id, i + 1);
    EXPECT_TRUE(on_backup().sends[i].sges.empty());
  }
  EXPECT_EQ(on_backup().sends[1].wr.send_flags, IBV_SEND_SIGNALED);
  EXPECT_EQ(on_backup().sends[2].wr.send_flags, 0u);
  while (on_backup().complete_send()) {
  }
  const auto completions = poll_all(cq_);
  ASSERT_EQ(wr_ids(completions), (Ids{1, 2}));
  EXPECT_EQ(completions[0].opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(completions[1].opcode, IBV_WC_SEND);
}

TEST_F(Replay, AReadWhoseKeyThePeerDidNotTellIsRefused) {
  knows_keys_ = false;
  post_send(*group_, 1, IBV_WR_RDMA_READ);
  post_send(*group_, 2, IBV_WR_SEND);
  leave_default();
  EXPECT_NE(replay_with(1).refusal, nullptr);
  EXPECT_TRUE(on_backup().sends.empty());
}

// A fence flag holds a request back until the READs and atomics before it have ended. So the peer
// may use its memory for something else when it has seen a request with this flag.
TEST_F(Replay, WhatAnExecutedFenceHasWaitedForDoesNotRunAgain) {
  for (ibv_wr_opcode opcode :
       {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
    for (bool signaled : {false, true}) {
      World world;
      CompletionQueue* cq = world.make_cq();
      Group* group = world.make_group(cq);
      post_send(*group, 1, opcode, signaled);
      ibv_send_wr fenced{};
      fenced.wr_id = 2;
      fenced.opcode = IBV_WR_SEND;
      fenced.send_flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED;
      post_send(*group, fenced);
      post_send(*group, 3, IBV_WR_RDMA_READ);
      post_send(*group, 4, IBV_WR_SEND);
      ASSERT_TRUE(fence({group})[0]);
      ASSERT_EQ(commit(*group, kBackup, kBackup), Commit::kDone);
      group->life.control.peer_received = 1;
      EXPECT_EQ(rkeys_missing(*group), (std::vector<uint32_t>{kRkey})) << "of the second READ";
      group->life.remote_keys[kBackup][kRkey] = kBackupRkey;
      ASSERT_EQ(replay(*group, 1).refusal, nullptr);
      EXPECT_EQ(wr_ids(poll_all(cq)), signaled ? (Ids{1, 2}) : (Ids{2}));
      EXPECT_EQ(posted_ids(World::fake(group, kBackup), *group), (Ids{3, 4}));
    }
  }
}

TEST_F(Replay, AFenceThatWasNotExecutedProvesNothing) {
  post_send(*group_, 1, IBV_WR_RDMA_READ);
  post_send(*group_, 2, IBV_WR_SEND);
  ibv_send_wr fenced{};
  fenced.wr_id = 3;
  fenced.opcode = IBV_WR_SEND;
  fenced.send_flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED;
  post_send(*group_, fenced);
  leave_default();
  ASSERT_EQ(replay_with(1).refusal, nullptr);
  EXPECT_EQ(posted_ids(on_backup(), *group_), (Ids{1, 2, 3}));
  EXPECT_EQ(on_backup().sends[0].wr.opcode, IBV_WR_RDMA_READ);
}

// ---- C5

TEST_F(Replay, AnAtomicInFlightIsNotRepeated) {
  for (ibv_wr_opcode opcode : {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    for (bool executed : {false, true}) {
      World world;
      CompletionQueue* cq = world.make_cq();
      Group* group = world.make_group(cq);
      post_send(*group, 1, opcode);
      post_send(*group, 2, IBV_WR_SEND);
      ASSERT_TRUE(fence({group})[0]);
      group->life.remote_keys[kBackup][kRkey] = kBackupRkey;
      EXPECT_NE(replay(*group, executed ? 1 : 0).refusal, nullptr);
      EXPECT_TRUE(World::fake(group, kBackup).sends.empty());
      EXPECT_TRUE(poll_all(cq).empty());
    }
  }
}

TEST_F(Replay, ACompletedAtomicIsNoObstacle) {
  post_send(*group_, 1, IBV_WR_ATOMIC_FETCH_AND_ADD);
  post_send(*group_, 2, IBV_WR_SEND);
  on_default().complete_send();
  leave_default();
  EXPECT_EQ(replay_with(0).refusal, nullptr);
  EXPECT_EQ(posted_ids(on_backup(), *group_), (Ids{2}));
}

constexpr ibv_wr_opcode kWindowRequests[] = {IBV_WR_LOCAL_INV, IBV_WR_BIND_MW,
                                             IBV_WR_SEND_WITH_INV};

// It is not known whether the request was executed, and a window cannot be queried.
TEST_F(Replay, WindowRequestsInFlightAreRefused) {
  for (ibv_wr_opcode opcode : kWindowRequests) {
    for (int target : {kDefault, kBackup}) {
      World world;
      Group* group = world.make_group(world.make_cq());
      post_send(*group, 1, opcode);
      leave_for(*group, target, target);
      EXPECT_NE(replay(*group, 0).refusal, nullptr) << opcode;
      EXPECT_TRUE(posted_ids(World::fake(group, kBackup), *group).empty());
    }
  }
}

TEST_F(Replay, ParkedWindowRequestsRunWhereTheWindowIs) {
  for (ibv_wr_opcode opcode : kWindowRequests) {
    for (int member : {kDefault, kBackup}) {
      for (int peer_member : {kDefault, kBackup}) {
        SCOPED_TRACE(std::to_string(opcode) + std::to_string(member) + std::to_string(peer_member));
        World world;
        Group* group = world.make_group(world.make_cq());
        leave_for(*group, member, peer_member);
        park_send(*group, 1, opcode);
        const bool is_there = (opcode == IBV_WR_SEND_WITH_INV ? peer_member : member) == kDefault;
        EXPECT_EQ(replay(*group, 0).refusal == nullptr, is_there);
        EXPECT_EQ(posted_ids(World::fake(group, member), *group), is_there ? Ids{1} : Ids{});
      }
    }
  }
}

TEST_F(Replay, OffTheDefaultWindowRequestsAreRefused) {
  for (ibv_wr_opcode opcode : kWindowRequests) {
    World world;
    Group* group = world.make_group(world.make_cq());
    leave_for(*group, kBackup, kBackup);
    ASSERT_EQ(replay(*group, 0).refusal, nullptr);
    park_send(*group, 1, opcode);
    std::lock_guard lock(group->send.mutex);
    EXPECT_EQ(pump(*group), ENOKEY) << opcode;
    EXPECT_TRUE(posted_ids(World::fake(group, kBackup), *group).empty());
  }
}

// ---- C11: an impossible counter

TEST_F(Replay, ACounterOutOfRangeChangesNothing) {
  for (uint32_t start : {0u, 1000u, UINT32_MAX - 2}) {
    for (int64_t told : {1, 2, 3, 4, 5, 6, 1 << 20}) {
      World world;
      CompletionQueue* cq = world.make_cq();
      Group* group = world.make_group(cq);
      group->send.journal.start_counts_at(0, start);
      for (uint64_t id = 1; id <= 5; id++) post_send(*group, id, IBV_WR_SEND);
      for (int i = 0; i < 3; i++) World::fake(group, kDefault).complete_send();
      ASSERT_TRUE(fence({group})[0]);
      ASSERT_EQ(poll_all(cq).size(), 3u);
      ASSERT_EQ(commit(*group, kBackup, kBackup), Commit::kDone);
      const bool possible = told >= 3 && told <= 5;
      const auto result = replay(*group, uint64_t{start} + static_cast<uint64_t>(told));
      EXPECT_EQ(result.refusal == nullptr, possible) << start << " + " << told;
      if (possible) continue;
      EXPECT_TRUE(World::fake(group, kBackup).sends.empty());
      EXPECT_TRUE(poll_all(cq).empty());
      EXPECT_EQ(group->counters.done[0], 3u);
    }
  }
}

// ---- keys

TEST_F(Replay, MissingRemoteKeysAreListedOnceInOrder) {
  knows_keys_ = false;
  auto post_with = [&](uint64_t id, ibv_wr_opcode opcode, uint32_t rkey, uint32_t length) {
    ibv_sge sge{0x5000, length, kLkey};
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.wr.rdma.rkey = rkey;
    post_send(*group_, wr);
  };
  post_with(1, IBV_WR_RDMA_WRITE, 7, 8);
  post_with(2, IBV_WR_SEND, 99, 8);  // a SEND has no rkey, whatever the bytes are
  post_with(3, IBV_WR_RDMA_READ, 5, 8);
  post_with(4, IBV_WR_RDMA_WRITE_WITH_IMM, 7, 8);
  post_with(5, IBV_WR_RDMA_WRITE_WITH_IMM, 98, 0);  // moves no byte, so it may carry any number
  leave_default();
  EXPECT_EQ(rkeys_missing(*group_), (std::vector<uint32_t>{7, 5}));
  group_->life.remote_keys[kBackup][7] = 70;
  EXPECT_EQ(rkeys_missing(*group_), (std::vector<uint32_t>{5}));
}

// Those of the requests that the queue has room for: what is posted next will name them, too.
TEST_F(Replay, RecentRemoteKeysAreListedOnceInOrder) {
  knows_keys_ = false;
  leave_for(*group_, kBackup, kBackup);
  const auto post_with = [&](uint64_t id, uint32_t rkey) {
    ibv_sge sge{0x5000, 8, kLkey};
    ibv_send_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma.rkey = rkey;
    group_->send.journal.append(wr);
  };
  for (const uint32_t rkey : {7, 5, 7}) post_with(1, rkey);
  EXPECT_EQ(rkeys_recent(*group_), (std::vector<uint32_t>{7, 5}));
  group_->life.remote_keys[kBackup][7] = 70;
  EXPECT_EQ(rkeys_recent(*group_), (std::vector<uint32_t>{5}));
  for (uint32_t i = 0; i < group_->send.journal.depth(); i++) post_with(2, 100 + i);
  EXPECT_EQ(rkeys_recent(*group_).front(), 100u);
  EXPECT_EQ(rkeys_recent(*group_).size(), group_->send.journal.depth());
}

// The peer may have deregistered such a region as soon as it saw the notification.
TEST_F(Replay, NoKeyIsAskedForWhatWasExecuted) {
  knows_keys_ = false;
  post_send(*group_, 1, IBV_WR_RDMA_WRITE);
  post_send(*group_, 2, IBV_WR_SEND);
  leave_default();
  group_->life.control.peer_received = 1;
  EXPECT_TRUE(rkeys_missing(*group_).empty());
  group_->life.control.peer_received = 0;
  EXPECT_EQ(rkeys_missing(*group_), (std::vector<uint32_t>{kRkey}));
}

TEST_F(Replay, TheKeyOfAReadThatRunsAgainIsAskedFor) {
  knows_keys_ = false;
  post_send(*group_, 1, IBV_WR_RDMA_READ);
  post_send(*group_, 2, IBV_WR_SEND);
  leave_default();
  group_->life.control.peer_received = 1;
  EXPECT_EQ(rkeys_missing(*group_), (std::vector<uint32_t>{kRkey}));
}

TEST_F(Replay, AnEmptyWriteNeedsNoKey) {
  knows_keys_ = false;
  ibv_send_wr wr{};
  wr.wr_id = 1;
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.send_flags = IBV_SEND_SIGNALED;
  post_send(*group_, wr);
  leave_default();
  ASSERT_EQ(replay_with(0).refusal, nullptr);
  EXPECT_EQ(world_.sink.pump_wanted_calls, 0);
  EXPECT_EQ(finish(), (Ids{1}));
}

TEST_F(Replay, WhatWaitsForAKeyGoesOnWhenItIsKnown) {
  knows_keys_ = false;
  leave_default();
  park_send(*group_, 1, IBV_WR_SEND);
  park_send(*group_, 2, IBV_WR_RDMA_WRITE);
  park_send(*group_, 3, IBV_WR_SEND);
  ASSERT_EQ(replay_with(0).refusal, nullptr);
  EXPECT_EQ(posted_ids(on_backup(), *group_), (Ids{1}));
  EXPECT_EQ(world_.sink.pump_wanted_calls, 1);
  EXPECT_EQ(rkeys_missing(*group_), (std::vector<uint32_t>{kRkey}));
  group_->life.remote_keys[kBackup][kRkey] = kBackupRkey;
  {
    std::lock_guard lock(group_->send.mutex);
    EXPECT_EQ(pump(*group_), 0);
  }
  EXPECT_EQ(finish(), (Ids{1, 2, 3}));
}

TEST_F(Replay, AnUnknownLocalKeyIsRefused) {
  ibv_sge sge{0x5000, 8, 0xbad};
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  post_send(*group_, wr);
  leave_default();
  EXPECT_NE(replay_with(0).refusal, nullptr);
  EXPECT_TRUE(on_backup().sends.empty());
}

TEST_F(Replay, AnEmptyElementNeedsNoLocalKey) {
  ibv_sge sge{0, 0, 0xbad};
  ibv_send_wr wr{};
  wr.wr_id = 1;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  post_send(*group_, wr);
  leave_default();
  ASSERT_EQ(replay_with(0).refusal, nullptr);
  EXPECT_EQ(finish(), (Ids{1}));
}

TEST_F(Replay, ARegistrationUnderWayIsWaitedFor) {
  MemoryRegion* region = world_.make_region(0x30, 0x40, MemoryRegion::Twin::kRunning);
  ibv_sge sge{0x5000, 8, 0x30};
  ibv_send_wr wr{};
  wr.wr_id = 1;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  post_send(*group_, wr);
  leave_default();
  park_send(*group_, 2, IBV_WR_SEND);
  EXPECT_EQ(replay_with(0).refusal, nullptr);
  EXPECT_TRUE(on_backup().sends.empty()) << "in order";
  EXPECT_TRUE(waits_for_registration(*group_));
  EXPECT_EQ(world_.sink.pump_wanted_calls, 1);
  region->members[kBackup].twin = MemoryRegion::Twin::kReady;
  EXPECT_FALSE(waits_for_registration(*group_));
  {
    std::lock_guard lock(group_->send.mutex);
    EXPECT_EQ(pump(*group_), 0);
  }
  EXPECT_EQ(finish(), (Ids{1, 2}));
}

TEST_F(Replay, APathThatRefusesIsBroken) {
  post_send(*group_, 1, IBV_WR_SEND);
  leave_default();
  on_backup().post_error = EIO;
  const auto result = replay_with(0);
  EXPECT_EQ(result.refusal, nullptr) << "another path may take it";
  EXPECT_TRUE(result.path_broken);
}

// Soft-RoCE's: the request lies in the send queue, and no request is named as the bad one.
TEST_F(Replay, ADoorbellThatFailsBreaksThePathToo) {
  post_send(*group_, 1, IBV_WR_SEND);
  leave_default();
  on_backup().doorbell_error = EPERM;
  const auto result = replay_with(0);
  EXPECT_EQ(result.refusal, nullptr) << "another path may take it";
  EXPECT_TRUE(result.path_broken);
  EXPECT_EQ(group_->send.given_from, UINT64_MAX) << "nobody knows what the NIC has";
}

// ---- receives

TEST_F(Replay, ReceivesThatWereNotConsumedMoveInOrder) {
  for (uint64_t id = 1; id <= 5; id++) post_recv(*group_, id);
  on_default().complete_recv();
  on_default().complete_recv();
  leave_default();
  Ids moved;
  for (const PostedRecv& recv : on_backup().recvs) {
    moved.push_back(recv.wr_id);
    EXPECT_EQ(recv.sges.at(0).lkey, kBackupLkey);
  }
  EXPECT_EQ(moved, (Ids{3, 4, 5}));
  EXPECT_EQ(group_->recv.route, Route::kOnPath);
  while (on_backup().complete_recv()) {
  }
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{1, 2, 3, 4, 5}));
  EXPECT_EQ(notifications_received(*group_), 5u);
}

TEST_F(Replay, AReceiveWithoutAKeyStopsTheMove) {
  post_recv(*group_, 1, 0xbad);
  ASSERT_TRUE(fence({group_})[0]);
  EXPECT_EQ(commit(*group_, kBackup, kBackup), Commit::kKeyMissing);
}

TEST_F(Replay, AWaitingApplicationIsWokenByTheBackupToo) {
  cq_->armed = true;
  leave_default();
  EXPECT_GE(World::fake(cq_, kBackup).notify_requests, 1);
  EXPECT_EQ(World::fake(cq_, kBackup).last_notify_solicited, 0);
}

// ---- C1, C2 and C3 together, with random traffic. A random part of it is executed, acknowledged
// and polled.

struct Wr {
  ibv_wr_opcode opcode;
  bool signaled, fenced;
};

void check_once(Random& random) {
  World world;
  CompletionQueue* cq = world.make_cq();
  World::Options options;
  options.depth = 64;
  options.all_signaled = random.chance(10);
  Group* group = world.make_group(cq, cq, options);
  const uint32_t start = random.chance(50) ? 0 : UINT32_MAX - random.below(40);
  group->send.journal.start_counts_at(0, start);
  constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
                                        IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ};
  const uint32_t kinds = random.chance(50) ? 4 : 5;
  const uint32_t percent_signaled = random.below(101);
  std::vector<Wr> wrs;
  auto add = [&](auto post) {
    const Wr wr{kOpcodes[random.below(kinds)], random.chance(percent_signaled), random.chance(10)};
    unsigned flags = 0;
    if (wr.signaled) flags |= IBV_SEND_SIGNALED;
    if (wr.fenced) flags |= IBV_SEND_FENCE;
    ibv_sge sge{0x5000, 8, kLkey};
    ibv_send_wr posted{};
    posted.wr_id = wrs.size();
    posted.sg_list = &sge;
    posted.num_sge = 1;
    posted.opcode = wr.opcode;
    posted.send_flags = flags;
    posted.wr.rdma = {0x9000, kRkey};
    post(*group, posted);
    wrs.push_back({wr.opcode, wr.signaled || options.all_signaled, wr.fenced});
  };
  for (uint32_t n = random.below(40); n > 0; n--) {
    add([](Group& g, const ibv_send_wr& wr) { post_send(g, wr); });
  }
  const size_t posted = wrs.size();
  const size_t executed = random.below(static_cast<uint32_t>(posted) + 1);
  const size_t acknowledged = random.below(static_cast<uint32_t>(executed) + 1);
  FakeQp& old_qp = World::fake(group, kDefault);
  Ids seen;
  auto take = [&] {
    for (uint64_t id : wr_ids(poll_all(cq))) seen.push_back(id);
  };
  for (size_t i = 0; i < acknowledged; i++) {
    if (wrs[i].signaled) old_qp.complete_send();
    if (random.chance(20)) take();
  }
  if (random.chance(50) && !old_qp.pending_sends.empty()) {
    // The NIC no longer has requests that were acknowledged but not signaled.
    old_qp.break_with(IBV_WC_RETRY_EXC_ERR);
    if (random.chance(50)) take();
  }
  ASSERT_TRUE(fence({group})[0]);
  group->life.remote_keys[kBackup][kRkey] = kBackupRkey;
  for (uint32_t n = random.below(20); n > 0; n--) {
    add([](Group& g, const ibv_send_wr& wr) { g.send.journal.add(wr); });
  }
  ASSERT_EQ(commit(*group, kBackup, kBackup), Commit::kDone);

  uint32_t received = start;
  size_t last_proven = 0;  // the position after the last executed notification
  for (size_t i = 0; i < executed; i++) {
    if (!is_notification(wrs[i].opcode)) continue;
    received++;
    last_proven = i + 1;
  }
  size_t last_fence = 0;  // READs before it have their data
  for (size_t i = 0; i < last_proven; i++) {
    if (wrs[i].fenced) last_fence = i;
  }
  const auto result = replay(*group, received);
  ASSERT_EQ(result.refusal, nullptr) << result.refusal;

  FakeQp& new_qp = World::fake(group, kBackup);
  std::vector<bool> again(wrs.size(), false);
  size_t last = 0;
  for (const PostedSend& send : new_qp.sends) {
    const size_t id = send.wr.wr_id;
    const bool stand_in = send.sges.empty();
    ASSERT_GE(id, last) << "in order";
    last = id;
    if (!stand_in) {
      ASSERT_FALSE(again[id]) << "posted twice";
      ASSERT_EQ(send.wr.opcode, wrs[id].opcode);
      again[id] = true;
    } else {
      ASSERT_LT(id, last_proven);
    }
  }
  for (size_t i = 0; i < wrs.size(); i++) {
    if (i >= executed) {
      ASSERT_TRUE(again[i]) << i << " was never executed";
    }
    if (i < last_proven && (wrs[i].opcode != IBV_WR_RDMA_READ || i < last_fence)) {
      ASSERT_FALSE(again[i]) << i << " runs twice although its execution is proven";
    }
    if (is_notification(wrs[i].opcode)) {
      ASSERT_EQ(again[i], i >= executed) << "C2: notification " << i;
    }
  }
  while (new_qp.complete_send()) {
  }
  ibv_wc wc[3];
  for (int got; (got = poll_slow(*cq, 3, wc)) > 0;) {
    for (int i = 0; i < got; i++) {
      seen.push_back(wc[i].wr_id);
      const ibv_wr_opcode opcode = wrs[wc[i].wr_id].opcode;
      const ibv_wc_opcode expected =
          opcode == IBV_WR_RDMA_READ                                            ? IBV_WC_RDMA_READ
          : opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RDMA_WRITE
                                                                                : IBV_WC_SEND;
      ASSERT_EQ(wc[i].opcode, expected);
      ASSERT_EQ(wc[i].status, IBV_WC_SUCCESS);
      ASSERT_EQ(wc[i].qp_num, group->qpn());
    }
  }
  Ids expected;
  for (size_t i = 0; i < wrs.size(); i++) {
    if (wrs[i].signaled) expected.push_back(i);
  }
  ASSERT_EQ(seen, expected) << "C1";
  ASSERT_TRUE(group->life.opcode_of_signaled.empty());
}

TEST(ReplayProperty, EveryRequestCompletesOnceAndEveryNotificationRunsOnce) {
  Random random;
  for (int round = 0; round < 3000 && !::testing::Test::HasFatalFailure(); round++) {
    SCOPED_TRACE(round);
    check_once(random);
  }
}

}  // namespace
}  // namespace shift::group
