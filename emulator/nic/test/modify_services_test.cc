// ibv_modify_qp for the services other than RC: each transition with exactly the required
// attributes, with each of them missing, and with each attribute that it does not allow.
#include <gtest/gtest.h>

#include <memory>

#include "rig.h"

namespace cxemu::test {
namespace {

constexpr int kAccess = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kAddress = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

// The requirements of the architecture's tables, written down independently.
struct Path {
  ibv_qp_type type;
  int init, rtr, rts;  // required
};

constexpr Path kPaths[] = {
    {IBV_QPT_UC, kAccess, kAddress, IBV_QP_SQ_PSN},
    {IBV_QPT_UD, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0, IBV_QP_SQ_PSN},
    {IBV_QPT_XRC_SEND, kAccess, kAddress,
     IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
         IBV_QP_MAX_QP_RD_ATOMIC},
    {IBV_QPT_XRC_RECV, kAccess, kAddress | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
     IBV_QP_SQ_PSN | IBV_QP_TIMEOUT},
};

class ModifyServices : public ::testing::TestWithParam<Path> {
 protected:
  int to(ibv_qp_state state, int mask) {
    ibv_qp_attr attr = {};
    attr.qp_state = state;
    attr.port_num = 1;
    attr.path_mtu = IBV_MTU_1024;
    attr.ah_attr.is_global = 1;
    return qp_.modify(attr, mask | IBV_QP_STATE);
  }
  void bring_to(ibv_qp_state state) {
    const Path& path = GetParam();
    ASSERT_EQ(to(IBV_QPS_RESET, 0), 0);
    if (state == IBV_QPS_RESET) return;
    ASSERT_EQ(to(IBV_QPS_INIT, path.init), 0);
    if (state == IBV_QPS_INIT) return;
    ASSERT_EQ(to(IBV_QPS_RTR, path.rtr), 0);
    if (state == IBV_QPS_RTR) return;
    ASSERT_EQ(to(IBV_QPS_RTS, path.rts), 0);
    if (state == IBV_QPS_RTS) return;
    ASSERT_EQ(to(IBV_QPS_SQD, 0), 0);
  }

  Rig rig_;
  TestCq cq_{*rig_.a.nic, rig_.a.events};
  TestQp qp_{*rig_.a.nic, rig_.a.events, cq_, cq_, {.type = GetParam().type, .xrcd = 1}};
};

INSTANTIATE_TEST_SUITE_P(All, ModifyServices, ::testing::ValuesIn(kPaths));

TEST_P(ModifyServices, EveryMissingAttributeIsRefused) {
  const Path& path = GetParam();
  const std::tuple<ibv_qp_state, ibv_qp_state, int> steps[] = {
      {IBV_QPS_RESET, IBV_QPS_INIT, path.init},
      {IBV_QPS_INIT, IBV_QPS_RTR, path.rtr},
      {IBV_QPS_RTR, IBV_QPS_RTS, path.rts}};
  for (const auto& [from, next, mask] : steps) {
    for (int bit = 1; bit <= mask; bit <<= 1) {
      if ((mask & bit) == 0) continue;
      bring_to(from);
      EXPECT_EQ(to(next, mask & ~bit), EINVAL) << from << " -> " << next << " bit " << bit;
      EXPECT_EQ(qp_.query().qp_state, from);
    }
  }
}

TEST_P(ModifyServices, OtherServicesAttributesAreRefused) {
  const Path& path = GetParam();
  const bool datagram = path.type == IBV_QPT_UD;
  bring_to(IBV_QPS_RESET);
  EXPECT_EQ(to(IBV_QPS_INIT, path.init | (datagram ? IBV_QP_ACCESS_FLAGS : IBV_QP_QKEY)), EINVAL);
  bring_to(IBV_QPS_INIT);
  EXPECT_EQ(to(IBV_QPS_RTR, path.rtr | (datagram ? IBV_QP_AV : IBV_QP_QKEY)), EINVAL);
  EXPECT_EQ(to(IBV_QPS_RTR, path.rtr | IBV_QP_SQ_PSN), EINVAL);
  if (path.type != IBV_QPT_XRC_RECV) {
    EXPECT_EQ(to(IBV_QPS_RTR, path.rtr | IBV_QP_MIN_RNR_TIMER), EINVAL);
  }
  bring_to(IBV_QPS_RTR);
  if (path.type != IBV_QPT_XRC_SEND) {
    EXPECT_EQ(to(IBV_QPS_RTS, path.rts | IBV_QP_RETRY_CNT), EINVAL);
  }
  bring_to(IBV_QPS_RTS);
  EXPECT_EQ(to(IBV_QPS_RTS, IBV_QP_TIMEOUT), EINVAL);
}

TEST_P(ModifyServices, DrainsAndGoesOn) {
  bring_to(IBV_QPS_SQD);
  EXPECT_EQ(to(IBV_QPS_SQD, IBV_QP_PKEY_INDEX), 0);
  EXPECT_EQ(to(IBV_QPS_SQD, IBV_QP_DEST_QPN), EINVAL);
  EXPECT_EQ(to(IBV_QPS_RTS, IBV_QP_CUR_STATE), EINVAL) << "the current state given is not this one";
  EXPECT_EQ(to(IBV_QPS_RTS, 0), 0);
  EXPECT_EQ(to(IBV_QPS_SQE, 0), EINVAL) << "only an error leads there";
}

// Services whose send queue can fail alone.
class ModifySqe : public ModifyServices {};
INSTANTIATE_TEST_SUITE_P(Unreliable, ModifySqe, ::testing::Values(kPaths[0], kPaths[1]));

TEST_P(ModifySqe, IsLeftByWord) {
  for (const ibv_qp_state next : {IBV_QPS_RTS, IBV_QPS_ERR, IBV_QPS_RESET}) {
    bring_to(IBV_QPS_RTS);
    qp_.reset_indices();
    qp_.post_send({.opcode = kWqeRead});  // this service has no READ
    rig_.run_for(10'000);
    ASSERT_EQ(qp_.query().qp_state, IBV_QPS_SQE);
    EXPECT_EQ(to(IBV_QPS_SQD, 0), EINVAL);
    EXPECT_EQ(to(IBV_QPS_RTS, IBV_QP_SQ_PSN), EINVAL);
    EXPECT_EQ(to(next, 0), 0) << next;
    EXPECT_EQ(qp_.query().qp_state, next);
  }
}

}  // namespace
}  // namespace cxemu::test
