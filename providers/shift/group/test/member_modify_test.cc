// What of the application's attributes reaches the NIC, and what it is shown of them.
#include <gtest/gtest.h>

#include "group/member.h"
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

// rxe takes 7 for "without end", and would never report a broken path.
TEST_F(MemberModify, RetriesEnd) {
  for (const auto& [asked, set] : {std::pair<uint8_t, uint8_t>{0, 0}, {3, 3}, {6, 6}, {7, 6}}) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.retry_cnt = asked;
    ASSERT_EQ(application_modify(*group_, kDefault, attr, IBV_QP_STATE | IBV_QP_RETRY_CNT), 0);
    EXPECT_EQ(on_default().attr.retry_cnt, set);
    EXPECT_EQ(group_->attr.retry_cnt, asked) << "what the application is shown";
  }
}

TEST_F(MemberModify, RetriesEndOnTheOtherMembers) {
  group_->attr.retry_cnt = 7;
  group_->last_psn[kBackup] = 1;
  FakeQp& backup = World::fake(group_, kBackup);
  backup.qp.state = IBV_QPS_RTR;
  ASSERT_EQ(member_qp_start_sending(*group_, kBackup), 0);
  EXPECT_EQ(backup.attr.retry_cnt, 6);
}

// C9: an address that is gone for a while is shown to who uses it.
TEST_F(MemberModify, AnAddressInUseIsRememberedAtItsPlace) {
  group_->attr_mask = IBV_QP_AV;
  group_->attr.port_num = 1;
  group_->attr.ah_attr.grh.sgid_index = 5;
  EXPECT_EQ(gid_in_use(world_.context, 1, 5), group_->local.gid);
  EXPECT_FALSE(gid_in_use(world_.context, 1, 4));
  EXPECT_FALSE(gid_in_use(world_.context, 2, 5));
  group_->attr_mask = 0;  // reset since
  EXPECT_FALSE(gid_in_use(world_.context, 1, 5));
}

}  // namespace
}  // namespace shift::group
