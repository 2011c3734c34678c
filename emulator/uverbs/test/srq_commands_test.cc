// Commands for shared receive queues, XRC domains, and queue pairs that are made with them.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "uverbs/test/device.h"

namespace cxemu {
namespace {

class SrqCommandsTest : public ::testing::Test {
 protected:
  ib_uverbs_create_srq srq_request(uint32_t pd) const {
    ib_uverbs_create_srq request{};
    request.user_handle = 0x5e0;
    request.pd_handle = pd;
    request.max_wr = 63;
    request.max_sge = 2;
    return request;
  }
  mlx5_ib_create_srq srq_driver() const {
    mlx5_ib_create_srq driver{};
    driver.buf_addr = reinterpret_cast<uint64_t>(device_.rings);
    driver.db_addr = reinterpret_cast<uint64_t>(device_.rings + kRings - 64);
    driver.uidx = 0x123;
    return driver;
  }
  int srq(const ib_uverbs_create_srq& request, const mlx5_ib_create_srq& driver,
          ib_uverbs_create_srq_resp* answer) {
    mlx5_ib_create_srq_resp out{};
    const int error =
        device_.send().plain(IB_USER_VERBS_CMD_CREATE_SRQ, request, answer, driver, &out);
    if (error == 0) {
      EXPECT_EQ(out.srqn, answer->srqn);
    }
    return error;
  }
  uint32_t srq(uint32_t pd) {
    ib_uverbs_create_srq_resp answer{};
    EXPECT_EQ(srq(srq_request(pd), srq_driver(), &answer), 0);
    return answer.srq_handle;
  }
  int srq_free(uint32_t handle, uint32_t* events) {
    ib_uverbs_destroy_srq request{};
    request.srq_handle = handle;
    ib_uverbs_destroy_srq_resp answer{};
    const int error = device_.send().plain(IB_USER_VERBS_CMD_DESTROY_SRQ, request, &answer);
    *events = answer.events_reported;
    return error;
  }
  int xsrq(const ib_uverbs_create_xsrq& request, uint32_t* handle) {
    ib_uverbs_create_srq_resp answer{};
    mlx5_ib_create_srq_resp out;
    const int error =
        device_.send().plain(IB_USER_VERBS_CMD_CREATE_XSRQ, request, &answer, srq_driver(), &out);
    *handle = answer.srq_handle;
    return error;
  }
  int xrcd(Device* device, int fd, uint32_t flags, uint32_t* handle) {
    ib_uverbs_open_xrcd request{};
    request.fd = static_cast<uint32_t>(fd);
    request.oflags = flags;
    ib_uverbs_open_xrcd_resp answer{};
    const int error = device->send().plain(IB_USER_VERBS_CMD_OPEN_XRCD, request, &answer);
    *handle = answer.xrcd_handle;
    return error;
  }
  int xrcd_close(uint32_t handle) {
    return device_.send().plain(IB_USER_VERBS_CMD_CLOSE_XRCD, ib_uverbs_close_xrcd{handle});
  }
  int pd_free(uint32_t handle) { return device_.pd_free(handle); }

