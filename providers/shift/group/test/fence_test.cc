// The old path is shut: nothing more is posted, and all that was posted is counted before the fence
// is proven.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "group/test/fake.h"

namespace shift::group {
namespace {

using Ids = std::vector<uint64_t>;

class Fencing : public ::testing::Test {
 protected:
  FakeQp& on_default() { return World::fake(group_, kDefault); }
  bool run(std::chrono::nanoseconds patience = kPatience) { return fence({group_}, patience)[0]; }

  World world_;
  CompletionQueue* send_cq_ = world_.make_cq();
  CompletionQueue* recv_cq_ = world_.make_cq();
  Group* group_ = world_.make_group(send_cq_, recv_cq_, {});
};

TEST_F(Fencing, ParkingStopsBothQueuesAndRemembersWhere) {
  post_send(*group_, 1, IBV_WR_SEND);
  post_send(*group_, 2, IBV_WR_SEND);
  park({{group_}});
  EXPECT_EQ(group_->send.route, Route::kParked);
  EXPECT_EQ(group_->recv.route, Route::kParked);
  EXPECT_EQ(group_->send.posted, 2u);
  EXPECT_EQ(send_cq_->slow_groups, 1);
  EXPECT_EQ(recv_cq_->slow_groups, 1);
}

// It takes long to set many QPs to ERR, and this thread may have to wait before it runs again. A
// NIC that nothing has polled in the meantime has not failed.
TEST_F(Fencing, OnlyTimeInWhichTheNicIsLookedAtCounts) {
  post_send(*group_, 1, IBV_WR_SEND);
  on_default().flushes = false;
  park({{group_}});
  Fence shut({group_}, std::chrono::milliseconds(12));
  const auto begin = Clock::now();
  EXPECT_FALSE(shut.step(begin + std::chrono::hours(1)));
  EXPECT_FALSE(shut.step(begin + std::chrono::hours(2)));
  EXPECT_FALSE(shut.step(begin + std::chrono::hours(3)));
  EXPECT_TRUE(shut.step(begin + std::chrono::hours(4))) << "but it ends";
  EXPECT_EQ(shut.entries()[0].result, Fence::Result::kNotProven);
}

TEST_F(Fencing, AGroupWithOneCqCountsOnce) {
  Group* group = world_.make_group(send_cq_);
  park({{group}});
  EXPECT_EQ(send_cq_->slow_groups, 1);
}

TEST_F(Fencing, ParkingWaitsForTheSectionAndKeepsOthersOut) {
  if (thread_slot_get() == nullptr) GTEST_SKIP() << "no membarrier(2) here";
  auto adopt = [](auto& queue) {
    std::lock_guard lock(queue.mutex);
    queue.bias.adopt(&queue);
  };
  adopt(group_->send);
  ASSERT_TRUE(group_->send.bias.enter(tls_slot, &group_->send));
  std::atomic<bool> stopped{false}, other_inside{false}, stopping{false}, asking{false};
  std::thread control([&] {
    stopping = true;
    park({{group_}});
    stopped = true;
  });
  std::thread other([&] {
    // This thread asks only when the owner is gone, so it finds none.
    for (bool parked = false; !parked; std::this_thread::yield()) {
      std::lock_guard lock(group_->send.mutex);
      parked = group_->send.route == Route::kParked;
    }
    asking = true;
    auto lock = lock_queue(group_->send, true);
    other_inside = true;
  });
  while (!stopping || !asking) std::this_thread::yield();
  for (int i = 0; i < 2000; i++) std::this_thread::yield();
  EXPECT_FALSE(stopped);
  EXPECT_FALSE(other_inside) << "a second thread works beside the running section";
  Bias::leave(tls_slot);
  control.join();
  other.join();
  EXPECT_FALSE(group_->send.bias.enter(tls_slot, &group_->send));
  Bias::leave(tls_slot);
}

TEST_F(Fencing, DrainsBothQueuesAndCountsWhatSucceeded) {
  for (uint64_t id = 1; id <= 3; id++) post_send(*group_, id, IBV_WR_SEND);
  for (uint64_t id = 11; id <= 13; id++) post_recv(*group_, id);
  on_default().complete_send();
  on_default().complete_recv();
  on_default().complete_recv();
  EXPECT_TRUE(run());
  EXPECT_TRUE(on_default().in_error());
  EXPECT_EQ(group_->counters.done[0], 1u);
  EXPECT_EQ(notifications_received(*group_), 2u);
  EXPECT_EQ(wr_ids(poll_all(send_cq_)), (Ids{1}));
  EXPECT_EQ(wr_ids(poll_all(recv_cq_)), (Ids{11, 12}));
  EXPECT_FALSE(group_->life.errors.switching);
}

TEST_F(Fencing, MarkersComeBehindEverythingElse) {
  post_send(*group_, 1, IBV_WR_SEND);
  post_recv(*group_, 11);
  ASSERT_TRUE(run());
  ASSERT_EQ(on_default().sends.size(), 2u);
  EXPECT_EQ(on_default().sends.back().wr.wr_id, group_->tag);
  EXPECT_TRUE(on_default().sends.back().wr.send_flags & IBV_SEND_SIGNALED);
  ASSERT_EQ(on_default().recvs.size(), 2u);
  EXPECT_EQ(on_default().recvs.back().wr_id, group_->tag + 1);
}

// C8: completions after the fence change nothing.
TEST_F(Fencing, WhatTheOldPathGivesAfterwardsIsStale) {
  post_send(*group_, 1, IBV_WR_SEND);
  ASSERT_TRUE(run());
  ibv_wc late{};
  late.wr_id = 1;
  late.qp_num = group_->qpn();
  World::fake(send_cq_, kDefault).waiting.push_back(late);
  EXPECT_TRUE(poll_all(send_cq_).empty());
  EXPECT_EQ(group_->counters.done[0], 0u);
}

TEST_F(Fencing, WithoutRoomForTheMarkerThereIsNoProof) {
  on_default().sends_accepted = 0;
  EXPECT_FALSE(run(kNoPatience));
}

TEST_F(Fencing, ASilentDeviceIsNoProof) {
  post_send(*group_, 1, IBV_WR_SEND);
  on_default().flushes = false;
  EXPECT_FALSE(run(kNoPatience));
}

TEST_F(Fencing, AnOverlookedMarkerIsAskedForAgain) {
  post_recv(*group_, 11);
  on_default().overlooks = true;
  EXPECT_TRUE(run());
  EXPECT_EQ(on_default().walk, (std::vector{IBV_QPS_ERR, IBV_QPS_ERR}));
}

TEST_F(Fencing, ANicThatFlushesIsNotUrged) {
  post_recv(*group_, 11);
  EXPECT_TRUE(run());
  EXPECT_EQ(on_default().walk, std::vector{IBV_QPS_ERR});
}

TEST_F(Fencing, ARefusedTransitionIsNoProof) {
  on_default().modify_error = EINVAL;
  EXPECT_FALSE(run(kNoPatience));
  EXPECT_FALSE(world_.context.members[kDefault].dead);
}

// A dead device cannot give flush completions; what its CQs hold by then is all there will be.
TEST_F(Fencing, ADeadDeviceIsShutAndItsLastCompletionsCount) {
  for (int error : {EIO, ENODEV}) {
    World world;
    CompletionQueue* cq = world.make_cq();
    Group* group = world.make_group(cq);
    post_send(*group, 1, IBV_WR_SEND);
    post_send(*group, 2, IBV_WR_SEND);
    FakeQp& qp = World::fake(group, kDefault);
    qp.complete_send();
    qp.modify_error = error;
    EXPECT_TRUE(fence({group})[0]) << error;
    EXPECT_TRUE(world.context.members[kDefault].dead);
    EXPECT_EQ(wr_ids(poll_all(cq)), (Ids{1}));
    EXPECT_EQ(qp.sends.size(), 2u) << "no marker for a device that takes none";
  }
}

TEST_F(Fencing, AQpThatNeverSentNeedsNoSendMarker) {
  group_->life.members[kDefault].can_send = false;
  on_default().sends_accepted = 0;  // providers refuse sends before RTS
  EXPECT_TRUE(run());
}

// C2: the QPs of a NIC are shut in batches. None is left out, and none is taken for another NIC's.
TEST_F(Fencing, ManyQpsOfTwoNicsAreShut) {
  const auto is_elsewhere = [](size_t i) { return i % 3 == 0; };
  std::vector<Group*> groups;
  for (size_t i = 0; i < 56; i++) {
    groups.push_back(world_.make_group(world_.make_cq()));
    if (is_elsewhere(i)) leave_for(*groups[i], kBackup, kBackup);
  }
  const auto proven = fence(groups, kPatience);
  for (size_t i = 0; i < groups.size(); i++) {
    EXPECT_TRUE(proven[i]) << i;
    EXPECT_EQ(groups[i]->jobs, 0) << i;
    EXPECT_EQ(World::fake(groups[i], kBackup).in_error(), is_elsewhere(i)) << i;
    EXPECT_TRUE(World::fake(groups[i], kDefault).in_error()) << i;
  }
}

TEST_F(Fencing, OneBadQpDoesNotTakeTheBatchAlong) {
  std::vector<Group*> groups{group_, world_.make_group(send_cq_), world_.make_group(send_cq_)};
  World::fake(groups[1], kDefault).modify_error = EINVAL;
  const auto proven = fence(groups, std::chrono::milliseconds(20));
  EXPECT_EQ(proven, (std::vector<bool>{true, false, true}));
  EXPECT_EQ(send_cq_->slow_groups, 3);
}

}  // namespace
}  // namespace shift::group
