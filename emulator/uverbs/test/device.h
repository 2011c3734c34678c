// One context, with shorthands for the commands.
#pragma once

#include <gtest/gtest.h>
#include <rdma/mlx5-abi.h>
#include <sys/mman.h>
#include <unistd.h>

#include "uverbs/test/command_builder.h"
#include "uverbs/test/fake_nic.h"

namespace cxemu {

inline constexpr size_t kRings = 64 * 1024;

class Device {
 public:
  Device(FakeEngine* engine, Fabric* fabric) {
    context = Context::open(*engine, *fabric, fabric->nic(0, 0), nullptr, pages.data());
    ib_uverbs_get_context_resp answer{};
    mlx5_ib_alloc_ucontext_resp driver;
    mlx5_ib_alloc_ucontext_req_v2 request{};
    request.total_num_bfregs = 16;
    EXPECT_EQ(send().plain(IB_USER_VERBS_CMD_GET_CONTEXT, ib_uverbs_get_context{}, &answer, request,
                           &driver),
              0);
    async_fd = static_cast<int>(answer.async_fd);
    rings = static_cast<uint8_t*>(
        mmap(nullptr, kRings, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~Device() {
    context.reset();
    munmap(rings, kRings);
    close(async_fd);
  }
  Sender send() { return Sender(context.get()); }

  uint32_t pd() {
    ib_uverbs_alloc_pd_resp answer{};
    mlx5_ib_alloc_pd_resp driver;
    EXPECT_EQ(send().plain(IB_USER_VERBS_CMD_ALLOC_PD, ib_uverbs_alloc_pd{}, &answer, NoDriver{},
                           &driver),
              0);
    return answer.pd_handle;
  }
  int pd_free(uint32_t handle) {
    return send().plain(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd{handle});
  }
  int mr(uint32_t pd_handle, uint32_t access, uint32_t* handle, uint64_t start, uint64_t length) {
    ib_uverbs_reg_mr request{};
    request.start = request.hca_va = start;
    request.length = length;
    request.pd_handle = pd_handle;
    request.access_flags = access;
    ib_uverbs_reg_mr_resp answer{};
    const int error = send().plain(IB_USER_VERBS_CMD_REG_MR, request, &answer);
    *handle = answer.mr_handle;
    return error;
  }
  int mr(uint32_t pd_handle, uint32_t access, uint32_t* handle) {
    return mr(pd_handle, access, handle, reinterpret_cast<uint64_t>(rings), kRings);
  }
  mlx5_ib_create_cq cq_driver() {
    mlx5_ib_create_cq driver{};
    driver.buf_addr = reinterpret_cast<uint64_t>(rings);
    driver.db_addr = reinterpret_cast<uint64_t>(rings + kRings - 64);
    driver.cqe_size = 64;
    return driver;
  }
  int cq(const ib_uverbs_create_cq& request, const mlx5_ib_create_cq& driver, uint32_t* handle) {
    ib_uverbs_create_cq_resp answer{};
    mlx5_ib_create_cq_resp out;
    const int error = send().plain(IB_USER_VERBS_CMD_CREATE_CQ, request, &answer, driver, &out);
    *handle = answer.cq_handle;
    return error;
  }
  uint32_t cq(uint64_t user_handle, int channel = -1) {
    ib_uverbs_create_cq request{};
    request.user_handle = user_handle;
    request.cqe = 63;
    request.comp_channel = channel;
    uint32_t handle = 0;
    EXPECT_EQ(cq(request, cq_driver(), &handle), 0);
    return handle;
  }
  int cq_free(uint32_t handle, ib_uverbs_destroy_cq_resp* answer) {
    ib_uverbs_destroy_cq request{};
    request.cq_handle = handle;
    return send().plain(IB_USER_VERBS_CMD_DESTROY_CQ, request, answer);
  }
  int channel() {
    ib_uverbs_create_comp_channel_resp answer{};
    EXPECT_EQ(send().plain(IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, ib_uverbs_create_comp_channel{},
                           &answer),
              0);
    return static_cast<int>(answer.fd);
  }
  ib_uverbs_create_qp qp_request(uint32_t pd_handle, uint32_t cq_handle) {
    ib_uverbs_create_qp request{};
    request.user_handle = 0x5150;
    request.pd_handle = pd_handle;
    request.send_cq_handle = request.recv_cq_handle = cq_handle;
    request.max_send_wr = request.max_recv_wr = 16;
    request.max_send_sge = request.max_recv_sge = 1;
    request.qp_type = IBV_QPT_RC;
    return request;
  }
  mlx5_ib_create_qp qp_driver() {
    mlx5_ib_create_qp driver{};
    driver.buf_addr = reinterpret_cast<uint64_t>(rings);
    driver.db_addr = reinterpret_cast<uint64_t>(rings + kRings - 64);
    driver.sq_wqe_count = 64;
    driver.rq_wqe_count = 16;
    driver.rq_wqe_shift = 5;
    return driver;
  }
  int qp(const ib_uverbs_create_qp& request, const mlx5_ib_create_qp& driver, uint32_t* handle) {
    ib_uverbs_create_qp_resp answer{};
    mlx5_ib_create_qp_resp out;
    const int error = send().plain(IB_USER_VERBS_CMD_CREATE_QP, request, &answer, driver, &out);
    *handle = answer.qp_handle;
    return error;
  }
  int qp_free(uint32_t handle, uint32_t* events) {
    ib_uverbs_destroy_qp request{};
    request.qp_handle = handle;
    ib_uverbs_destroy_qp_resp answer{};
    const int error = send().plain(IB_USER_VERBS_CMD_DESTROY_QP, request, &answer);
    *events = answer.events_reported;
    return error;
  }

  TestPages pages;
  std::unique_ptr<Context> context;
  int async_fd = -1;
  uint8_t* rings = nullptr;
};

}  // namespace cxemu
