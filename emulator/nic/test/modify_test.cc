// ibv_modify_qp: every transition with missing attributes, with extra ones, and with values out of
// range.
#include <gtest/gtest.h>

#include <array>

#include "rig.h"

namespace cxemu::test {
namespace {

constexpr std::array kStates = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};

constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kRtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRts =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

class Modify : public ::testing::Test {
 protected:
  Modify() : cq_(*rig_.a.nic, rig_.a.events), qp_(*rig_.a.nic, rig_.a.events, cq_, cq_) {}

  static ibv_qp_attr good() {
    ibv_qp_attr attr = {};
    attr.port_num = 1;
    attr.path_mtu = IBV_MTU_1024;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.dest_qp_num = 0x20001;
    attr.rq_psn = 0x1abcdef;  // only the low 24 bits count
    attr.sq_psn = 0x123456;
    attr.max_rd_atomic = 3;
    attr.max_dest_rd_atomic = 5;
    attr.timeout = 14;
    attr.retry_cnt = 6;
    attr.rnr_retry = 7;
    attr.min_rnr_timer = 12;
    return attr;
  }
  int to(ibv_qp_state state, int mask, ibv_qp_attr attr = good()) {
    attr.qp_state = state;
    return qp_.modify(attr, mask | IBV_QP_STATE);
  }
  static int required(ibv_qp_state from, ibv_qp_state next) {
    if (from == IBV_QPS_RESET && next == IBV_QPS_INIT) return kInit;
    if (from == IBV_QPS_INIT && next == IBV_QPS_RTR) return kRtr;
    if (from == IBV_QPS_RTR && next == IBV_QPS_RTS) return kRts;
    return 0;
  }
  void bring_to(ibv_qp_state state) {
    ASSERT_EQ(to(IBV_QPS_RESET, 0), 0);
    if (state == IBV_QPS_RESET) return;
    if (state == IBV_QPS_ERR) {
      ASSERT_EQ(to(IBV_QPS_ERR, 0), 0);
      return;
    }
    ibv_qp_state from = IBV_QPS_RESET;
    for (const ibv_qp_state next : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD}) {
      ASSERT_EQ(to(next, required(from, next)), 0);
      from = next;
      if (next == state) return;
    }
  }
  static bool allowed(ibv_qp_state from, ibv_qp_state next) {
    if (next == IBV_QPS_RESET || next == IBV_QPS_ERR) return true;
    const auto is = [&](ibv_qp_state x, ibv_qp_state y) { return from == x && next == y; };
    return is(IBV_QPS_RESET, IBV_QPS_INIT) || is(IBV_QPS_INIT, IBV_QPS_INIT) ||
           is(IBV_QPS_INIT, IBV_QPS_RTR) || is(IBV_QPS_RTR, IBV_QPS_RTS) ||
           is(IBV_QPS_RTS, IBV_QPS_RTS) || is(IBV_QPS_RTS, IBV_QPS_SQD) ||
           is(IBV_QPS_SQD, IBV_QPS_RTS) || is(IBV_QPS_SQD, IBV_QPS_SQD);
  }

  Rig rig_;
  TestCq cq_;
  TestQp qp_;
};

TEST_F(Modify, EveryPairOfStates) {
  for (const ibv_qp_state from : kStates) {
    if (from == IBV_QPS_SQE) continue;  // RC never gets there
    for (const ibv_qp_state next : kStates) {
      bring_to(from);
      const int expected = allowed(from, next) ? 0 : EINVAL;
      EXPECT_EQ(to(next, required(from, next)), expected) << from << " -> " << next;
      EXPECT_EQ(qp_.query().qp_state, expected == 0 ? next : from);
    }
  }
}

TEST_F(Modify, EveryMissingAttributeIsRefused) {
  const std::pair<ibv_qp_state, ibv_qp_state> steps[] = {
      {IBV_QPS_RESET, IBV_QPS_INIT}, {IBV_QPS_INIT, IBV_QPS_RTR}, {IBV_QPS_RTR, IBV_QPS_RTS}};
  for (const auto& [from, next] : steps) {
    const int mask = required(from, next);
    for (int bit = 1; bit <= mask; bit <<= 1) {
      if ((mask & bit) == 0) continue;
      bring_to(from);
      EXPECT_EQ(to(next, mask & ~bit), EINVAL) << from << " -> " << next << " bit " << bit;
      EXPECT_EQ(qp_.query().qp_state, from);
    }
  }
}

