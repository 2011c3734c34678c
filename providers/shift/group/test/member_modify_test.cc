// Which of the application's attributes reach the NIC, and which of them the application is shown.
#include "group/member_modify.h"

#include <gtest/gtest.h>

#include "group/member_qp.h"
#include "group/port.h"
#include "group/test/fake.h"

namespace shift::group {
namespace {

class MemberModify : public ::testing::Test {
 protected:
  FakeQp& on_default() { return World::fake(group_, kDefault); }

  World world_;
  CompletionQueue* cq_ = world_.make_cq();
  Group* group_ = world_.make_group(cq_);
};

struct Patience {
  uint8_t timeout, retry_cnt;
};

constexpr int kPatienceMask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT;

ibv_qp_attr to_rts(Patience asked) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = asked.timeout;
  attr.retry_cnt = asked.retry_cnt;
  return attr;
}

// rxe repeats without end for 7 retries, and by the standard a NIC does so for the timeout 0. Such
// a QP would never report a broken path.
TEST_F(MemberModify, PatienceEnds) {
  group_->life.peer_present = true;
  for (const auto& [asked, set] : {std::pair<Patience, Patience>{{14, 0}, {11, 0}},
                                   {{8, 3}, {8, 3}},
                                   {{11, 6}, {11, 6}},
                                   {{0, 7}, {11, 6}}}) {
    ASSERT_EQ(application_modify(*group_, kDefault, to_rts(asked), kPatienceMask), 0);
    EXPECT_EQ(on_default().attr.timeout, set.timeout);
    EXPECT_EQ(on_default().attr.retry_cnt, set.retry_cnt);
    EXPECT_EQ(group_->life.asked.attr.timeout, asked.timeout) << "what the application is shown";
    EXPECT_EQ(group_->life.asked.attr.retry_cnt, asked.retry_cnt)
        << "what the application is shown";
  }
}

// C10: there is no other path, and to give up early would be an error that the stock library does
// not have.
TEST_F(MemberModify, PatienceIsTheApplicationsWhereThePeerHasNoLayer) {
  for (const Patience asked : {Patience{14, 7}, {0, 7}, {31, 0}}) {
    ASSERT_EQ(application_modify(*group_, kDefault, to_rts(asked), kPatienceMask), 0);
    EXPECT_EQ(on_default().attr.timeout, asked.timeout);
    EXPECT_EQ(on_default().attr.retry_cnt, asked.retry_cnt);
  }
}

// What is known of a QP that can send: a fence drains its send queue.
TEST_F(MemberModify, AQpCanSendFromRtsOn) {
  auto& member = group_->life.members[kDefault];
  const auto modify = [&](ibv_qp_state state, int mask) {
    ibv_qp_attr attr = to_rts({8, 3});
    attr.qp_state = state;
    member.can_send = false;
    EXPECT_EQ(application_modify(*group_, kDefault, attr, mask), 0);
    return bool{member.can_send};
  };
  EXPECT_FALSE(modify(IBV_QPS_RTR, IBV_QP_STATE | IBV_QP_RQ_PSN));
  EXPECT_TRUE(modify(IBV_QPS_RTS, kPatienceMask | IBV_QP_SQ_PSN));
  EXPECT_FALSE(modify(IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER)) << "it was there before";
}

// The path was changed before the application brought its QP to RTS.
TEST_F(MemberModify, AChangedPathStartsWithItsOwnPsn) {
  on_default().qp.state = IBV_QPS_RTR;
  group_->life.members[kDefault].last_psn = 0x1234;
  ibv_qp_attr attr = to_rts({8, 3});
  attr.sq_psn = 0x777;
  ASSERT_EQ(application_modify(*group_, kDefault, attr, kPatienceMask | IBV_QP_SQ_PSN), 0);
  EXPECT_EQ(on_default().qp.state, IBV_QPS_RTS);
  EXPECT_EQ(on_default().attr.sq_psn, 0x1234u);
  EXPECT_EQ(group_->life.asked.attr.sq_psn, 0x777u) << "what the application is shown";
}

// 4.096 us doubled as often as the timeout says, four times that for each try (IBTA 9.7.6.1.3).
TEST_F(MemberModify, ANicsPatienceIsTheStandards) {
  on_default().attr.timeout = 10;
  on_default().attr.retry_cnt = 6;
  const auto health = member_qp_health(*group_, kDefault);
  ASSERT_TRUE(health.has_value());
  EXPECT_FALSE(health->is_broken);
  EXPECT_EQ(health->patience, std::chrono::nanoseconds(4 * 7 * 4096 * 1024));
  on_default().attr.timeout = 0;
  EXPECT_EQ(member_qp_health(*group_, kDefault)->patience, std::chrono::nanoseconds::zero())
      << "no end";
  on_default().qp.state = IBV_QPS_SQE;
  EXPECT_TRUE(member_qp_health(*group_, kDefault)->is_broken);
  on_default().query_error = EIO;
  EXPECT_FALSE(member_qp_health(*group_, kDefault));
}

TEST_F(MemberModify, RetriesEndOnTheOtherMembers) {
  group_->life.asked.attr.retry_cnt = 7;
  group_->life.members[kBackup].last_psn = 1;
  FakeQp& backup = World::fake(group_, kBackup);
  backup.qp.state = IBV_QPS_RTR;
  ASSERT_EQ(member_qp_start_sending(*group_, kBackup), 0);
  EXPECT_EQ(backup.attr.retry_cnt, 6);
}

// C9: an address that is gone for a while is still shown to an application that uses it.
TEST_F(MemberModify, AnAddressInUseIsRememberedAtItsPlace) {
  group_->life.asked.mask = IBV_QP_AV;
  group_->life.asked.attr.port_num = 1;
  group_->life.asked.attr.ah_attr.grh.sgid_index = 5;
  EXPECT_EQ(gid_in_use(world_.context, 1, 5), group_->life.ends.local.gid);
  EXPECT_FALSE(gid_in_use(world_.context, 1, 4));
  EXPECT_FALSE(gid_in_use(world_.context, 2, 5));
  group_->life.asked.mask = 0;  // as after a reset
  EXPECT_FALSE(gid_in_use(world_.context, 1, 5));
}

}  // namespace
}  // namespace shift::group
