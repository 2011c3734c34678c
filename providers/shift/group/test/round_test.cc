// Rounds after the first: from any path to any other, the way back, and the drain before it.
#include <gtest/gtest.h>

#include <cerrno>
#include <climits>

#include "group/test/fake.h"

namespace shift::group {
namespace {

using Ids = std::vector<uint64_t>;

class Round : public ::testing::Test {
 protected:
  FakeQp& on(int member) { return World::fake(group_, member); }
  Ids posted(int member) { return posted_ids(on(member), *group_); }
  Ids received_on(int member) {
    Ids ids;
    for (const PostedRecv& recv : on(member).recvs) {
      if (!has_own_number(recv.wr_id, *group_)) ids.push_back(recv.wr_id);
    }
    return ids;
  }
  // Does one whole round, as the control thread does it.
  void go(int member, int peer_member, uint64_t peer_received) {
    leave_for(*group_, member, peer_member);
    const auto result = replay(*group_, peer_received);
    ASSERT_EQ(result.refusal, nullptr) << result.refusal;
    ASSERT_FALSE(result.path_broken);
  }
  Ids finish(int member) {
    while (on(member).complete_send()) {
    }
    return wr_ids(poll_all(cq_));
  }
  // Posts a request of the application, on the hot path or off it.
  void send(uint64_t id, bool signaled = true) {
    if (group_->send.route == Route::kOnDefault) {
      post_send(*group_, id, IBV_WR_SEND, signaled);
    } else {
      path_send(*group_, id, IBV_WR_SEND, signaled);
    }
  }

