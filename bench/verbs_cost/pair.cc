#include "pair.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace bench {
namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr uint32_t kPsn = 4711;

template <typename Init>
Init qp_init(const End& end) {
  Init init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = end.send_cq;
  init.recv_cq = end.recv_cq;
  init.cap.max_send_wr = kDepth;
  init.cap.max_recv_wr = kDepth;
  init.cap.max_send_sge = 1;
  init.cap.max_recv_sge = 1;
  init.cap.max_inline_data = kInlineMessage;
  return init;
}

ibv_qp* create_builder_qp(Device& device, const End& end) {
  auto init = qp_init<ibv_qp_init_attr_ex>(end);
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = device.pd;
  init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND;
  return ibv_create_qp_ex(device.context, &init);
}

ibv_qp* create_classic_qp(Device& device, const End& end) {
  auto init = qp_init<ibv_qp_init_attr>(end);
  return ibv_create_qp(device.pd, &init);
}

ibv_cq_ex* create_extended_cq(Device& device) {
  ibv_cq_init_attr_ex init{};
  init.cqe = kDepth;
  init.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM;
  return ibv_create_cq_ex(device.context, &init);
}

}  // namespace

void fail(const char* what, int error) {
  fprintf(stderr, "verbs-cost: %s: %s\n", what, strerror(error));
  exit(1);
}

Device::Device(const std::string& name, int index) : gid_index(index) {
  ibv_device** list = ibv_get_device_list(nullptr);
  if (list == nullptr) fail("ibv_get_device_list", errno);
  for (int i = 0; list[i] != nullptr && context == nullptr; i++) {
    if (name.empty() || name == ibv_get_device_name(list[i])) context = ibv_open_device(list[i]);
  }
  ibv_free_device_list(list);
  if (context == nullptr) fail("no such device, or it does not open", ENODEV);
  ibv_port_attr port{};
  if (const int error = ibv_query_port(context, 1, &port)) fail("ibv_query_port", error);
  mtu = port.active_mtu;
  if (ibv_query_gid(context, 1, gid_index, &gid) != 0) fail("ibv_query_gid", errno);
  pd = ibv_alloc_pd(context);
  if (pd == nullptr) fail("ibv_alloc_pd", errno);
  memory.resize(1 << 20);
  mr = ibv_reg_mr(pd, memory.data(), memory.size(), kAccess);
  if (mr == nullptr) fail("ibv_reg_mr", errno);
}

Device::~Device() {
  ibv_dereg_mr(mr);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
}

int to_init(ibv_qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = kAccess;
  return ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int to_rtr(const Device& device, ibv_qp* qp, uint32_t remote_qpn) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = device.mtu;
  attr.dest_qp_num = remote_qpn;
  attr.rq_psn = kPsn;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 5;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.grh.dgid = device.gid;
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(device.gid_index);
  attr.ah_attr.grh.hop_limit = 64;
  attr.ah_attr.port_num = 1;
  return ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int to_rts(ibv_qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.sq_psn = kPsn;
  attr.max_rd_atomic = 1;
  return ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

void Pair::make(End& end, Interface kind) {
  end.send_cq = ibv_create_cq(device_.context, kDepth, nullptr, nullptr, 0);
  if (kind == Interface::kExtended) {
    end.recv_cq_ex = create_extended_cq(device_);
    end.recv_cq = end.recv_cq_ex != nullptr ? ibv_cq_ex_to_cq(end.recv_cq_ex) : nullptr;
  } else {
    end.recv_cq = ibv_create_cq(device_.context, kDepth, nullptr, nullptr, 0);
  }
  if (end.send_cq == nullptr || end.recv_cq == nullptr) fail("creating a CQ", errno);
  end.qp = kind == Interface::kBuilder ? create_builder_qp(device_, end)
                                       : create_classic_qp(device_, end);
  if (end.qp == nullptr) fail("creating a QP", errno);
  if (kind == Interface::kBuilder) {
    end.qp_ex = ibv_qp_to_qp_ex(end.qp);
    if (end.qp_ex == nullptr) fail("ibv_qp_to_qp_ex", EOPNOTSUPP);
  }
  if (const int error = to_init(end.qp)) fail("modify_qp INIT", error);
}

Pair::Pair(Device& device, Interface kind) : device_(device) {
  for (End& end : ends_) make(end, kind);
  for (int i = 0; i < 2; i++) {
    if (const int error = to_rtr(device_, ends_[i].qp, ends_[1 - i].qp->qp_num))
      fail("modify_qp RTR", error);
  }
  for (End& end : ends_) {
    if (const int error = to_rts(end.qp)) fail("modify_qp RTS", error);
  }
}

Pair::~Pair() {
  for (End& end : ends_) ibv_destroy_qp(end.qp);
  for (End& end : ends_) {
    ibv_destroy_cq(end.send_cq);
    ibv_destroy_cq(end.recv_cq);
  }
}

}  // namespace bench