  TestFabric fabric_;
  FakeEngine engine_;
  Device device_{&engine_, &fabric_.fabric};
};

TEST_F(SrqCommandsTest, ShapeIsThatOfTheLibrary) {
  const uint32_t pd = device_.pd();
  ib_uverbs_create_srq_resp answer{};
  ASSERT_EQ(srq(srq_request(pd), srq_driver(), &answer), 0);
  EXPECT_EQ(answer.max_wr, 63u);
  EXPECT_EQ(answer.max_sge, 2u);
  EXPECT_EQ(answer.srqn, 99u);
  const SrqConfig& config = (*engine_.log.srqs.begin())->config;
  EXPECT_EQ(config.buffer, device_.rings);
  EXPECT_EQ(config.wqe_count, 64u);
  EXPECT_EQ(config.wqe_shift, 6u) << "a link and two data segments, rounded up";
  EXPECT_EQ(config.cq, nullptr);
  // The smallest entry has room for one data segment.
  auto request = srq_request(pd);
  request.max_sge = 0;
  uint32_t events;
  ASSERT_EQ(srq_free(answer.srq_handle, &events), 0);
  ASSERT_EQ(srq(request, srq_driver(), &answer), 0);
  EXPECT_EQ((*engine_.log.srqs.begin())->config.wqe_shift, 5u);
}

TEST_F(SrqCommandsTest, BadRequestsMakeNothing) {
  const uint32_t pd = device_.pd();
  const auto refused = [&](auto change_request, auto change_driver) {
    auto r = srq_request(pd);
    auto d = srq_driver();
    change_request(&r);
    change_driver(&d);
    ib_uverbs_create_srq_resp answer{};
    const int error = srq(r, d, &answer);
    EXPECT_TRUE(engine_.log.srqs.empty());
    return error;
  };
  const auto as_is = [](auto*) {};
  EXPECT_EQ(refused([](auto* r) { r->pd_handle = 40; }, as_is), EINVAL);
  EXPECT_EQ(refused([](auto* r) { r->max_wr = 32768; }, as_is), EINVAL);
  EXPECT_EQ(refused([](auto* r) { r->max_wr = ~0u; }, as_is), EINVAL);
  EXPECT_EQ(refused([](auto* r) { r->max_sge = 32; }, as_is), EINVAL);
  EXPECT_EQ(refused(as_is, [](auto* d) { d->flags = MLX5_SRQ_FLAG_SIGNATURE; }), EOPNOTSUPP);
  EXPECT_EQ(refused(as_is, [](auto* d) { d->reserved1 = 1; }), EINVAL);
  EXPECT_EQ(refused(as_is, [](auto* d) { d->buf_addr = 0x1000; }), EFAULT);
  EXPECT_EQ(refused(as_is, [](auto* d) { d->db_addr = 0x1000; }), EFAULT);
  engine_.log.next_error = ENOMEM;
  EXPECT_EQ(refused(as_is, as_is), ENOMEM);
  EXPECT_EQ(pd_free(pd), 0) << "nothing holds it";
}

TEST_F(SrqCommandsTest, LimitIsSetAndResizingRefused) {
  const uint32_t handle = srq(device_.pd());
  ib_uverbs_modify_srq modify{};
  modify.srq_handle = handle;
  modify.attr_mask = IBV_SRQ_LIMIT;
  modify.srq_limit = 7;
  const auto send = [&] { return device_.send().plain(IB_USER_VERBS_CMD_MODIFY_SRQ, modify); };
  EXPECT_EQ(send(), 0);
  ib_uverbs_query_srq query{};
  query.srq_handle = handle;
  ib_uverbs_query_srq_resp answer{};
  ASSERT_EQ(device_.send().plain(IB_USER_VERBS_CMD_QUERY_SRQ, query, &answer), 0);
  EXPECT_EQ(answer.srq_limit, 7u);
  EXPECT_EQ(answer.max_wr, 63u);
  EXPECT_EQ(answer.max_sge, 2u);
  modify.attr_mask |= IBV_SRQ_MAX_WR;
  modify.max_wr = 200;
  EXPECT_EQ(send(), EINVAL);
  modify.attr_mask = IBV_SRQ_LIMIT;
  engine_.log.next_error = EINVAL;
  EXPECT_EQ(send(), EINVAL);
  modify.srq_handle = query.srq_handle = 55;
  EXPECT_EQ(send(), EINVAL);
  EXPECT_EQ(device_.send().plain(IB_USER_VERBS_CMD_QUERY_SRQ, query, &answer), EINVAL);
}

TEST_F(SrqCommandsTest, QueuePairTakesFromItAndHoldsIt) {
  const uint32_t pd = device_.pd(), cq = device_.cq(1), handle = srq(pd);
  auto request = device_.qp_request(pd, cq);
  request.is_srq = 1;
  request.srq_handle = handle;
  auto driver = device_.qp_driver();
  driver.rq_wqe_count = driver.rq_wqe_shift = 0;
  uint32_t qp = 0, events = 0;
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    request.qp_type = static_cast<uint8_t>(type);
    ASSERT_EQ(device_.qp(request, driver, &qp), 0) << type;
    const QpConfig& config = (*engine_.log.qps.begin())->config;
    EXPECT_EQ(config.type, type);
    EXPECT_EQ(config.srq, *engine_.log.srqs.begin());
    EXPECT_EQ(config.cap.max_recv_wr, 0u) << "the queue pair has none of its own";
    EXPECT_EQ(srq_free(handle, &events), EBUSY);
    ASSERT_EQ(device_.qp_free(qp, &events), 0);
  }
  request.srq_handle = 70;
  EXPECT_EQ(device_.qp(request, driver, &qp), EINVAL);
  EXPECT_EQ(srq_free(handle, &events), 0);
  EXPECT_TRUE(engine_.log.srqs.empty());
  EXPECT_EQ(pd_free(pd), 0);
}

TEST_F(SrqCommandsTest, DestroyReportsTheEventsThatWereRead) {
  const uint32_t handle = srq(device_.pd());
  EventSink* sink = (*engine_.log.srqs.begin())->config.sink;
  sink->async_event(IBV_EVENT_SRQ_LIMIT_REACHED, 0x5e0);
  sink->async_event(IBV_EVENT_SRQ_LIMIT_REACHED, 0x5e0);
  ib_uverbs_async_event_desc record;
  ASSERT_EQ(read(device_.async_fd, &record, sizeof record), ssize_t{sizeof record});
  EXPECT_EQ(record.element, 0x5e0u);
  EXPECT_EQ(record.event_type, uint32_t{IBV_EVENT_SRQ_LIMIT_REACHED});
  uint32_t events = 0;
  ASSERT_EQ(srq_free(handle, &events), 0);
  EXPECT_EQ(events, 1u);
}

TEST_F(SrqCommandsTest, XrcQueueHoldsItsDomainAndCompletionQueue) {
  const uint32_t pd = device_.pd(), cq = device_.cq(1);
  uint32_t domain = 0, handle = 0, events = 0;
  ASSERT_EQ(xrcd(&device_, -1, O_CREAT, &domain), 0);
  ib_uverbs_create_xsrq request{};
  request.srq_type = IBV_SRQT_XRC;
  request.pd_handle = pd;
  request.cq_handle = cq;
  request.xrcd_handle = domain;
  request.max_wr = 15;
  request.max_sge = 1;
  ASSERT_EQ(xsrq(request, &handle), 0);
  const SrqConfig config = (*engine_.log.srqs.begin())->config;
  EXPECT_EQ(config.uidx, 0x123u);
  EXPECT_NE(config.cq, nullptr);
  EXPECT_NE(config.xrcd, 0u);
  EXPECT_EQ(xrcd_close(domain), EBUSY);
  ib_uverbs_destroy_cq_resp destroyed;
  EXPECT_EQ(device_.cq_free(cq, &destroyed), EBUSY);
  ASSERT_EQ(srq_free(handle, &events), 0);
  EXPECT_EQ(xrcd_close(domain), 0);
  EXPECT_EQ(xrcd_close(domain), EINVAL);

  EXPECT_EQ(xsrq(request, &handle), EINVAL) << "its domain is gone";
  request.srq_type = IBV_SRQT_TM;
  EXPECT_EQ(xsrq(request, &handle), EOPNOTSUPP);
  request.srq_type = IBV_SRQT_BASIC;
  ASSERT_EQ(xsrq(request, &handle), 0);
  EXPECT_EQ((*engine_.log.srqs.begin())->config.cq, nullptr);
}

TEST_F(SrqCommandsTest, EndsOfExtendedReliableConnections) {
  const uint32_t pd = device_.pd(), cq = device_.cq(1);
  uint32_t domain = 0, qp = 0, events = 0;
  ASSERT_EQ(xrcd(&device_, -1, O_CREAT, &domain), 0);
  auto request = device_.qp_request(domain, 0);
  request.send_cq_handle = request.recv_cq_handle = 99;  // ignored
  request.qp_type = IBV_QPT_XRC_RECV;
  ASSERT_EQ(device_.qp(request, device_.qp_driver(), &qp), 0);
  {
    const QpConfig& config = (*engine_.log.qps.begin())->config;
    EXPECT_EQ(config.send_cq, nullptr);
    EXPECT_EQ(config.recv_cq, nullptr);
    EXPECT_EQ(config.rq_wqe_count, 0u) << "laid out by the library, but not there";
    EXPECT_EQ(config.cap.max_recv_wr, 0u);
    EXPECT_NE(config.xrcd, 0u);
  }
  EXPECT_EQ(xrcd_close(domain), EBUSY);
  // This type has no retries; the kernel drops them from the mask instead of refusing the call.
  ib_uverbs_modify_qp modify{};
  modify.qp_handle = qp;
  modify.attr_mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_SQ_PSN;
  ASSERT_EQ(device_.send().plain(IB_USER_VERBS_CMD_MODIFY_QP, modify), 0);
  EXPECT_EQ((*engine_.log.qps.begin())->attr_mask, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN);
  ASSERT_EQ(device_.qp_free(qp, &events), 0);
  EXPECT_EQ(xrcd_close(domain), 0);

  request = device_.qp_request(pd, cq);
  request.recv_cq_handle = 99;
  request.max_recv_wr = request.max_recv_sge = 0;
  request.qp_type = IBV_QPT_XRC_SEND;
  ASSERT_EQ(device_.qp(request, device_.qp_driver(), &qp), 0);
  EXPECT_EQ((*engine_.log.qps.begin())->config.recv_cq, nullptr);
}

TEST_F(SrqCommandsTest, DomainsOfAFile) {
  FILE* file = tmpfile();
  ASSERT_NE(file, nullptr);
  const int fd = fileno(file);
  uint32_t first = 0, second = 0, other = 0;
  EXPECT_EQ(xrcd(&device_, -1, 0, &first), EAGAIN) << "nothing to open";
  EXPECT_EQ(xrcd(&device_, fd, 0, &first), EAGAIN);
  EXPECT_EQ(xrcd(&device_, fd, O_TRUNC, &first), EINVAL);
  EXPECT_EQ(xrcd(&device_, 9999, O_CREAT, &first), EBADF);
  ASSERT_EQ(xrcd(&device_, fd, O_CREAT, &first), 0);
  EXPECT_EQ(xrcd(&device_, fd, O_CREAT | O_EXCL, &second), EINVAL);
  ASSERT_EQ(xrcd(&device_, fd, 0, &second), 0);
  EXPECT_NE(first, second);
  {
    // A second opening of the device would have to share the domain, which is impossible.
    FakeEngine engine;
    Device device(&engine, &fabric_.fabric);
    EXPECT_EQ(xrcd(&device, fd, O_CREAT, &other), EOPNOTSUPP);
    EXPECT_EQ(xrcd_close(first), 0);
    EXPECT_EQ(xrcd(&device, fd, O_CREAT, &other), EOPNOTSUPP) << "the second handle is left";
    EXPECT_EQ(xrcd_close(second), 0);
    EXPECT_EQ(xrcd(&device, fd, O_CREAT, &other), 0);
  }
  EXPECT_EQ(xrcd(&device_, fd, O_CREAT, &first), 0);
  fclose(file);
}

}  // namespace
}  // namespace cxemu