  World world_;
  CompletionQueue* cq_ = world_.make_cq();
  Group* group_ = world_.make_group(cq_);
};

TEST_F(Round, ASecondFaultGoesOnFromThePathOfTheFirst) {
  for (uint64_t id = 1; id <= 4; id++) send(id);
  for (uint64_t id = 11; id <= 14; id++) post_recv(*group_, id);
  on(kDefault).complete_send();
  on(kDefault).complete_recv();
  go(kBackup, kBackup, 2);
  EXPECT_EQ(posted(kBackup), (Ids{3, 4}));
  send(5);
  on(kBackup).complete_send();
  on(kBackup).complete_recv();
  go(kThird, kThird, 4);
  EXPECT_EQ(posted(kThird), (Ids{5}));
  EXPECT_EQ(received_on(kThird), (Ids{13, 14}));
  EXPECT_TRUE(on(kBackup).in_error());
  while (on(kThird).complete_recv()) {
  }
  EXPECT_EQ(finish(kThird), (Ids{1, 11, 2, 3, 12, 4, 13, 14, 5}));
  EXPECT_EQ(cq_->slow_groups, 1) << "counted once, however many rounds";
}

TEST_F(Round, AFaultBetweenCommitAndReplayLosesNothing) {
  for (uint64_t id = 1; id <= 3; id++) send(id);
  post_recv(*group_, 11);
  leave_for(*group_, kBackup, kBackup);
  go(kThird, kThird, 1);
  EXPECT_TRUE(posted(kBackup).empty());
  EXPECT_EQ(posted(kThird), (Ids{2, 3}));
  EXPECT_EQ(received_on(kThird), (Ids{11}));
  EXPECT_EQ(finish(kThird), (Ids{1, 2, 3}));
}

TEST_F(Round, AGroupCommittedToNothingIsFencedAlready) {
  ASSERT_TRUE(fence({group_})[0]);
  EXPECT_EQ(group_->life.path.member, kNoMember);
  const size_t before = on(kDefault).sends.size();
  EXPECT_TRUE(fence({group_}, kNoPatience)[0]);
  EXPECT_EQ(on(kDefault).sends.size(), before) << "no second marker";
}

// Each pair of members needs the rkeys of the peer's member and the lkeys of this end's member.
TEST_F(Round, KeysGoWithBothEndsOfThePath) {
  for (int own : {kDefault, kBackup, kThird}) {
    for (int peer : {kDefault, kBackup, kThird}) {
      World world;
      CompletionQueue* cq = world.make_cq();
      Group* group = world.make_group(cq);
      post_send(*group, 1, IBV_WR_RDMA_WRITE);
      post_recv(*group, 11);
      // The group starts from another member, so that the default is a target, too.
      leave_for(*group, kThird, kThird);
      for (int m : {kBackup, kThird}) {
        group->life.remote_keys[m][kRkey] = 0x7000u + static_cast<uint32_t>(m);
      }
      ASSERT_TRUE(fence({group})[0]);
      ibv_qp_attr reset{};
      ASSERT_EQ(stock->modify_qp(group->real[own], &reset, IBV_QP_STATE), 0);
      ASSERT_EQ(commit(*group, own, peer), Commit::kDone);
      EXPECT_TRUE(rkeys_missing(*group).empty());
      ASSERT_EQ(replay(*group, 0).refusal, nullptr);
      const FakeQp& qp = World::fake(group, own);
      EXPECT_EQ(qp.sends.back().sges.at(0).lkey, lkey_on(own, kLkey)) << own << "-" << peer;
      EXPECT_EQ(qp.recvs.back().sges.at(0).lkey, lkey_on(own, kLkey)) << own << "-" << peer;
      EXPECT_EQ(qp.sends.back().wr.wr.rdma.rkey,
                peer == kDefault ? kRkey : 0x7000u + static_cast<uint32_t>(peer))
          << own << "-" << peer;
    }
  }
}

TEST_F(Round, AKeyOfOneMemberIsNotAnswerForAnother) {
  post_send(*group_, 1, IBV_WR_RDMA_WRITE);
  group_->life.remote_keys[kBackup][kRkey] = 0x7001;
  leave_for(*group_, kBackup, kThird);
  EXPECT_EQ(rkeys_missing(*group_), (std::vector<uint32_t>{kRkey}));
}

// ---- the way back

class WayBack : public Round {
 protected:
  WayBack() {
    go(kBackup, kBackup, 0);
    ibv_qp_attr reset{};
    (void)stock->modify_qp(group_->real[kDefault], &reset, IBV_QP_STATE);
    on(kDefault).qp.state = IBV_QPS_RTS;  // as if it were connected anew
  }
  bool drained() { return is_drained(*group_); }
};

TEST_F(WayBack, OnTheDefaultTheGroupSettlesToTheHotPath) {
  EXPECT_EQ(group_->send.route, Route::kOnPath);
  go(kDefault, kDefault, 0);
  EXPECT_EQ(group_->send.route, Route::kOnDefault);
  EXPECT_EQ(group_->recv.route, Route::kOnDefault);
  EXPECT_FALSE(group_->life.path.off_default);
  EXPECT_EQ(cq_->slow_groups, 0);
  // The group leaves the default again, like the first time.
  send(1);
  on(kBackup).qp.state = IBV_QPS_RTS;
  go(kBackup, kBackup, 0);
  EXPECT_EQ(posted(kBackup), (Ids{1}));
  EXPECT_EQ(cq_->slow_groups, 1);
}

TEST_F(WayBack, AcrossRailsIsNotTheHotPath) {
  go(kDefault, kBackup, 0);
  EXPECT_EQ(group_->send.route, Route::kOnPath);
  EXPECT_EQ(cq_->slow_groups, 1);
}

// A stand-in's completion must go through the slow poll: the hot path would show the wrong opcode.
TEST_F(WayBack, NotHotBeforeTheStandInsAreDone) {
  path_send(*group_, 1, IBV_WR_RDMA_READ);
  group_->life.remote_keys[kBackup][kRkey] = kBackupRkey;
  path_send(*group_, 2, IBV_WR_SEND);
  ASSERT_EQ(posted(kBackup).size(), 2u);
  go(kDefault, kDefault, 1);
  EXPECT_EQ(group_->send.route, Route::kOnPath);
  while (on(kDefault).complete_send()) {
  }
  const auto completions = poll_all(cq_);
  ASSERT_EQ(wr_ids(completions), (Ids{1, 2}));
  EXPECT_EQ(completions[1].opcode, IBV_WC_SEND);
  std::lock_guard lock(group_->send.mutex);
  settle(*group_);
  EXPECT_EQ(group_->send.route, Route::kOnDefault);
}

TEST_F(WayBack, ADrainParksSendsAndLetsReceivesFlow) {
  send(1);
  park_sends(*group_);
  EXPECT_EQ(group_->send.route, Route::kParked);
  EXPECT_EQ(group_->recv.route, Route::kOnPath);
  EXPECT_FALSE(drained());
  on(kBackup).complete_send();
  // The marker that was posted meanwhile must come out, too.
  on(kBackup).complete_send();
  EXPECT_TRUE(drained());
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{1})) << "no marker is shown";
}

