#include "group/probe_qp.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "group/context.h"
#include "group/own_qp.h"
#include "group/port.h"
#include "group/stock.h"

namespace shift::group {
namespace {

// The NIC sends each probe seven times, 4.2 ms apart: what is lost so often, over 29 ms, is lost by
// more than a flap.
constexpr uint8_t kTimeout = 10, kRetries = 6;
constexpr int kProbes = 4;

}  // namespace

bool ProbeQp::make(wire::QpAddress& own) {
  destroy();
  ibv_context* real = context_.members[member_].real;
  pd_ = stock->alloc_pd(real);
  cq_ = stock->create_cq(real, kProbes, nullptr, nullptr, 0);
  if (pd_ == nullptr || cq_ == nullptr) return false;
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq_;
  init.cap.max_send_wr = kProbes;
  init.cap.max_send_sge = 1;
  init.qp_type = IBV_QPT_RC;
  init.sq_sig_all = 1;
  qp_ = stock->create_qp(pd_, &init);
  if (qp_ == nullptr) return false;
  {
    std::lock_guard lock(context_.mutex);
    context_.own_qps.push_back(qp_);
  }
  own.qpn = qp_->qp_num;
  own.mtu = IBV_MTU_1024;
  return true;
}

bool ProbeQp::connect(const wire::QpAddress& own, const wire::QpAddress& peer, bool sends) {
  if (qp_ == nullptr) return false;
  ibv_context* real = context_.members[member_].real;
  const int index = gid_index_of(real, kPortNumber, own.gid, IBV_GID_TYPE_ROCE_V2,
                                 context_.members[member_].gid_index);
  if (index < 0) return false;
  OwnQpLink link;
  link.peer_qpn = peer.qpn;
  link.peer_gid = peer.gid;
  link.gid_index = index;
  link.access = IBV_ACCESS_REMOTE_WRITE;  // an empty WRITE needs it, too
  link.mtu = static_cast<ibv_mtu>(std::min(own.mtu, peer.mtu));
  link.sq_psn = own.psn;
  link.rq_psn = peer.psn;
  link.timeout = kTimeout;
  link.retries = kRetries;
  link.sends = sends;
  return own_qp_connect(qp_, link);
}

void ProbeQp::destroy() {
  if (qp_ != nullptr) {
    {
      std::lock_guard lock(context_.mutex);
      std::erase(context_.own_qps, qp_);
    }
    (void)stock->destroy_qp(std::exchange(qp_, nullptr));
  }
  if (cq_ != nullptr) (void)stock->destroy_cq(std::exchange(cq_, nullptr));
  if (pd_ != nullptr) (void)stock->dealloc_pd(std::exchange(pd_, nullptr));
}

bool ProbeQp::post() {
  if (qp_ == nullptr) return false;
  ibv_send_wr wr{}, *bad = &wr;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  return qp_->context->ops.post_send(qp_, &wr, &bad) == 0;
}

ProbeQp::Answer ProbeQp::look() {
  ibv_wc wc{};
  if (cq_->context->ops.poll_cq(cq_, 1, &wc) < 1) return Answer::kNone;
  if (wc.status == IBV_WC_SUCCESS) return Answer::kPassed;
  return wc.status == IBV_WC_RETRY_EXC_ERR ? Answer::kFailed : Answer::kBroken;
}

}  // namespace shift::group
