#include "objects.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

namespace life {
namespace {
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr int kEventWaitMs = 2;
}  // namespace

std::string Address::to_text() const {
  char text[128];
  snprintf(text, sizeof text, "%u %u %u %" PRIu64, qpn, psn, rkey, memory);
  std::string all = text;
  for (uint8_t byte : gid.raw) {
    snprintf(text, sizeof text, " %u", byte);
    all += text;
  }
  return all;
}

bool Address::parse(const std::string& text, Address* out) {
  int used = 0, at = 0;
  if (sscanf(text.c_str(), "%u %u %u %" SCNu64 "%n", &out->qpn, &out->psn, &out->rkey, &out->memory,
             &used) != 4) {
    return false;
  }
  for (uint8_t& byte : out->gid.raw) {
    unsigned value = 0;
    at += used;
    if (sscanf(text.c_str() + at, "%u%n", &value, &used) != 1) return false;
    byte = static_cast<uint8_t>(value);
  }
  return true;
}

bool Objects::fail(const std::string& what, int error) {
  problem_ = what + ": " + strerror(error);
  return false;
}

bool Objects::make() {
  context_ = shared_.context;
  if (dice_.chance(20)) {
    context_ = ibv_open_device(shared_.context->device);
    if (context_ == nullptr) return fail("ibv_open_device", errno);
  }
  pd_ = shared_.pd;
  if (context_ != shared_.context || dice_.chance(50)) {
    pd_ = ibv_alloc_pd(context_);
    if (pd_ == nullptr) return fail("ibv_alloc_pd", errno);
  }
  const size_t room = size_t{plan_.qps} * plan_.messages * plan_.size;
  out_.resize(room);
  in_.resize(room);
  out_mr_ = ibv_reg_mr(pd_, out_.data(), room, kAccess);
  in_mr_ = ibv_reg_mr(pd_, in_.data(), room, kAccess);
  if (out_mr_ == nullptr || in_mr_ == nullptr) return fail("ibv_reg_mr", errno);
  if (!cq_make()) return false;
  if (dice_.chance(25)) {
    ibv_srq_init_attr init{.attr = {.max_wr = plan_.qps * plan_.messages + 1, .max_sge = 1}};
    srq_ = ibv_create_srq(pd_, &init);
    if (srq_ == nullptr) return fail("ibv_create_srq", errno);
  }
  for (uint32_t i = 0; i < plan_.qps; i++) {
    if (!qp_make()) return false;
  }
  return true;
}

bool Objects::cq_make() {
  if (dice_.chance(30)) {
    channel_ = ibv_create_comp_channel(context_);
    if (channel_ == nullptr) return fail("ibv_create_comp_channel", errno);
  }
  const int size = static_cast<int>(plan_.qps * plan_.messages * 2 + 8);
  is_extended_ = dice_.chance(30);
  if (is_extended_) {
    ibv_cq_init_attr_ex init{};
    init.cqe = static_cast<uint32_t>(size);
    init.channel = channel_;
    init.wc_flags = IBV_WC_STANDARD_FLAGS;
    ibv_cq_ex* extended = ibv_create_cq_ex(context_, &init);
    cq_ = extended != nullptr ? ibv_cq_ex_to_cq(extended) : nullptr;
  } else {
    cq_ = ibv_create_cq(context_, size, nullptr, channel_, 0);
  }
  if (cq_ == nullptr) return fail("ibv_create_cq", errno);
  const int error = channel_ != nullptr ? ibv_req_notify_cq(cq_, 0) : 0;
  return error == 0 || fail("ibv_req_notify_cq", error);
}

bool Objects::qp_make() {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq_;
  init.srq = srq_;
  init.cap = {.max_send_wr = plan_.messages,
              .max_recv_wr = srq_ == nullptr ? plan_.messages : 0,
              .max_send_sge = 1,
              .max_recv_sge = srq_ == nullptr ? 1u : 0u};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* qp = ibv_create_qp(pd_, &init);
  if (qp == nullptr) return fail("ibv_create_qp", errno);
  qps_.push_back(qp);
  psns_.push_back(psn_draw());
  masks_.push_back(mask_draw(qp));
  return to_init(qp);
}

// A program may give its requests any number: those of some queue pairs begin with the address of
// the queue pair, and the next ones follow. Receives of a shared queue have no queue pair yet.
uint64_t Objects::mask_draw(const ibv_qp* qp) {
  const uint32_t kind = dice_.below(3);
  if (srq_ != nullptr || kind == 0) return 0;
  return reinterpret_cast<uintptr_t>(qp) ^ (kind == 1 ? 0 : kReceive);
}

// PSNs are often equal; then nothing distinguishes one life of a queue pair from the next.
uint32_t Objects::psn_draw() {
  return dice_.chance(60) ? 0 : dice_.below(1u << 24);
}

bool Objects::to_init(ibv_qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = kAccess;
  const int error = ibv_modify_qp(
      qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  return error == 0 || fail("to INIT", error);
}

bool Objects::connect(uint32_t qp, const Address& peer) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer.qpn;
  attr.rq_psn = peer.psn;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.grh.dgid = peer.gid;
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(gid_index_);
  attr.ah_attr.grh.hop_limit = 64;
  attr.ah_attr.port_num = 1;
  int error = ibv_modify_qp(qps_[qp], &attr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) return fail("to RTR", error);
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = psns_[qp];
  attr.timeout = 14;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  error = ibv_modify_qp(qps_[qp], &attr,
                        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                            IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  return error == 0 || fail("to RTS", error);
}

bool Objects::shut() {
  for (ibv_qp* qp : qps_) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    const int error = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
    if (error != 0) return fail("to ERR", error);
  }
  return true;
}

bool Objects::rewind() {
  for (uint32_t i = 0; i < plan_.qps; i++) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    const int error = ibv_modify_qp(qps_[i], &attr, IBV_QP_STATE);
    if (error != 0) return fail("to RESET", error);
    psns_[i] = psn_draw();
    if (!to_init(qps_[i])) return false;
  }
  return true;
}

