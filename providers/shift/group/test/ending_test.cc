// A group that ends is left alone, and so is a CQ that ends, whatever a background thread was about
// to do.
#include "group/ending.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "group/completion_events.h"
#include "group/device_events.h"
#include "group/error_arming.h"
#include "group/member_qp.h"
#include "group/test/fake.h"

namespace shift::group {
namespace {

class Ending : public ::testing::Test {
 protected:
  FakeQp& on(int member) { return World::fake(group_, member); }

  World world_;
  CompletionQueue* cq_ = world_.make_cq();
  Group* group_ = world_.make_group(cq_);
};

TEST_F(Ending, BeginsOnTheDefaultPath) {
  EXPECT_TRUE(ending_begin(*group_));
  EXPECT_TRUE(group_->is_ending);
  ending_undo(*group_);
  EXPECT_FALSE(group_->is_ending);
}

TEST_F(Ending, DoesNotBeginWhileTheControlThreadHasTheQueues) {
  Group* draining = world_.make_group(cq_);
  if (thread_slot_get() != nullptr) {
    ASSERT_TRUE(park_sends(*draining));
    EXPECT_FALSE(ending_begin(*draining));
  }
  Group* moved = world_.make_group(cq_);
  leave_for(*moved, kBackup, kBackup);
  EXPECT_FALSE(ending_begin(*moved));
  Group* failed = world_.make_group(cq_);
  fail(*failed);
  EXPECT_FALSE(ending_begin(*failed));
  Group* homeless = world_.make_group(cq_);
  homeless->is_homeless = true;
  EXPECT_FALSE(ending_begin(*homeless));
  Group* unconnected = world_.make_group(cq_);
  unconnected->life.unconnected = true;
  EXPECT_FALSE(ending_begin(*unconnected));
  Group* own_peer = world_.make_group(cq_);
  own_peer->life.is_self = true;
  EXPECT_FALSE(ending_begin(*own_peer));
  for (const Group* one : {draining, moved, failed, homeless, unconnected, own_peer})
    EXPECT_FALSE(one->is_ending);
}

// A round or a drain that was about to begin.
TEST_F(Ending, KeepsItsQueuesAsTheyAre) {
  Group* other = world_.make_group(cq_);
  ASSERT_TRUE(ending_begin(*group_));
  park({{group_, other}});
  EXPECT_EQ(group_->send.route, Route::kOnDefault);
  EXPECT_EQ(group_->recv.route, Route::kOnDefault);
  EXPECT_FALSE(group_->life.path.off_default);
  EXPECT_FALSE(group_->counted_slow);
  EXPECT_TRUE(batch_is_over(*group_));
  EXPECT_EQ(other->send.route, Route::kParked);
  EXPECT_FALSE(park_sends(*group_)) << "it is not drained, either";
  EXPECT_EQ(group_->send.route, Route::kOnDefault);
}

TEST_F(Ending, IsNotProbed) {
  member_qp_probe(*group_, kBackup);
  EXPECT_EQ(on(kBackup).sends.size(), 1u);
  member_qp_probe_forget(*group_, kBackup);
  ASSERT_TRUE(ending_begin(*group_));
  member_qp_probe(*group_, kBackup);
  EXPECT_EQ(on(kBackup).sends.size(), 1u);
  EXPECT_EQ(group_->life.members[kBackup].probe, Probe::kFailed);
}

TEST_F(Ending, JobsThatHaveNotBegunDoNotBegin) {
  {
    const JobTurn turn(*group_, kDefault);
    EXPECT_TRUE(turn);
    EXPECT_TRUE(is_default_at_work(*group_));
    ASSERT_TRUE(ending_begin(*group_));
    EXPECT_TRUE(is_default_at_work(*group_)) << "this one goes on";
  }
  EXPECT_FALSE(is_default_at_work(*group_));
  EXPECT_FALSE(JobTurn(*group_, kDefault));
  EXPECT_FALSE(JobTurn(*group_, kBackup));
}

// Its QP is destroyed on the same thread as the job runs on.
TEST_F(Ending, AJobOnAnotherNicDoesNotCount) {
  const JobTurn turn(*group_, kBackup);
  EXPECT_TRUE(turn);
  EXPECT_FALSE(is_default_at_work(*group_));
}

// ---- events that come too late

TEST_F(Ending, AnEventOfAQpThatIsGoneIsNotGiven) {
  AsyncEvents& events = world_.context.events;
  ASSERT_TRUE(events.open());
  fcntl(events.fd(), F_SETFL, fcntl(events.fd(), F_GETFL) | O_NONBLOCK);
  ibv_async_event event{}, heard{};
  event.event_type = IBV_EVENT_QP_ACCESS_ERR;
  event.element.qp = group_->real[kDefault];
  const uint64_t serial = group_->life.serial;
  event_give_of(world_.context, *group_, serial, event);
  ASSERT_EQ(events.get(&heard), 0);
  EXPECT_EQ(heard.element.qp, group_->handle());
  events.acknowledge(heard);
  // A group of another life lies where that one was.
  event_give_of(world_.context, *group_, serial - 1, event);
  EXPECT_EQ(events.get(&heard), -1);
  std::erase(world_.context.groups, group_);
  event_give_of(world_.context, *group_, serial, event);
  EXPECT_EQ(events.get(&heard), -1);
}

// ---- CQs

class EndingQueue : public Ending {
 protected:
  FakeCq& nic() { return World::fake(cq_, kDefault); }
};

TEST_F(EndingQueue, IsNotPolledOnTheDefault) {
  post_send(*group_, 1, IBV_WR_SEND);
  on(kDefault).complete_send();
  ASSERT_EQ(nic().waiting.size(), 1u);
  cq_->is_ending = true;
  inspect(*cq_);
  EXPECT_EQ(nic().waiting.size(), 1u);
  cq_->is_ending = false;
  inspect(*cq_);
  EXPECT_TRUE(nic().waiting.empty());
}

TEST_F(EndingQueue, IsNotArmed) {
  errors_arm(*cq_);
  EXPECT_EQ(nic().notify_requests, 1);
  cq_->is_ending = true;
  errors_arm(*cq_);
  EXPECT_EQ(nic().notify_requests, 1);
}

TEST_F(EndingQueue, RaisesNoEvent) {
  CompletionChannel channel;
  channel.inject_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  cq_->channel = &channel;
  cq_->armed = true;
  ibv_wc wc{};
  std::unique_lock lock(cq_->mutex);
  cq_->is_ending = true;
  put_side(*cq_, wc);
  EXPECT_TRUE(channel.injected.empty()) << "the list would outlive the queue";
  EXPECT_TRUE(cq_->armed);
  cq_->is_ending = false;
  signal_side(*cq_);
  EXPECT_EQ(channel.injected.size(), 1u);
  cq_->channel = nullptr;
  close(channel.inject_fd);
}

// A driver that has taken the QP's completions out itself: the NIC's queue is not looked at.
TEST_F(EndingQueue, IsEmptiedOnlyForANicThatKeepsCompletions) {
  Group* other = world_.make_group(cq_);
  post_send(*other, 1, IBV_WR_SEND);
  World::fake(other, kDefault).complete_send();
  purge(*cq_, group_, true);
  EXPECT_EQ(nic().waiting.size(), 1u);
  purge(*cq_, group_, false);
  EXPECT_TRUE(nic().waiting.empty());
  EXPECT_EQ(wr_ids(poll_all(cq_)), (std::vector<uint64_t>{1})) << "the other QP's is kept";
}

}  // namespace
}  // namespace shift::group