TEST_F(WayBack, AnIdleGroupIsDrainedAtOnce) {
  park_sends(*group_);
  EXPECT_TRUE(drained());
  EXPECT_TRUE(posted(kBackup).empty());
}

// Requests without a signal are over when the marker after them completes; they must not run again
// (C2).
TEST_F(WayBack, AnUnsignaledTailIsNotReplayed) {
  send(1);
  send(2, false);
  send(3, false);
  on(kBackup).complete_send();
  park_sends(*group_);
  EXPECT_FALSE(drained());
  EXPECT_FALSE(drained());
  EXPECT_EQ(on(kBackup).sends.size(), 4u) << "one marker";
  ASSERT_TRUE(on(kBackup).complete_send());
  EXPECT_TRUE(drained());
  EXPECT_EQ(group_->send.drained_to, 3u);
  go(kDefault, kDefault, 3);
  EXPECT_TRUE(posted(kDefault).empty());
  EXPECT_EQ(finish(kDefault), (Ids{1}));
}

// They are also over when the peer's counter proves nothing, because none of them was a
// notification.
TEST_F(WayBack, SilentRequestsThatDrainedDoNotRunTwice) {
  group_->life.remote_keys[kBackup][kRkey] = kBackupRkey;
  path_send(*group_, 1, IBV_WR_RDMA_WRITE, false);
  path_send(*group_, 2, IBV_WR_ATOMIC_FETCH_AND_ADD, false);
  park_sends(*group_);
  EXPECT_FALSE(drained());
  ASSERT_TRUE(on(kBackup).complete_send());
  EXPECT_TRUE(drained());
  go(kDefault, kDefault, 0);
  EXPECT_TRUE(posted(kDefault).empty());
}

// A flushed marker proves nothing about the requests before it.
TEST_F(WayBack, AFlushedMarkerDoesNotEndTheDrain) {
  send(1, false);
  park_sends(*group_);
  EXPECT_FALSE(drained());
  on(kBackup).break_with(IBV_WC_RETRY_EXC_ERR);
  EXPECT_FALSE(drained());
  EXPECT_EQ(group_->send.drained_to, 0u);
  go(kDefault, kDefault, 0);
  EXPECT_EQ(posted(kDefault), (Ids{1}));
}

// A flushed marker may be the only sign that the path has broken.
TEST_F(WayBack, AFlushedMarkerIsAFaultOfThePath) {
  group_->life.remote_keys[kBackup][kRkey] = kBackupRkey;
  path_send(*group_, 1, IBV_WR_RDMA_WRITE, false);
  park_sends(*group_);
  EXPECT_FALSE(drained());
  on(kBackup).pending_sends.pop_front();  // the WRITE was executed
  on(kBackup).break_with(IBV_WC_RETRY_EXC_ERR);
  EXPECT_FALSE(drained());
  ASSERT_EQ(world_.sink.faults.size(), 1u);
  EXPECT_EQ(world_.sink.faults[0].event, fsm::Event::kPathFault);
  EXPECT_TRUE(poll_all(cq_).empty());
}

// An application that has seen an error of its path gets flushes, and no request waits for a key
// (C6).
TEST_F(WayBack, WhatComesAfterAnErrorOfTheApplicationsWaitsForNoKey) {
  path_send(*group_, 1, IBV_WR_RDMA_WRITE);
  EXPECT_TRUE(posted(kBackup).empty());
  EXPECT_EQ(world_.sink.pump_wanted_calls, 1);
  group_->life.errors.members[kBackup].accept = Accept::kPass;
  group_->life.errors.members[kBackup].fault_reported = true;
  path_send(*group_, 2, IBV_WR_RDMA_WRITE);
  EXPECT_EQ(posted(kBackup), (Ids{1, 2}));
  EXPECT_EQ(world_.sink.pump_wanted_calls, 1);
}