bool Objects::post_receives(uint32_t count) {
  for (uint32_t qp = 0; qp < plan_.qps; qp++) {
    for (uint32_t number = 0; number < count; number++) {
      ibv_sge sge{reinterpret_cast<uintptr_t>(in_slot(qp, number)), plan_.size, in_mr_->lkey};
      ibv_recv_wr wr{}, *bad = nullptr;
      wr.wr_id = (kReceive | (qp * count + number)) ^ masks_[qp];
      wr.sg_list = &sge;
      wr.num_sge = 1;
      const int error =
          srq_ != nullptr ? ibv_post_srq_recv(srq_, &wr, &bad) : ibv_post_recv(qps_[qp], &wr, &bad);
      if (error != 0) return fail("post of a receive", error);
    }
  }
  return true;
}

bool Objects::post_send(uint32_t qp, uint32_t number, const Address& peer) {
  ibv_sge sge{reinterpret_cast<uintptr_t>(out_slot(qp, number)), plan_.size, out_mr_->lkey};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = number ^ masks_[qp];
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  wr.imm_data = number;
  if (plan_.is_immediate) {
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.wr.rdma.rkey = peer.rkey;
    wr.wr.rdma.remote_addr =
        peer.memory + static_cast<uint64_t>(out_slot(qp, number) - out_.data());
  }
  const int error = ibv_post_send(qps_[qp], &wr, &bad);
  return error == 0 || fail("post of a send", error);
}

int Objects::poll(std::span<ibv_wc> out) {
  const int got = poll_masked(out);
  for (int i = 0; i < got; i++) {
    const uint32_t qp = qp_index(out[static_cast<size_t>(i)].qp_num);
    if (qp < qps_.size()) out[static_cast<size_t>(i)].wr_id ^= masks_[qp];
  }
  return got;
}

int Objects::poll_masked(std::span<ibv_wc> out) {
  if (channel_ != nullptr) {
    pollfd readable{channel_->fd, POLLIN, 0};
    if (::poll(&readable, 1, kEventWaitMs) == 1) {
      ibv_cq* cq;
      void* context;
      if (ibv_get_cq_event(channel_, &cq, &context) != 0) return -1;
      events_++;
      if (ibv_req_notify_cq(cq, 0) != 0) return -1;
    }
  }
  if (!is_extended_) return ibv_poll_cq(cq_, static_cast<int>(out.size()), out.data());
  ibv_cq_ex* cq = reinterpret_cast<ibv_cq_ex*>(cq_);
  ibv_poll_cq_attr attr{};
  if (const int error = ibv_start_poll(cq, &attr); error != 0) return error == ENOENT ? 0 : -1;
  size_t count = 0;
  int more = 0;
  for (; more == 0; more = ++count < out.size() ? ibv_next_poll(cq) : ENOENT) {
    ibv_wc& wc = out[count];
    wc = {};
    wc.status = cq->status;
    wc.wr_id = cq->wr_id;
    wc.qp_num = ibv_wc_read_qp_num(cq);
    if (wc.status != IBV_WC_SUCCESS) continue;
    wc.opcode = ibv_wc_read_opcode(cq);
    wc.byte_len = ibv_wc_read_byte_len(cq);
    wc.wc_flags = ibv_wc_read_wc_flags(cq);
    if (wc.opcode & IBV_WC_RECV) wc.imm_data = ibv_wc_read_imm_data(cq);
  }
  ibv_end_poll(cq);
  return static_cast<int>(count);
}

