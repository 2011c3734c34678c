// Opens, connects, waits and inspects. Posting is in verbs_post.cc.
#include "verbs_transport.h"

#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "pattern.h"

namespace traffic {
namespace {
constexpr uint32_t kExtraWrs = 40;  // credits share the send queue
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                        IBV_ACCESS_REMOTE_ATOMIC;
}  // namespace

bool VerbsTransport::fail(const char* what) {
  report_->error(fmt::format("{}: {}", what, strerror(errno)));
  return false;
}

bool VerbsTransport::open() {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr) return fail("ibv_get_device_list");
  for (int i = 0; i < count && context_ == nullptr; ++i)
    if (local_.device.empty() || local_.device == ibv_get_device_name(list[i]))
      context_ = ibv_open_device(list[i]);
  ibv_free_device_list(list);
  if (context_ == nullptr) return fail("no such device, or it does not open");
  if (ibv_query_port(context_, 1, &port_) != 0) return fail("ibv_query_port");
  if (ibv_query_gid(context_, 1, local_.gid_index, &gid_) != 0) return fail("ibv_query_gid");
  if (ibv_query_gid_ex(context_, 1, static_cast<uint32_t>(local_.gid_index), &gid_entry_, 0) != 0)
    return fail("ibv_query_gid_ex");
  pd_ = ibv_alloc_pd(context_);
  if (pd_ == nullptr) return fail("ibv_alloc_pd");
  if (!cqs_make()) return false;
  if (traffic_.srq) {
    ibv_srq_init_attr init{};
    init.attr.max_wr = traffic_.depth * traffic_.qps + 8;
    init.attr.max_sge = traffic_.sges;
    srq_ = ibv_create_srq(pd_, &init);
    if (srq_ == nullptr) return fail("ibv_create_srq");
  }
  for (uint32_t qp = 0; qp < traffic_.qps; ++qp)
    if (!qp_make(qp)) return false;
  return true;
}

bool VerbsTransport::cqs_make() {
  if (traffic_.events) {
    channel_ = ibv_create_comp_channel(context_);
    if (channel_ == nullptr) return fail("ibv_create_comp_channel");
  }
  int size = static_cast<int>((traffic_.depth + kExtraWrs) * traffic_.qps * 2);
  const uint32_t signaled = traffic_.depth / traffic_.signal_every + 1;
  cqs_[0] =
      cq_make(traffic_.short_cq ? static_cast<int>((signaled + kExtraWrs) * traffic_.qps) : size);
  cqs_[1] = traffic_.one_cq ? cqs_[0] : cq_make(size);
  return cqs_[0] != nullptr && cqs_[1] != nullptr ? true : fail("ibv_create_cq");
}

ibv_cq* VerbsTransport::cq_make(int size) {
  if (traffic_.cqs == Cqs::kClassic) return ibv_create_cq(context_, size, nullptr, channel_, 0);
  ibv_cq_init_attr_ex init{};
  init.cqe = static_cast<uint32_t>(size);
  init.channel = channel_;
  init.wc_flags = IBV_WC_STANDARD_FLAGS;
  if (traffic_.cqs == Cqs::kStamped) init.wc_flags |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  ibv_cq_ex* cq = ibv_create_cq_ex(context_, &init);
  return cq != nullptr ? ibv_cq_ex_to_cq(cq) : nullptr;
}

ibv_qp* VerbsTransport::qp_create(ibv_qp_init_attr* init) {
  if (traffic_.api == Api::kClassic) return ibv_create_qp(pd_, init);
  ibv_qp_init_attr_ex ex{};
  ex.send_cq = init->send_cq;
  ex.recv_cq = init->recv_cq;
  ex.srq = init->srq;
  ex.cap = init->cap;
  ex.qp_type = init->qp_type;
  ex.sq_sig_all = init->sq_sig_all;
  ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  ex.pd = pd_;
  ex.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                      IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                      IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
  return ibv_create_qp_ex(context_, &ex);
}

bool VerbsTransport::qp_make(uint32_t qp) {
  ibv_qp_init_attr init{};
  init.send_cq = cqs_[0];
  init.recv_cq = cqs_[1];
  init.srq = srq_;
  init.cap.max_send_wr = traffic_.depth + kExtraWrs;
  init.cap.max_recv_wr = srq_ != nullptr ? 0 : traffic_.depth + 8;
  init.cap.max_send_sge = traffic_.sges;
  init.cap.max_recv_sge = srq_ != nullptr ? 0 : traffic_.sges;
  init.cap.max_inline_data = traffic_.inline_max;
  init.qp_type = IBV_QPT_RC;
  init.sq_sig_all = traffic_.sig_all ? 1 : 0;
  ibv_qp* made = qp_create(&init);
  if (made == nullptr) return fail("ibv_create_qp");
  qps_.push_back(made);
  qp_numbers_.push_back(made->qp_num);
  uint64_t dice = pattern_key(traffic_.seed, Domain::kChoice, is_client_ ? 2 : 3, qp, 0);
  // A quarter of the start PSNs are just below the largest one, so that PSNs wrap.
  uint32_t psn = static_cast<uint32_t>(dice & 0xffffff);
  psns_.push_back(traffic_.psn_zero ? 0 : dice >> 62 == 0 ? 0xffffff - (psn & 0xff) : psn);
  return qp_to_init(made);
}

