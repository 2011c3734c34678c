// The layer's own requests, whatever numbers the application gives to its requests.
#include "group/own_requests.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "group/member_qp.h"
#include "group/test/fake.h"

namespace shift::group {
namespace {

using Ids = std::vector<uint64_t>;

class OwnRequestsTest : public ::testing::Test {
 protected:
  OwnRequestsTest() { cq_->poll_all = true; }
  FakeQp& on(int member) { return World::fake(group_, member); }
  // Each number that the layer's own requests have if the application does not use it, and each
  // address that the application knows.
  Ids tempting() const {
    const auto address = [](const void* object) { return reinterpret_cast<uintptr_t>(object); };
    return {group_->tag,
            group_->tag + 1,
            group_->tag + 2,
            group_->tag + 3,
            address(group_->handle()),
            address(cq_),
            address(&world_.pd),
            address(world_.context.members[kDefault].real),
            address(group_->real[kDefault].set_before()),
            0,
            UINT64_MAX};
  }

  World world_;
  CompletionQueue* cq_ = world_.make_cq();
  Group* group_ = world_.make_group(cq_);
};

// C1
TEST_F(OwnRequestsTest, AnApplicationMayGiveItsRequestsAnyNumber) {
  for (uint64_t id : tempting()) {
    post_send(*group_, id, IBV_WR_SEND);
    post_recv(*group_, id);
    ASSERT_TRUE(on(kDefault).complete_send());
    ASSERT_TRUE(on(kDefault).complete_recv());
    EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{id, id})) << std::hex << id;
  }
  EXPECT_EQ(group_->counters.done[0], tempting().size());
  EXPECT_EQ(group_->counters.done[1], tempting().size());
}

// C1, C2
TEST_F(OwnRequestsTest, AFenceTellsItsMarkersFromTheApplicationsRequests) {
  const Ids ids = tempting();
  for (uint64_t id : ids) {
    post_send(*group_, id, IBV_WR_SEND);
    post_recv(*group_, id);
  }
  on(kDefault).flushes = false;
  park({{group_}});
  Fence shut({group_}, kPatience);
  EXPECT_FALSE(shut.step(Clock::now()));
  // The NIC completes its requests and receives one by one.
  for (size_t i = 0; i < ids.size(); i++) {
    ASSERT_TRUE(on(kDefault).complete_send());
    ASSERT_TRUE(on(kDefault).complete_recv());
    EXPECT_FALSE(shut.step(Clock::now())) << "there is more in the queues than " << i;
  }
  on(kDefault).flushes = true;
  on(kDefault).flush();
  EXPECT_TRUE(shut.step(Clock::now()));
  EXPECT_EQ(group_->counters.done[0], ids.size());
  EXPECT_EQ(notifications_received(*group_), ids.size());
}

TEST_F(OwnRequestsTest, ADrainTellsItsMarkerFromTheApplicationsRequests) {
  leave_for(*group_, kBackup, kBackup);
  ASSERT_EQ(replay(*group_, 0).refusal, nullptr);
  for (uint64_t id : tempting()) path_send(*group_, id, IBV_WR_SEND, false);
  park_sends(*group_);
  EXPECT_FALSE(is_drained(*group_));
  EXPECT_FALSE(is_drained(*group_)) << "nothing has completed";
  ASSERT_TRUE(on(kBackup).complete_send()) << "the marker";
  EXPECT_TRUE(is_drained(*group_));
}

TEST_F(OwnRequestsTest, ARequestThatTheNicRefusesIsNotUnderWay) {
  on(kDefault).post_error = ENOMEM;
  park({{group_}});
  Fence shut({group_}, kPatience);
  EXPECT_FALSE(shut.step(Clock::now()));
  EXPECT_TRUE(group_->life.members[kDefault].own.sends.empty());
  EXPECT_TRUE(group_->life.members[kDefault].own.receives.empty());
}

// C8: soft-RoCE leaves in its CQs what a QP had completed before RESET.
TEST_F(OwnRequestsTest, WhatAnEarlierConnectionLeftIsNotTheNextOnes) {
  world_.nic(kBackup).is_soft_roce = true;
  member_qp_probe(*group_, kBackup);
  ASSERT_TRUE(on(kBackup).complete_send());
  wire::QpAddress own;
  ASSERT_EQ(member_qp_address(*group_, kBackup, world_.nic(kBackup).gid, &own), 0);
  ASSERT_EQ(member_qp_connect(*group_, kBackup, own, own), 0);
  group_->life.members[kBackup].probe = Probe::kPosted;
  EXPECT_EQ(member_qp_probe_look(*group_, kBackup), Probe::kPosted);
  EXPECT_TRUE(group_->life.members[kBackup].own.sends.empty());
}

TEST_F(OwnRequestsTest, EachQueueHasItsOwn) {
  const uint64_t send = own_begin(*group_, kBackup, OwnRequest::Kind::kSendMarker);
  ibv_wc wc{};
  wc.wr_id = send;
  wc.opcode = IBV_WC_RECV;
  EXPECT_EQ(own_take(*cq_, *group_, kBackup, wc), std::nullopt) << "a receive of the application's";
  wc.opcode = IBV_WC_RDMA_WRITE;
  EXPECT_EQ(own_take(*cq_, *group_, kDefault, wc), std::nullopt) << "another NIC's";
  EXPECT_EQ(own_take(*cq_, *group_, kBackup, wc), OwnRequest::Kind::kSendMarker);
  EXPECT_EQ(own_take(*cq_, *group_, kBackup, wc), std::nullopt) << "it is over";
}

// The slots of a shared queue have numbers, too, which requests of its QPs may happen to have.
TEST(OwnNumbers, ASendIsNoSharedReceive) {
  World world;
  CompletionQueue* cq = world.make_cq();
  SharedQueue* srq = world.make_srq(8);
  World::Options options;
  options.srq = srq;
  Group* group = world.make_group(cq, cq, options);
  ibv_sge sge{0x6000, 8, kLkey};
  ibv_recv_wr wr{77, nullptr, &sge, 1}, *bad;
  ASSERT_EQ(srq->post(&wr, &bad), 0);
  const uint64_t number = FakeSrq::of(srq->members[kDefault].real).waiting.front().wr_id;
  EXPECT_NE(number, reinterpret_cast<uintptr_t>(srq->slots.get()))
      << "the application may guess it";
  post_send(*group, number, IBV_WR_SEND);
  ASSERT_TRUE(World::fake(group, kDefault).complete_send());
  EXPECT_EQ(wr_ids(poll_all(cq)), Ids{number});
  EXPECT_EQ(srq->live, 1u);
  ASSERT_TRUE(World::fake(group, kDefault).complete_recv());
  EXPECT_EQ(wr_ids(poll_all(cq)), Ids{77});
}

}  // namespace
}  // namespace shift::group