Address Objects::address(uint32_t qp) const {
  Address own;
  own.qpn = qps_[qp]->qp_num;
  own.psn = psns_[qp];
  own.rkey = in_mr_->rkey;
  own.memory = reinterpret_cast<uintptr_t>(in_.data());
  ibv_query_gid(context_, 1, gid_index_, &own.gid);
  return own;
}

uint32_t Objects::qp_index(uint32_t qp_num) const {
  const auto found = std::ranges::find(qps_, qp_num, &ibv_qp::qp_num);
  return static_cast<uint32_t>(found - qps_.begin());
}

std::byte* Objects::out_slot(uint32_t qp, uint32_t number) {
  return out_.data() + (size_t{qp} * plan_.messages + number) * plan_.size;
}
std::byte* Objects::in_slot(uint32_t qp, uint32_t number) {
  return in_.data() + (size_t{qp} * plan_.messages + number) * plan_.size;
}

bool Objects::refuses(int result, const char* what) {
  if (result == EBUSY) return true;
  problem_ = std::string(what) + " in use: " + (result == 0 ? "it went" : strerror(result));
  return false;
}

bool Objects::gone(int result, const char* what) {
  return result == 0 || fail(std::string("destroying ") + what, result);
}

bool Objects::destroy() {
  if (!qps_.empty() && dice_.chance(50)) {
    if (!refuses(ibv_destroy_cq(cq_), "a CQ")) return false;
    if (srq_ != nullptr && !refuses(ibv_destroy_srq(srq_), "an SRQ")) return false;
    if (pd_ != shared_.pd && !refuses(ibv_dealloc_pd(pd_), "a PD")) return false;
    if (channel_ != nullptr && !refuses(ibv_destroy_comp_channel(channel_), "a channel")) {
      return false;
    }
  }
  // Regions may be deregistered before or after the queue pairs that used them are destroyed.
  const bool regions_first = dice_.chance(40);
  const auto regions_go = [&] {
    for (ibv_mr** mr : {&out_mr_, &in_mr_}) {
      ibv_mr* one = std::exchange(*mr, nullptr);
      if (one != nullptr && !gone(ibv_dereg_mr(one), "a region")) return false;
    }
    return true;
  };
  if (regions_first && !regions_go()) return false;
  if (events_ > 0) ibv_ack_cq_events(cq_, std::exchange(events_, 0));
  while (!qps_.empty()) {
    const auto one = qps_.begin() + dice_.below(static_cast<uint32_t>(qps_.size()));
    ibv_qp* qp = *one;
    qps_.erase(one);
    if (!gone(ibv_destroy_qp(qp), "a QP")) return false;
  }
  if (!regions_first && dice_.chance(50) && !regions_go()) return false;
  const bool srq_first = dice_.chance(50);
  const auto srq_goes = [&] {
    ibv_srq* srq = std::exchange(srq_, nullptr);
    return srq == nullptr || gone(ibv_destroy_srq(srq), "an SRQ");
  };
  if (srq_first && !srq_goes()) return false;
  if (cq_ != nullptr && !gone(ibv_destroy_cq(std::exchange(cq_, nullptr)), "a CQ")) return false;
  if (channel_ != nullptr &&
      !gone(ibv_destroy_comp_channel(std::exchange(channel_, nullptr)), "a channel")) {
    return false;
  }
  if (!srq_goes() || !regions_go()) return false;
  if (pd_ != nullptr && pd_ != shared_.pd && !gone(ibv_dealloc_pd(pd_), "a PD")) return false;
  pd_ = nullptr;
  ibv_context* context = std::exchange(context_, nullptr);
  return context == nullptr || context == shared_.context ||
         gone(ibv_close_device(context), "a context");
}

Objects::~Objects() {
  if (problem_.empty()) destroy();
}

}  // namespace life