bool VerbsTransport::qp_to_init(ibv_qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = kAccess;
  errno = ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  return errno == 0 ? true : fail("modify_qp INIT");
}

QpAddress VerbsTransport::address(uint32_t qp) const {
  return {qps_[qp]->qp_num, psns_[qp], gid_};
}

bool VerbsTransport::connect(uint32_t qp, const QpAddress& remote) {
  if (!qp_to_rtr(qps_[qp], remote)) return false;
  if (traffic_.receiver_rtr && !is_client_) return true;
  return qp_to_rts(qps_[qp], psns_[qp]);
}

bool VerbsTransport::qp_to_rtr(ibv_qp* qp, const QpAddress& remote) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = port_.active_mtu;
  attr.dest_qp_num = remote.qp_num;
  attr.rq_psn = remote.psn;
  attr.max_dest_rd_atomic = 8;
  attr.min_rnr_timer = 5;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.grh.dgid = remote.gid;
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(local_.gid_index);
  attr.ah_attr.grh.hop_limit = 64;
  attr.ah_attr.port_num = 1;
  errno = ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  return errno == 0 ? true : fail("modify_qp RTR");
}

bool VerbsTransport::qp_to_rts(ibv_qp* qp, uint32_t psn) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = static_cast<uint8_t>(traffic_.qp_timeout);
  attr.retry_cnt = static_cast<uint8_t>(traffic_.retry_count);
  attr.rnr_retry = static_cast<uint8_t>(traffic_.rnr_retry);
  attr.sq_psn = psn;
  attr.max_rd_atomic = 8;
  errno = ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  return errno == 0 ? true : fail("modify_qp RTS");
}

Region VerbsTransport::region_add(size_t size) {
  size = std::max<size_t>(size, 4096);
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ibv_mr* mr = base == MAP_FAILED ? nullptr : ibv_reg_mr(pd_, base, size, kAccess);
  if (mr == nullptr) {
    fail("ibv_reg_mr");
    if (base == MAP_FAILED) throw std::bad_alloc();
    memory_.push_back({base, size, nullptr, 0, 0});
    return {static_cast<std::byte*>(base), size, 0, 0};
  }
  memory_.push_back({base, size, mr, mr->lkey, mr->rkey});
  return {static_cast<std::byte*>(base), size, mr->lkey, mr->rkey};
}

int VerbsTransport::poll(std::span<ibv_wc> out) {
  int total = 0;
  for (int i = 0; i < (traffic_.one_cq ? 1 : 2); ++i) {
    int room = static_cast<int>(out.size()) - total;
    if (room <= 0) break;
    int count = traffic_.cqs == Cqs::kClassic
                    ? ibv_poll_cq(cqs_[i], room, out.data() + total)
                    : poll_extended(reinterpret_cast<ibv_cq_ex*>(cqs_[i]),
                                    out.subspan(static_cast<size_t>(total)));
    if (count < 0) return count;
    total += count;
  }
  return total;
}

int VerbsTransport::poll_extended(ibv_cq_ex* cq, std::span<ibv_wc> out) {
  ibv_poll_cq_attr attr{};
  if (int error = ibv_start_poll(cq, &attr)) return error == ENOENT ? 0 : -error;
  size_t got = 0;
  int error = 0;
  while (got < out.size() && error == 0) {
    ibv_wc& wc = out[got++];
    wc = {};
    wc.wr_id = cq->wr_id;
    wc.status = cq->status;
    wc.qp_num = ibv_wc_read_qp_num(cq);
    wc.vendor_err = ibv_wc_read_vendor_err(cq);
    if (wc.status == IBV_WC_SUCCESS) {
      wc.opcode = ibv_wc_read_opcode(cq);
      wc.byte_len = ibv_wc_read_byte_len(cq);
      wc.imm_data = ibv_wc_read_imm_data(cq);
      wc.src_qp = ibv_wc_read_src_qp(cq);
      wc.wc_flags = ibv_wc_read_wc_flags(cq);
      if (traffic_.cqs == Cqs::kStamped && ibv_wc_read_completion_ts(cq) == 0)
        report_->violation("no-timestamp", "a completion has none");
    }
    if (got < out.size()) error = ibv_next_poll(cq);
  }
  ibv_end_poll(cq);
  return error == 0 || error == ENOENT ? static_cast<int>(got) : -error;
}