TEST_F(WayBack, AMarkerWithoutRoomComesLater) {
  send(1, false);
  on(kBackup).sends_accepted = 0;
  park_sends(*group_);
  EXPECT_FALSE(drained());
  EXPECT_EQ(group_->life.markers.under_way, 0);
  on(kBackup).sends_accepted = INT_MAX;
  EXPECT_FALSE(drained());
  EXPECT_EQ(group_->life.markers.under_way, 1);
}

// The work queue is as deep as the application asked for, so the marker takes the last place.
TEST_F(WayBack, AMarkerInTheWayOfARequestIsNoFault) {
  send(1);
  park_sends(*group_);
  EXPECT_FALSE(drained());
  EXPECT_EQ(group_->life.markers.under_way, 1);
  park_send(*group_, 2, IBV_WR_SEND);
  on(kBackup).sends_accepted = 0;
  EXPECT_EQ(unpark(*group_), 0);
  path_send(*group_, 3, IBV_WR_SEND);
  EXPECT_EQ(posted(kBackup), (Ids{1}));
  on(kBackup).sends_accepted = INT_MAX;
  on(kBackup).complete_send();
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{1}));
  EXPECT_EQ(world_.sink.pump_wanted_calls, 0);
  on(kBackup).complete_send();
  EXPECT_TRUE(poll_all(cq_).empty());
  EXPECT_EQ(world_.sink.pump_wanted_calls, 1) << "the marker has gone";
  {
    std::lock_guard lock(group_->send.mutex);
    EXPECT_EQ(pump(*group_), 0);
  }
  EXPECT_EQ(posted(kBackup), (Ids{1, 2, 3}));
  // Without a marker in the queue, the NIC refuses a request that it must take.
  on(kBackup).sends_accepted = 0;
  park_send(*group_, 4, IBV_WR_SEND);
  std::lock_guard lock(group_->send.mutex);
  EXPECT_EQ(pump(*group_), ENOMEM);
}

TEST_F(WayBack, ACancelledDrainPostsWhatWaited) {
  send(1);
  park_sends(*group_);
  park_send(*group_, 2, IBV_WR_SEND);
  EXPECT_FALSE(drained());
  EXPECT_EQ(posted(kBackup), (Ids{1}));
  EXPECT_EQ(unpark(*group_), 0);
  EXPECT_EQ(posted(kBackup), (Ids{1, 2}));
  EXPECT_EQ(finish(kBackup), (Ids{1, 2}));
  // The next drain needs a marker of its own.
  send(3, false);
  park_sends(*group_);
  EXPECT_FALSE(drained());
  ASSERT_TRUE(on(kBackup).complete_send());
  EXPECT_TRUE(drained());
}

TEST_F(WayBack, AFaultDuringTheDrainReplaysWhatIsNotOver) {
  send(1);
  send(2, false);
  park_sends(*group_);
  park_send(*group_, 3, IBV_WR_SEND);
  EXPECT_FALSE(drained());
  on(kBackup).break_with(IBV_WC_RETRY_EXC_ERR);
  go(kThird, kThird, 1);
  EXPECT_EQ(posted(kThird), (Ids{2, 3}));
  EXPECT_EQ(finish(kThird), (Ids{1, 3}));
}

// A flushed marker shows that requests before it failed, so they are not over.
TEST_F(WayBack, AFlushedMarkerIsNoDrain) {
  send(1);
  send(2, false);
  park_sends(*group_);
  park_send(*group_, 3, IBV_WR_SEND);
  EXPECT_FALSE(drained());
  on(kBackup).break_with(IBV_WC_RETRY_EXC_ERR);
  EXPECT_FALSE(drained()) << "looked at before the fault is handled";
  EXPECT_FALSE(drained());
  EXPECT_EQ(group_->send.drained_to, 0u);
  go(kThird, kThird, 1);
  EXPECT_EQ(posted(kThird), (Ids{2, 3}));
  EXPECT_EQ(finish(kThird), (Ids{1, 3}));
}

