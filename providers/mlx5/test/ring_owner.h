// QPs of an emulated ConnectX beneath the stock libmlx5, and how the front reads their work queues.
// The QPs are in ERR: the NIC flushes each request, so addresses and keys may be any numbers.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "util/work_rings.h"

namespace shift::mlx5 {

struct QpShape {
  uint32_t depth, max_sge, max_inline;
  bool all_signaled;
  bool sends = true;  // false: it only receives
};

// The device, the table of the front, and one QP with its own CQ.
class RingOwner {
 public:
  explicit RingOwner(const QpShape& shape) : shape_(shape) {
    list_ = ibv_get_device_list(nullptr);
    context_ = ibv_open_device(list_[0]);
    pd_ = ibv_alloc_pd(context_);
    // Both queues may flush as often as they are full.
    cq_ = ibv_create_cq(context_, 4096, nullptr, nullptr, 0);
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = cq_;
    init.qp_type = IBV_QPT_RC;
    init.sq_sig_all = shape.all_signaled;
    init.cap = {shape.depth, shape.depth, shape.max_sge, shape.max_sge, shape.max_inline};
    if (!shape.sends) init.cap.max_send_wr = init.cap.max_send_sge = 0;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = pd_;
    init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                          IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                          IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_READ |
                          IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
                          IBV_QP_EX_WITH_LOCAL_INV;
    qp_ = ibv_create_qp_ex(context_, &init);
    if (qp_ == nullptr) throw std::runtime_error(std::string("no QP: ") + strerror(errno));
    cap_ = init.cap;
    to_error();
    if (!table().open(qp_, &rings_)) throw std::runtime_error("the queues cannot be read");
  }
  ~RingOwner() {
    EXPECT_EQ(ibv_destroy_qp(qp_), 0);
    EXPECT_EQ(ibv_destroy_cq(cq_), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
    EXPECT_EQ(ibv_close_device(context_), 0);
    ibv_free_device_list(list_);
  }
  RingOwner(const RingOwner&) = delete;
  RingOwner& operator=(const RingOwner&) = delete;

  // The front is loaded by its path, beside the plug-in of the same name. A program for planted
  // bugs has the front's source in it.
  static const WorkRingTable& table() {
#ifdef SHIFT_PLANTED_BUGS
    static const auto get = shift_work_rings;
#else
    static const auto get = [] {
      void* const front = dlopen(MLX5_FRONT_DIR "libmlx5.so.1", RTLD_NOW | RTLD_LOCAL);
      if (front == nullptr) throw std::runtime_error(dlerror());
      return reinterpret_cast<decltype(&shift_work_rings)>(dlsym(front, "shift_work_rings"));
    }();
#endif
    return *get();
  }

  // The provider takes requests only when the QP has been in RTS. It is connected to itself.
  void to_error() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    modify(attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = qp_->qp_num;
    attr.max_dest_rd_atomic = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.hop_limit = 1;
    EXPECT_EQ(ibv_query_gid(context_, 1, 0, &attr.ah_attr.grh.dgid), 0);
    modify(attr, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attr.qp_state = IBV_QPS_RTS;
    attr.max_rd_atomic = 1;
    modify(attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                     IBV_QP_MAX_QP_RD_ATOMIC);
    attr.qp_state = IBV_QPS_ERR;
    modify(attr, 0);
  }
  // Another life of the QP: its queues begin anew in the same memory.
  void reset() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    modify(attr, 0);
    table().forget(&rings_);
    to_error();
  }

  // Waits until a completion comes, and returns its wr_id.
  uint64_t reap() {
    ibv_wc wc;
    int got;
    while ((got = ibv_poll_cq(cq_, 1, &wc)) == 0) sched_yield();
    EXPECT_EQ(got, 1);
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    return wc.wr_id;
  }

  ibv_qp* qp() {
    return qp_;
  }
  ibv_qp_ex* builder() {
    return ibv_qp_to_qp_ex(qp_);
  }
  const ibv_qp_cap& cap() const {
    return cap_;
  }
  const WorkRings& rings() const {
    return rings_;
  }
  const QpShape& shape() const {
    return shape_;
  }
  uint32_t sends_end() const {
    return table().sends_end(&rings_);
  }

 private:
  void modify(ibv_qp_attr& attr, int more) {
    EXPECT_EQ(ibv_modify_qp(qp_, &attr, IBV_QP_STATE | more), 0) << "to state " << attr.qp_state;
  }

  const QpShape shape_;
  ibv_device** list_;
  ibv_context* context_;
  ibv_pd* pd_;
  ibv_cq* cq_;
  ibv_qp* qp_;
  ibv_qp_cap cap_{};
  WorkRings rings_{};
};

// What table().send_before() has read.
struct ReadSend {
  ReadSend(const RingOwner& owner, uint32_t end, ibv_wr_opcode opcode, bool is_signaled)
      : sges(owner.cap().max_send_sge + 1), data(owner.cap().max_inline_data) {
    const SentHint hint{static_cast<uint32_t>(opcode), is_signaled};
    const SentRequest to{&wr, sges.data(), owner.cap().max_send_sge, data.data(),
                         static_cast<uint32_t>(data.size())};
    blocks = RingOwner::table().send_before(&owner.rings(), end, &hint, &to);
  }
  ibv_send_wr wr{};
  std::vector<ibv_sge> sges;
  std::vector<uint8_t> data;
  uint32_t blocks;  // 0: no request could be read
};

}  // namespace shift::mlx5