TEST_F(Modify, AttributesOfOtherTransitionsAreRefused) {
  bring_to(IBV_QPS_RESET);
  EXPECT_EQ(to(IBV_QPS_INIT, kInit | IBV_QP_SQ_PSN), EINVAL);
  bring_to(IBV_QPS_INIT);
  EXPECT_EQ(to(IBV_QPS_RTR, kRtr | IBV_QP_TIMEOUT), EINVAL);
  EXPECT_EQ(to(IBV_QPS_RTR, kRtr | IBV_QP_QKEY), EINVAL);
  bring_to(IBV_QPS_RTS);
  EXPECT_EQ(to(IBV_QPS_RTS, IBV_QP_DEST_QPN), EINVAL);
  EXPECT_EQ(to(IBV_QPS_RTS, IBV_QP_TIMEOUT), EINVAL);
  EXPECT_EQ(to(IBV_QPS_ERR, IBV_QP_TIMEOUT), EINVAL);
  EXPECT_EQ(to(IBV_QPS_RESET, IBV_QP_PORT), EINVAL);
}

TEST_F(Modify, OptionalAttributesAreTaken) {
  bring_to(IBV_QPS_RTS);
  ibv_qp_attr attr = good();
  attr.min_rnr_timer = 30;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  EXPECT_EQ(to(IBV_QPS_RTS, IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS, attr), 0);
  EXPECT_EQ(qp_.query().min_rnr_timer, 30);
  EXPECT_EQ(qp_.query().qp_access_flags, static_cast<unsigned>(IBV_ACCESS_REMOTE_READ));
}

TEST_F(Modify, CurrentStateMustBeTrue) {
  bring_to(IBV_QPS_RTR);
  ibv_qp_attr attr = good();
  attr.cur_qp_state = IBV_QPS_RTS;
  EXPECT_EQ(to(IBV_QPS_RTS, kRts | IBV_QP_CUR_STATE, attr), EINVAL);
  attr.cur_qp_state = IBV_QPS_RTR;
  EXPECT_EQ(to(IBV_QPS_RTS, kRts | IBV_QP_CUR_STATE, attr), 0);
}

TEST_F(Modify, ValuesOutOfRangeAreRefused) {
  const auto refused = [&](ibv_qp_state from, ibv_qp_state next, auto change) {
    bring_to(from);
    ibv_qp_attr attr = good();
    change(attr);
    EXPECT_EQ(to(next, required(from, next), attr), EINVAL);
  };
  refused(IBV_QPS_RESET, IBV_QPS_INIT, [](ibv_qp_attr& attr) { attr.port_num = 2; });
  refused(IBV_QPS_RESET, IBV_QPS_INIT, [](ibv_qp_attr& attr) { attr.port_num = 0; });
  refused(IBV_QPS_RESET, IBV_QPS_INIT, [](ibv_qp_attr& attr) { attr.pkey_index = 1; });
  refused(IBV_QPS_INIT, IBV_QPS_RTR, [](ibv_qp_attr& attr) { attr.path_mtu = ibv_mtu(0); });
  refused(IBV_QPS_INIT, IBV_QPS_RTR, [](ibv_qp_attr& attr) { attr.path_mtu = ibv_mtu(6); });
  refused(IBV_QPS_INIT, IBV_QPS_RTR, [](ibv_qp_attr& attr) { attr.ah_attr.is_global = 0; });
  refused(IBV_QPS_INIT, IBV_QPS_RTR, [](ibv_qp_attr& attr) { attr.dest_qp_num = 1 << 24; });
  refused(IBV_QPS_INIT, IBV_QPS_RTR, [](ibv_qp_attr& attr) { attr.max_dest_rd_atomic = 17; });
  refused(IBV_QPS_INIT, IBV_QPS_RTR, [](ibv_qp_attr& attr) { attr.min_rnr_timer = 32; });
  refused(IBV_QPS_RTR, IBV_QPS_RTS, [](ibv_qp_attr& attr) { attr.timeout = 32; });
  refused(IBV_QPS_RTR, IBV_QPS_RTS, [](ibv_qp_attr& attr) { attr.retry_cnt = 8; });
  refused(IBV_QPS_RTR, IBV_QPS_RTS, [](ibv_qp_attr& attr) { attr.rnr_retry = 8; });
  refused(IBV_QPS_RTR, IBV_QPS_RTS, [](ibv_qp_attr& attr) { attr.max_rd_atomic = 17; });
}