TEST_F(WayBack, WhatFailedDuringTheDrainGetsItsError) {
  send(1);
  park_sends(*group_);
  EXPECT_FALSE(drained());
  on(kBackup).break_with(IBV_WC_RETRY_EXC_ERR);
  EXPECT_FALSE(drained());
  fail(*group_);
  const auto completions = poll_all(cq_);
  ASSERT_EQ(wr_ids(completions), (Ids{1}));
  EXPECT_EQ(completions[0].status, IBV_WC_RETRY_EXC_ERR);
}

// The marker of a drain that was called off is older than the requests that were posted later.
TEST_F(WayBack, ADrainsMarkerIsNotTheFences) {
  send(1);
  park_sends(*group_);
  EXPECT_FALSE(drained());
  ASSERT_EQ(unpark(*group_), 0);
  send(2);
  park({{group_}});
  on(kBackup).flushes = false;  // the completions come one by one
  Fence shut({group_}, kPatience);
  on(kBackup).complete_recv();
  group_->life.markers.drained[1] = true;
  ibv_wc marker{};
  marker.wr_id = group_->tag;
  marker.qp_num = on(kBackup).qp.qp_num;
  marker.status = IBV_WC_WR_FLUSH_ERR;
  World::fake(cq_, kBackup).waiting.push_back(marker);
  EXPECT_FALSE(shut.step(Clock::now())) << "request 2 may still have completed";
  World::fake(cq_, kBackup).waiting.push_back(marker);
  EXPECT_TRUE(shut.step(Clock::now()));
}

// ---- fences of single groups in a batch

TEST_F(Round, AGroupForgottenDuringItsFenceIsNotTouched) {
  Group* other = world_.make_group(cq_);
  on(kDefault).flushes = false;
  World::fake(other, kDefault).flushes = false;
  park({{group_, other}});
  Fence shut({group_, other}, kPatience);
  EXPECT_FALSE(shut.step(Clock::now()));
  shut.forget(group_);
  group_->life.errors.switching = false;
  on(kDefault).flushes = true;
  on(kDefault).flush();
  World::fake(other, kDefault).flushes = true;
  World::fake(other, kDefault).flush();
  EXPECT_TRUE(shut.step(Clock::now()));
  EXPECT_EQ(shut.entries()[0].group, nullptr);
  EXPECT_EQ(group_->life.path.member, kDefault);
  EXPECT_EQ(other->life.path.member, kNoMember);
}

// A device may die while its QP is being drained.
TEST_F(Round, ADeathDuringTheFenceProvesIt) {
  post_send(*group_, 1, IBV_WR_SEND);
  on(kDefault).flushes = false;
  park({{group_}});
  Fence shut({group_}, kPatience);
  EXPECT_FALSE(shut.step(Clock::now()));
  world_.context.members[kDefault].dead = true;
  EXPECT_TRUE(shut.step(Clock::now()));
  EXPECT_EQ(shut.entries()[0].result, Fence::Result::kProven);
}

// The death of a device matters only to the groups that are on it.
TEST_F(Round, AnotherMembersDeathProvesNothing) {
  post_send(*group_, 1, IBV_WR_SEND);
  on(kDefault).flushes = false;
  world_.context.members[kBackup].dead = true;
  EXPECT_FALSE(fence({group_}, kNoPatience)[0]);
}

// ---- the probe of a new connection

TEST_F(Round, AProbesCompletionIsNobodyElses) {
  cq_->poll_all = true;
  ibv_wc wc{};
  wc.qp_num = group_->real[kThird]->qp_num;
  for (const auto& [status, expected] :
       {std::pair{IBV_WC_SUCCESS, Probe::kDone}, {IBV_WC_RETRY_EXC_ERR, Probe::kFailed}}) {
    group_->life.members[kThird].probe = Probe::kPosted;
    wc.wr_id = own_begin(*group_, kThird, OwnRequest::Kind::kProbe);
    wc.status = status;
    World::fake(cq_, kThird).waiting.push_back(wc);
    EXPECT_TRUE(poll_all(cq_).empty());
    EXPECT_EQ(group_->life.members[kThird].probe, expected);
    EXPECT_EQ(group_->life.members[kBackup].probe, Probe::kNone);
  }
  EXPECT_TRUE(world_.sink.faults.empty());
  EXPECT_EQ(group_->counters.done[0], 0u);
}

}  // namespace
}  // namespace shift::group