void VerbsTransport::wait_events(int side_fd, uint32_t timeout_ms) {
  pollfd fds[2] = {{side_fd, POLLIN, 0}, {channel_ != nullptr ? channel_->fd : -1, POLLIN, 0}};
  if (::poll(fds, 2, static_cast<int>(timeout_ms)) <= 0 || !(fds[1].revents & POLLIN)) return;
  ibv_cq* cq = nullptr;
  void* unused = nullptr;
  if (ibv_get_cq_event(channel_, &cq, &unused) != 0) return;
  int index = cq == cqs_[0] ? 0 : 1;
  if (cq != cqs_[index])
    report_->violation("event-handle",
                       "a completion event names a CQ that this program has not made");
  // Events are acknowledged in lots, as programs do it; the rest is at the end.
  if (++unacked_events_[index] == 16) {
    ibv_ack_cq_events(cqs_[index], unacked_events_[index]);
    unacked_events_[index] = 0;
  }
}

bool VerbsTransport::arm() {
  for (int i = 0; i < (traffic_.one_cq ? 1 : 2); ++i)
    if (ibv_req_notify_cq(cqs_[i], 0) != 0) return fail("ibv_req_notify_cq");
  return true;
}

void VerbsTransport::inspect() {
  for (uint32_t i = 0; i < qps_.size(); ++i) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    errno = ibv_query_qp(qps_[i], &attr, IBV_QP_STATE, &init);
    ibv_qp_state expected = traffic_.receiver_rtr && !is_client_ ? IBV_QPS_RTR : IBV_QPS_RTS;
    if (errno != 0 || attr.qp_state != expected)
      report_->violation("qp-state", fmt::format("qp {}: state {} errno {}", i,
                                                 static_cast<int>(attr.qp_state), errno));
    if (qps_[i]->qp_num != qp_numbers_[i] || qps_[i]->state != expected)
      report_->violation("handle-changed",
                         fmt::format("qp {}: number {:#x}, was {:#x}; state {}", i, qps_[i]->qp_num,
                                     qp_numbers_[i], static_cast<int>(qps_[i]->state)));
  }
  for (const Memory& memory : memory_)
    if (memory.mr->lkey != memory.lkey || memory.mr->rkey != memory.rkey)
      report_->violation("handle-changed",
                         fmt::format("lkey {:#x}, was {:#x}", memory.mr->lkey, memory.lkey));
  ibv_gid gid{};
  if (ibv_query_gid(context_, 1, local_.gid_index, &gid) != 0 ||
      std::memcmp(&gid, &gid_, sizeof gid) != 0)
    report_->violation("handle-changed", "GID");
  ibv_gid_entry entry{};
  const bool is_shown =
      ibv_query_gid_ex(context_, 1, static_cast<uint32_t>(local_.gid_index), &entry, 0) == 0;
  // Which network device the address is on is the host's own business.
  entry.ndev_ifindex = gid_entry_.ndev_ifindex;
  if (!is_shown || std::memcmp(&entry, &gid_entry_, sizeof entry) != 0)
    report_->violation("handle-changed", "GID entry");
}

VerbsTransport::~VerbsTransport() {
  int failures = 0;
  for (ibv_qp* qp : qps_) failures += ibv_destroy_qp(qp) != 0;
  for (const Memory& memory : memory_) {
    if (memory.mr != nullptr) failures += ibv_dereg_mr(memory.mr) != 0;
    munmap(memory.base, memory.size);
  }
  if (srq_ != nullptr) failures += ibv_destroy_srq(srq_) != 0;
  for (int i = 0; i < (traffic_.one_cq ? 1 : 2); ++i) {
    if (cqs_[i] == nullptr) continue;
    ibv_ack_cq_events(cqs_[i], unacked_events_[i]);
    failures += ibv_destroy_cq(cqs_[i]) != 0;
  }
  if (channel_ != nullptr) failures += ibv_destroy_comp_channel(channel_) != 0;
  if (pd_ != nullptr) failures += ibv_dealloc_pd(pd_) != 0;
  if (context_ != nullptr) failures += ibv_close_device(context_) != 0;
  // A masked fault must not surface in the last calls of the program either.
  if (failures != 0 && report_->is_clean())
    report_->violation("destroy-failed", fmt::format("{} calls", failures));
}

}  // namespace traffic