TEST_F(Modify, QueryGivesWhatWasSet) {
  bring_to(IBV_QPS_RTS);
  const ibv_qp_attr now = qp_.query();
  EXPECT_EQ(now.sq_psn, 0x123456u);
  EXPECT_EQ(now.rq_psn, 0xabcdefu);
  EXPECT_EQ(now.dest_qp_num, 0x20001u);
  EXPECT_EQ(now.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(now.timeout, 14);
  EXPECT_EQ(now.retry_cnt, 6);
  EXPECT_EQ(now.rnr_retry, 7);
  EXPECT_EQ(now.max_rd_atomic, 3);
  EXPECT_EQ(now.max_dest_rd_atomic, 5);
  EXPECT_EQ(now.ah_attr.is_global, 1);
}

TEST(ModifySqd, DrainsWhatWasStartedAndSaysSo) {
  Rig rig;
  Pair pair(rig);
  TestMr local(*rig.a.nic, 100), remote(*rig.b.nic, 100);
  const SendWr write = {.opcode = kWqeWrite,
                        .sges = {local.sge(0, 100)},
                        .remote_address = remote.address(),
                        .rkey = remote.key};
  pair.a.post_send(write);
  rig.a.core.pass();
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  ASSERT_EQ(pair.a.modify(attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
  EXPECT_EQ(pair.a.query().sq_draining, 1);
  pair.a.post_send(write);
  rig.run_for(100'000);
  EXPECT_EQ(pair.a_cq.drain().size(), 1u) << "the second one waits";
  EXPECT_EQ(rig.a.events.async,
            (std::vector<Events::Async>{{IBV_EVENT_SQ_DRAINED, TestQp::kUserHandle}}));
  EXPECT_EQ(pair.a.query().sq_draining, 0);
  ASSERT_EQ(pair.a.to_state(IBV_QPS_RTS), 0);
  rig.run_for(100'000);
  EXPECT_EQ(pair.a_cq.drain().size(), 1u);
}

TEST(NicObjects, QueuePairNumbersAreNotReusedSoon) {
  Rig rig;
  TestCq cq(*rig.a.nic, rig.a.events);
  TestQp first(*rig.a.nic, rig.a.events, cq, cq);
  const uint32_t number = first.number();
  EXPECT_EQ(number >> 16, 1u);
  EXPECT_EQ(rig.a.nic->cq_destroy(cq.cq), EBUSY);
  EXPECT_EQ(rig.a.nic->qp_destroy(first.qp), 0);
  for (int i = 0; i < 100; i++) {
    TestQp next(*rig.a.nic, rig.a.events, cq, cq);
    EXPECT_NE(next.number(), number);
    EXPECT_EQ(rig.a.nic->qp_destroy(next.qp), 0);
  }
  EXPECT_EQ(rig.a.nic->cq_destroy(cq.cq), 0);
}

TEST(NicObjects, BadRingsAreRefused) {
  Rig rig;
  TestCq cq(*rig.a.nic, rig.a.events);
  QpConfig config = {.type = IBV_QPT_RC,
                     .rq_wqe_count = 3,
                     .rq_wqe_shift = 6,
                     .sq_wqe_count = 4,
                     .send_cq = cq.cq,
                     .recv_cq = cq.cq};
  Qp* qp = nullptr;
  EXPECT_EQ(rig.a.nic->qp_create(config, &qp), EINVAL);
  config.rq_wqe_count = 4;
  config.sq_wqe_count = 1 << 16;
  EXPECT_EQ(rig.a.nic->qp_create(config, &qp), EINVAL);
  config.sq_wqe_count = 4;
  config.rq_wqe_shift = 2;
  EXPECT_EQ(rig.a.nic->qp_create(config, &qp), EINVAL);
  config.rq_wqe_shift = 6;
  for (const ibv_qp_type type : {IBV_QPT_RAW_PACKET, IBV_QPT_DRIVER}) {
    config.type = type;
    EXPECT_EQ(rig.a.nic->qp_create(config, &qp), EOPNOTSUPP) << type;
  }
}

}  // namespace
}  // namespace cxemu::test
