// Direct verbs on virtual devices of emulated NICs, with the real provider beneath. The program is
// not linked with libmlx5; as other programs do, it opens it after it has seen the devices.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

std::string mode() {
  const char* value = getenv("SHIFT_DIRECT_VERBS");
  return value != nullptr ? value : "refuse";
}

class DirectVerbs : public ::testing::Test {
 protected:
  DirectVerbs() {
    list_ = ibv_get_device_list(nullptr);
    handle_ = dlopen("libmlx5.so.1", RTLD_NOW | RTLD_LOCAL);
    device_ = list_[0];
    context_ = ibv_open_device(device_);
    pd_ = ibv_alloc_pd(context_);
    cq_ = ibv_create_cq(context_, 64, nullptr, nullptr, 0);
  }
  ~DirectVerbs() override {
    EXPECT_EQ(ibv_destroy_cq(cq_), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
    EXPECT_EQ(ibv_close_device(context_), 0);
    ibv_free_device_list(list_);
  }

  template <typename Function>
  Function* find(const char* name, Function*) {
    return reinterpret_cast<Function*>(dlsym(handle_, name));
  }
#define DIRECT(name) find(#name, static_cast<decltype(&::name)>(nullptr))

  ibv_qp_init_attr_ex init(ibv_qp_type type) {
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = cq_;
    attr.cap = {8, 8, 1, 1, 0};
    attr.qp_type = type;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = pd_;
    return attr;
  }
  ibv_qp* make_qp(ibv_qp_type type, mlx5dv_qp_init_attr* more) {
    ibv_qp_init_attr_ex attr = init(type);
    errno = 0;
    return DIRECT(mlx5dv_create_qp)(context_, &attr, more);
  }
  template <typename In, typename Out>
  int look(In* in, Out* out, uint64_t type) {
    mlx5dv_obj obj{};
    struct {
      In* in;
      Out* out;
    } one{in, out};
    const size_t place = type == MLX5DV_OBJ_QP    ? offsetof(mlx5dv_obj, qp)
                         : type == MLX5DV_OBJ_CQ  ? offsetof(mlx5dv_obj, cq)
                         : type == MLX5DV_OBJ_SRQ ? offsetof(mlx5dv_obj, srq)
                                                  : offsetof(mlx5dv_obj, pd);
    std::memcpy(reinterpret_cast<char*>(&obj) + place, &one, sizeof one);
    return DIRECT(mlx5dv_init_obj)(&obj, type);
  }

  ibv_device** list_;
  void* handle_;
  ibv_device* device_;
  ibv_context* context_;
  ibv_pd* pd_;
  ibv_cq* cq_;
};

// The plug-in of that SONAME is already loaded in the process.
TEST_F(DirectVerbs, TheNameLeadsToTheFront) {
  Dl_info info;
  ASSERT_NE(dladdr(dlsym(handle_, "mlx5dv_init_obj"), &info), 0);
  EXPECT_EQ(std::string(info.dli_fname).find(MLX5_FRONT_DIR), 0U) << info.dli_fname;
}

// ucx_info, which is linked with what is refused, hears otherwise: check_direct.py.
TEST_F(DirectVerbs, AProgramThatOnlyAsksHearsTheTruth) {
  EXPECT_TRUE(DIRECT(mlx5dv_is_supported)(device_));
}

TEST_F(DirectVerbs, OpensAVirtualContextUnlessUnprotected) {
  mlx5dv_context_attr attr{};
  ibv_context* context = DIRECT(mlx5dv_open_device)(device_, &attr);
  ASSERT_NE(context, nullptr) << strerror(errno);
  EXPECT_EQ(context->device == device_, mode() != "unprotected");
  mlx5dv_context answer{};
  EXPECT_EQ(DIRECT(mlx5dv_query_device)(context, &answer), 0);
  EXPECT_EQ(ibv_close_device(context), 0);
  attr.comp_mask = 1U << 31;
  errno = 0;
  EXPECT_EQ(DIRECT(mlx5dv_open_device)(device_, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(DirectVerbs, QuestionsAreAnswered) {
  mlx5dv_context answer{};
  EXPECT_EQ(DIRECT(mlx5dv_query_device)(context_, &answer), 0);
  mlx5dv_pd pd{};
  EXPECT_EQ(look(pd_, &pd, MLX5DV_OBJ_PD), 0);
  EXPECT_NE(pd.pdn, 0U);
}

// Each function gets a virtual context. Whatever the NIC answers, nothing crashes.
TEST_F(DirectVerbs, WhatTheNicRefusesIsItsOwnAnswer) {
  mlx5dv_clock_info clock{};
  (void)DIRECT(mlx5dv_get_clock_info)(context_, &clock);
  mlx5dv_port port{};
  (void)DIRECT(_mlx5dv_query_port)(context_, 1, &port, sizeof port);
  uint32_t number = 0;
  (void)DIRECT(mlx5dv_devx_query_eqn)(context_, 0, &number);
  if (DIRECT(mlx5dv_reserved_qpn_alloc)(context_, &number) == 0) {
    EXPECT_EQ(DIRECT(mlx5dv_reserved_qpn_dealloc)(context_, number), 0);
  }
  uint8_t in[16]{}, out[16]{};
  EXPECT_NE(DIRECT(mlx5dv_devx_general_cmd)(context_, in, sizeof in, out, sizeof out), 0);
  if (auto* uar = DIRECT(mlx5dv_devx_alloc_uar)(context_, MLX5DV_UAR_ALLOC_TYPE_NC)) {
    DIRECT(mlx5dv_devx_free_uar)(uar);
  }
  if (auto* var = DIRECT(mlx5dv_alloc_var)(context_, 0)) DIRECT(mlx5dv_free_var)(var);
  char page[4096];
  if (auto* umem = DIRECT(mlx5dv_devx_umem_reg)(context_, page, sizeof page, 0)) {
    EXPECT_EQ(DIRECT(mlx5dv_devx_umem_dereg)(umem), 0);
  }
  if (auto* channel = DIRECT(mlx5dv_devx_create_event_channel)(
          context_, static_cast<mlx5dv_devx_create_event_channel_flags>(0))) {
    DIRECT(mlx5dv_devx_destroy_event_channel)(channel);
  }
  if (auto* domain = DIRECT(mlx5dv_dr_domain_create)(context_, MLX5DV_DR_DOMAIN_TYPE_NIC_RX)) {
    EXPECT_EQ(DIRECT(mlx5dv_dr_domain_destroy)(domain), 0);
  }
  mlx5dv_mkey_init_attr key_init{};
  key_init.pd = pd_;
  key_init.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT;
  key_init.max_entries = 4;
  if (auto* key = DIRECT(mlx5dv_create_mkey)(&key_init)) {
    EXPECT_EQ(DIRECT(mlx5dv_destroy_mkey)(key), 0);
  }
  EXPECT_EQ(key_init.pd, pd_);
  EXPECT_EQ(DIRECT(mlx5dv_vfio_process_events)(context_), EOPNOTSUPP);
  EXPECT_EQ(DIRECT(mlx5dv_vfio_get_events_fd)(context_), -1);
}

TEST_F(DirectVerbs, CompletionQueuesAreVirtual) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 16;
  mlx5dv_cq_init_attr more{};
  more.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
  more.cqe_size = 128;
  ibv_cq_ex* cq = DIRECT(mlx5dv_create_cq)(context_, &attr, &more);
  ASSERT_NE(cq, nullptr) << strerror(errno);
  EXPECT_EQ(cq->context, context_);
  mlx5dv_cq out{};
  EXPECT_EQ(look(ibv_cq_ex_to_cq(cq), &out, MLX5DV_OBJ_CQ),
            mode() == "unprotected" ? 0 : EOPNOTSUPP);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  more.cqe_size = 63;
  EXPECT_EQ(DIRECT(mlx5dv_create_cq)(context_, &attr, &more), nullptr);
}

TEST_F(DirectVerbs, ReliableConnectionsAreProtectedOrNotMade) {
  const bool is_unprotected = mode() == "unprotected";
  ibv_qp* qp = make_qp(IBV_QPT_RC, nullptr);
  ASSERT_NE(qp, nullptr) << strerror(errno);
  EXPECT_EQ(qp->context == context_, !is_unprotected);
  mlx5dv_qp out{};
  EXPECT_EQ(look(qp, &out, MLX5DV_OBJ_QP), is_unprotected ? 0 : EOPNOTSUPP);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);

  mlx5dv_qp_init_attr more{};
  more.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
  more.send_ops_flags = MLX5DV_QP_EX_WITH_RAW_WQE;
  ibv_qp_init_attr_ex attr = init(IBV_QPT_RC);
  attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
  errno = 0;
  qp = DIRECT(mlx5dv_create_qp)(context_, &attr, &more);
  if (!is_unprotected) {
    EXPECT_EQ(qp, nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    return;
  }
  ASSERT_NE(qp, nullptr) << strerror(errno);
  EXPECT_NE(DIRECT(mlx5dv_qp_ex_from_ibv_qp_ex)(ibv_qp_to_qp_ex(qp)), nullptr);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(DirectVerbs, DatagramsAreTheNicsOwn) {
  ibv_qp* qp = make_qp(IBV_QPT_UD, nullptr);
  ASSERT_NE(qp, nullptr) << strerror(errno);
  EXPECT_NE(qp->context, context_);
  mlx5dv_qp out{};
  EXPECT_EQ(look(qp, &out, MLX5DV_OBJ_QP), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

// Only in the mode `unprotected` are objects made by plain verbs handed over.
TEST_F(DirectVerbs, ProtectedObjectsAreGivenUpOrKept) {
  const int expected = mode() == "unprotected" ? 0 : EOPNOTSUPP;
  ibv_qp_init_attr_ex attr = init(IBV_QPT_RC);
  attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
  ibv_qp* qp = ibv_create_qp_ex(context_, &attr);
  ASSERT_NE(qp, nullptr) << strerror(errno);
  EXPECT_EQ(DIRECT(mlx5dv_qp_ex_from_ibv_qp_ex)(ibv_qp_to_qp_ex(qp)), nullptr);
  if (expected != 0) {
    EXPECT_EQ(DIRECT(mlx5dv_modify_qp_udp_sport)(qp, 50000), EOPNOTSUPP);
    EXPECT_EQ(DIRECT(mlx5dv_modify_qp_lag_port)(qp, 1), EOPNOTSUPP);
    EXPECT_EQ(DIRECT(mlx5dv_modify_qp_sched_elem)(qp, nullptr, nullptr), EOPNOTSUPP);
    errno = 0;
    EXPECT_EQ(DIRECT(mlx5dv_dr_action_create_dest_ibv_qp)(qp), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
  mlx5dv_qp qp_out{};
  EXPECT_EQ(look(qp, &qp_out, MLX5DV_OBJ_QP), expected);
  EXPECT_EQ(qp_out.sq.buf != nullptr, expected == 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);

  ibv_srq_init_attr srq_attr{};
  srq_attr.attr.max_wr = 8;
  srq_attr.attr.max_sge = 1;
  ibv_srq* srq = ibv_create_srq(pd_, &srq_attr);
  ASSERT_NE(srq, nullptr) << strerror(errno);
  mlx5dv_srq srq_out{};
  EXPECT_EQ(look(srq, &srq_out, MLX5DV_OBJ_SRQ), expected);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

// The queue is handed over with the queue pairs on it, and with those made on it later.
TEST_F(DirectVerbs, CompletionQueuesAreGivenUpOrKept) {
  ibv_qp_init_attr_ex attr = init(IBV_QPT_RC);
  ibv_qp* before = ibv_create_qp_ex(context_, &attr);
  ASSERT_NE(before, nullptr) << strerror(errno);
  mlx5dv_cq out{};
  EXPECT_EQ(look(cq_, &out, MLX5DV_OBJ_CQ), mode() == "unprotected" ? 0 : EOPNOTSUPP);
  EXPECT_EQ(out.buf != nullptr, mode() == "unprotected");
  ibv_qp* after = ibv_create_qp_ex(context_, &attr);
  ASSERT_NE(after, nullptr) << strerror(errno);
  EXPECT_EQ(ibv_destroy_qp(before), 0);
  EXPECT_EQ(ibv_destroy_qp(after), 0);
}

// The raw command that makes a reliable connection is refused. A command for a datagram queue pair
// goes to the NIC, which supports no commands.
TEST_F(DirectVerbs, ConnectionsMadeByCommandAreRefused) {
  uint8_t in[272]{0x05, 0x00}, out[16]{};
  errno = 0;
  EXPECT_EQ(DIRECT(mlx5dv_devx_obj_create)(context_, in, sizeof in, out, sizeof out), nullptr);
  EXPECT_NE(errno, 0);
}

}  // namespace
