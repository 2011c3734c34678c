// Objects: handles of one context only, EBUSY while an object is used, exact event counts, cleaning
// up.
#include "uverbs/objects.h"

#include <gtest/gtest.h>
#include <rdma/mlx5-abi.h>
#include <unistd.h>

#include "fabric/gid.h"
#include "uverbs/test/device.h"

namespace cxemu {
namespace {

class ObjectsTest : public ::testing::Test {
 protected:
  TestFabric fabric_;
  FakeEngine engine_;
  Device device_{&engine_, &fabric_.fabric};
};

TEST_F(ObjectsTest, UsedObjectsAreBusy) {
  const uint32_t pd = device_.pd(), cq = device_.cq(1);
  uint32_t mr, qp, events;
  ASSERT_EQ(device_.mr(pd, IBV_ACCESS_LOCAL_WRITE, &mr), 0);
  ASSERT_EQ(device_.qp(device_.qp_request(pd, cq), device_.qp_driver(), &qp), 0);
  ib_uverbs_destroy_cq_resp counts;
  EXPECT_EQ(device_.pd_free(pd), EBUSY);
  EXPECT_EQ(device_.cq_free(cq, &counts), EBUSY);
  EXPECT_EQ(device_.qp_free(qp, &events), 0);
  EXPECT_EQ(device_.pd_free(pd), EBUSY);  // the MR still uses it
  EXPECT_EQ(device_.send().plain(IB_USER_VERBS_CMD_DEREG_MR, ib_uverbs_dereg_mr{mr}), 0);
  EXPECT_EQ(device_.cq_free(cq, &counts), 0);
  EXPECT_EQ(device_.pd_free(pd), 0);
  EXPECT_EQ(device_.pd_free(pd), EINVAL);
  EXPECT_TRUE(engine_.log.keys.empty());
}

TEST_F(ObjectsTest, HandlesMeanNothingInAnotherContext) {
  Device other(&engine_, &fabric_.fabric);
  const uint32_t pd = device_.pd(), cq = device_.cq(1);
  uint32_t handle;
  EXPECT_EQ(other.mr(pd, 0, &handle), EINVAL);
  EXPECT_EQ(other.pd_free(pd), EINVAL);
  EXPECT_EQ(other.qp(other.qp_request(other.pd(), cq), other.qp_driver(), &handle), EINVAL);
  const int channel = device_.channel();
  ib_uverbs_create_cq request{};
  request.cqe = 15;
  request.comp_channel = channel;
  EXPECT_EQ(other.cq(request, other.cq_driver(), &handle), EINVAL);
  close(channel);
}

TEST_F(ObjectsTest, HandlesOfAnotherTypeAreRefused) {
  const uint32_t cq = device_.cq(1);
  EXPECT_EQ(device_.pd_free(cq), EINVAL);
  EXPECT_EQ(device_.send().plain(IB_USER_VERBS_CMD_DEREG_MR, ib_uverbs_dereg_mr{cq}), EINVAL);
}

TEST_F(ObjectsTest, RegistrationChecks) {
  const uint32_t pd = device_.pd();
  uint32_t mr;
  const auto at = reinterpret_cast<uint64_t>(device_.rings);
  EXPECT_EQ(device_.mr(pd, IBV_ACCESS_REMOTE_WRITE, &mr), EINVAL);
  EXPECT_EQ(device_.mr(pd, IBV_ACCESS_REMOTE_ATOMIC, &mr), EINVAL);
  EXPECT_EQ(device_.mr(pd, 1u << 15, &mr), EINVAL);
  EXPECT_EQ(device_.mr(pd, IBV_ACCESS_RELAXED_ORDERING, &mr), 0);
  EXPECT_EQ(device_.mr(pd, 0, &mr, at, 0), EINVAL);
  EXPECT_EQ(device_.mr(pd, 0, &mr, 0x1000, 4096), EFAULT);
  EXPECT_EQ(device_.mr(99, 0, &mr), EINVAL);
  EXPECT_EQ(device_.mr(pd, IBV_ACCESS_ON_DEMAND, &mr, 0x1000, 0), EINVAL);
  EXPECT_EQ(engine_.log.keys.size(), 1u);
  EXPECT_EQ(device_.mr(pd, IBV_ACCESS_ON_DEMAND, &mr, 0x1000, 4096), 0) << "need not be there";
}

TEST_F(ObjectsTest, QueuePairChecks) {
  const uint32_t pd = device_.pd(), cq = device_.cq(1);
  const auto request = device_.qp_request(pd, cq);
  const auto driver = device_.qp_driver();
  uint32_t qp;
  const auto refused = [&](auto change_request, auto change_driver) {
    auto r = request;
    auto d = driver;
    change_request(&r);
    change_driver(&d);
    const int error = device_.qp(r, d, &qp);
    EXPECT_TRUE(engine_.log.qps.empty());
    return error;
  };
  const auto as_is = [](auto*) {};
  EXPECT_EQ(refused([](auto* r) { r->qp_type = IBV_QPT_RAW_PACKET; }, as_is), EOPNOTSUPP);
  EXPECT_EQ(refused([](auto* r) { r->qp_type = IBV_QPT_DRIVER; }, as_is), EOPNOTSUPP);
  EXPECT_EQ(refused([](auto* r) { r->is_srq = 1; }, as_is), EINVAL);
  EXPECT_EQ(refused([](auto* r) { r->qp_type = IBV_QPT_XRC_RECV; }, as_is), EINVAL);
  EXPECT_EQ(refused([](auto* r) { r->pd_handle = 40; }, as_is), EINVAL);
  EXPECT_EQ(refused([](auto* r) { r->max_send_wr = 65; }, as_is), EINVAL);
  EXPECT_EQ(refused([](auto* r) { r->max_send_sge = 31; }, as_is), EINVAL);
  EXPECT_EQ(refused(as_is, [](auto* d) { d->sq_wqe_count = 63; }), EINVAL);
  EXPECT_EQ(refused(as_is, [](auto* d) { d->sq_wqe_count = 1u << 30; }), EINVAL);
  EXPECT_EQ(refused(as_is, [](auto* d) { d->rq_wqe_shift = 10; }), EINVAL);
  EXPECT_EQ(refused(as_is, [](auto* d) { d->rq_wqe_shift = 64; }), EINVAL);
  EXPECT_EQ(refused(as_is, [](auto* d) { d->buf_addr = 0x1000; }), EFAULT);
  EXPECT_EQ(refused(as_is, [](auto* d) { d->db_addr = 0x1000; }), EFAULT);
  EXPECT_EQ(refused(as_is, [](auto* d) { d->flags = MLX5_QP_FLAG_TYPE_DCT; }), EOPNOTSUPP);
  engine_.log.next_error = ENOMEM;
  EXPECT_EQ(refused(as_is, as_is), ENOMEM);
  EXPECT_EQ(device_.qp(request, driver, &qp), 0);
  const QpConfig& config = (*engine_.log.qps.begin())->config;
  EXPECT_EQ(config.rq_buffer, device_.rings);
  EXPECT_EQ(config.sq_buffer, device_.rings + 16 * 32);
}

// The width of a missing ring is ignored, however large it is.
TEST_F(ObjectsTest, AQueuePairWithoutReceiveRingHasNoUseForItsShift) {
  auto request = device_.qp_request(device_.pd(), device_.cq(1));
  request.max_recv_wr = 0;
  auto driver = device_.qp_driver();
  driver.rq_wqe_count = 0;
  driver.rq_wqe_shift = 9'306'117;
  uint32_t qp;
  ASSERT_EQ(device_.qp(request, driver, &qp), 0);
  EXPECT_EQ((*engine_.log.qps.begin())->config.sq_buffer, device_.rings);
}

TEST_F(ObjectsTest, ModifyPassesWhatWasAsked) {
  const uint32_t pd = device_.pd(), cq = device_.cq(1);
  uint32_t qp;
  ASSERT_EQ(device_.qp(device_.qp_request(pd, cq), device_.qp_driver(), &qp), 0);
  ib_uverbs_modify_qp request{};
  request.qp_handle = qp;
  request.attr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_TIMEOUT;
  request.qp_state = IBV_QPS_RTR;
  request.dest_qp_num = 0x20007;
  request.timeout = 14;
  request.dest.is_global = 1;
  request.dest.port_num = 1;
  request.dest.sgid_index = 3;
  nic_gid(*fabric_.fabric.nic(1, 0), 3, request.dest.dgid);
  const auto modify = [&](const ib_uverbs_modify_qp& r) {
    return device_.send().plain(IB_USER_VERBS_CMD_MODIFY_QP, r);
  };
  EXPECT_EQ(modify(request), 0);
  const Qp* seen = *engine_.log.qps.begin();
  EXPECT_EQ(seen->attr_mask, int(request.attr_mask));
  EXPECT_EQ(seen->attr.dest_qp_num, 0x20007u);
  EXPECT_EQ(seen->attr.ah_attr.grh.sgid_index, 3);
  EXPECT_EQ(memcmp(seen->attr.ah_attr.grh.dgid.raw, request.dest.dgid, 16), 0);
  auto bad = request;
  bad.dest.is_global = 0;
  EXPECT_EQ(modify(bad), EINVAL);
  bad = request;
  bad.dest.sgid_index = kGidCount;
  EXPECT_EQ(modify(bad), EINVAL);
  bad = request;
  bad.attr_mask |= IBV_QP_ALT_PATH;
  EXPECT_EQ(modify(bad), EOPNOTSUPP);
  bad = request;
  bad.qp_handle = 999;
  EXPECT_EQ(modify(bad), EINVAL);

  ib_uverbs_query_qp query{};
  query.qp_handle = qp;
  ib_uverbs_query_qp_resp answer;
  ASSERT_EQ(device_.send().plain(IB_USER_VERBS_CMD_QUERY_QP, query, &answer), 0);
  EXPECT_EQ(answer.qp_state, IBV_QPS_RTR);
  EXPECT_EQ(answer.dest_qp_num, 0x20007u);
  EXPECT_EQ(answer.dest.sgid_index, 3);
  EXPECT_EQ(answer.max_send_wr, 16u);
}

TEST_F(ObjectsTest, DestroyReportsOnlyEventsThatWereRead) {
  const int channel = device_.channel();
  const uint32_t cq = device_.cq(11, channel), neighbour = device_.cq(22, channel);
  for (Cq* each : engine_.log.cqs) {
    const CqConfig& config = each->config;
    const int times = config.user_handle == 11 ? 3 : 1;
    for (int i = 0; i < times; ++i) config.sink->completion(config.user_handle, config.channel_fd);
    if (config.user_handle == 11) config.sink->async_event(IBV_EVENT_CQ_ERR, 11);
  }
  uint64_t key = 0;
  for (int left = 4, mine = 0; left > 0 && mine == 0; --left) {  // read one event of the first CQ
    ASSERT_EQ(read(channel, &key, sizeof key), ssize_t(sizeof key));
    mine = key == 11;
  }
  ib_uverbs_destroy_cq_resp counts;
  ASSERT_EQ(device_.cq_free(cq, &counts), 0);
  EXPECT_EQ(counts.comp_events_reported, 1u);
  EXPECT_EQ(counts.async_events_reported, 0u);
  ASSERT_EQ(device_.cq_free(neighbour, &counts), 0);
  close(channel);
}

TEST_F(ObjectsTest, AClosedChannelTakesNoEventsButTheQueueLives) {
  const int channel = device_.channel();
  const uint32_t cq = device_.cq(11, channel);
  close(channel);
  device_.context->channel_closed(channel);
  const CqConfig& config = (*engine_.log.cqs.begin())->config;
  config.sink->completion(11, channel);  // raises no SIGPIPE
  ib_uverbs_destroy_cq_resp counts;
  EXPECT_EQ(device_.cq_free(cq, &counts), 0);
  EXPECT_EQ(counts.comp_events_reported, 0u);
}

TEST_F(ObjectsTest, PortEventsReachTheAsyncFile) {
  engine_.port_sink->async_event(IBV_EVENT_PORT_ERR, 1);
  ib_uverbs_async_event_desc record{};
  ASSERT_EQ(read(device_.async_fd, &record, sizeof record), ssize_t(sizeof record));
  EXPECT_EQ(record.event_type, uint32_t{IBV_EVENT_PORT_ERR});
  EXPECT_EQ(record.element, 1u);
}

TEST_F(ObjectsTest, ClosingTheContextFreesEverything) {
  {
    Device other(&engine_, &fabric_.fabric);
    const uint32_t pd = other.pd(), cq = other.cq(1);
    uint32_t mr, qp;
    ASSERT_EQ(other.mr(pd, 0, &mr), 0);
    ASSERT_EQ(other.qp(other.qp_request(pd, cq), other.qp_driver(), &qp), 0);
    EXPECT_EQ(engine_.log.qps.size(), 1u);
  }
  EXPECT_TRUE(engine_.log.keys.empty());
  EXPECT_TRUE(engine_.log.cqs.empty());
  EXPECT_TRUE(engine_.log.qps.empty());
}

TEST_F(ObjectsTest, OnADeadDeviceOnlyDestroyingWorks) {
  const uint32_t pd = device_.pd(), cq = device_.cq(1);
  uint32_t mr, qp, events;
  ASSERT_EQ(device_.mr(pd, 0, &mr), 0);
  ASSERT_EQ(device_.qp(device_.qp_request(pd, cq), device_.qp_driver(), &qp), 0);
  engine_.log.dead = true;
  uint32_t more;
  EXPECT_EQ(device_.mr(pd, 0, &more), EIO);
  EXPECT_EQ(device_.qp(device_.qp_request(pd, cq), device_.qp_driver(), &more), EIO);
  EXPECT_EQ(device_.qp_free(qp, &events), 0);
  ib_uverbs_destroy_cq_resp counts;
  EXPECT_EQ(device_.cq_free(cq, &counts), 0);
  EXPECT_EQ(device_.send().plain(IB_USER_VERBS_CMD_DEREG_MR, ib_uverbs_dereg_mr{mr}), 0);
  EXPECT_EQ(device_.pd_free(pd), 0);
}

TEST(HandleTableTest, LowestFreeHandleFirst) {
  HandleTable table;
  for (uint32_t i = 0; i < 5; ++i) EXPECT_EQ(table.add(std::make_unique<PdObject>(i)), i);
  table.remove(3);
  table.remove(1);
  EXPECT_EQ(table.add(std::make_unique<PdObject>(0)), 1u);
  EXPECT_EQ(table.add(std::make_unique<PdObject>(0)), 3u);
  EXPECT_EQ(table.add(std::make_unique<PdObject>(0)), 5u);
  EXPECT_EQ(table.find<PdObject>(6), nullptr);
  EXPECT_EQ(table.find<MrObject>(1), nullptr);
  EXPECT_EQ(table.size(), 6u);
}

}  // namespace
}  // namespace cxemu
