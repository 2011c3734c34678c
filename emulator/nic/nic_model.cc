// One process's view of one NIC.
#include "nic/nic_model.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "fabric/gid.h"
#include "nic/engine_core.h"
#include "nic/planted.h"
#include "nic/qp_publish.h"
#include "nic/transport.h"

namespace cxemu {

namespace {

template <typename T>
void take(int mask, int bit, T& to, const T& from) {
  if ((mask & bit) != 0) to = from;
}

void attributes_take(ibv_qp_attr& to, const ibv_qp_attr& from, int mask) {
  take(mask, IBV_QP_AV, to.ah_attr, from.ah_attr);
  take(mask, IBV_QP_ACCESS_FLAGS, to.qp_access_flags, from.qp_access_flags);
  take(mask, IBV_QP_PKEY_INDEX, to.pkey_index, from.pkey_index);
  take(mask, IBV_QP_PORT, to.port_num, from.port_num);
  take(mask, IBV_QP_QKEY, to.qkey, from.qkey);
  take(mask, IBV_QP_PATH_MTU, to.path_mtu, from.path_mtu);
  take(mask, IBV_QP_TIMEOUT, to.timeout, from.timeout);
  take(mask, IBV_QP_RETRY_CNT, to.retry_cnt, from.retry_cnt);
  take(mask, IBV_QP_RNR_RETRY, to.rnr_retry, from.rnr_retry);
  take(mask, IBV_QP_MAX_QP_RD_ATOMIC, to.max_rd_atomic, from.max_rd_atomic);
  take(mask, IBV_QP_MAX_DEST_RD_ATOMIC, to.max_dest_rd_atomic, from.max_dest_rd_atomic);
  take(mask, IBV_QP_MIN_RNR_TIMER, to.min_rnr_timer, from.min_rnr_timer);
  take(mask, IBV_QP_DEST_QPN, to.dest_qp_num, from.dest_qp_num);
}

// No key of one NIC must be valid on another by chance: programs that mix them up have to fail.
uint32_t first_key_index(const FabricNic& nic) {
  constexpr uint32_t kSpan = 1u << 14;  // far more regions than any test has
  return 2 + kSpan * (nic.host * kMaxNicsPerHost + nic.index);
}

bool cq_shape_ok(uint32_t cqe_count, uint32_t cqe_size) {
  return std::has_single_bit(cqe_count) && cqe_count <= 1u << 23 &&
         (cqe_size == 64 || cqe_size == 128);
}

constexpr uint32_t kMaxWqes = 1 << 15;  // ring indices have 16 bits

bool type_supported(ibv_qp_type type) {
  return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD ||
         type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
}

void users_add(const QpConfig& config, int change) {
  if (config.send_cq != nullptr) config.send_cq->users += change;
  if (config.recv_cq != nullptr) config.recv_cq->users += change;
  if (config.srq != nullptr) config.srq->users += change;
}

// RESET forgets everything; the library zeroes the doorbell records as well.
void qp_reset(Qp& qp) {
  qp.requester = {};
  if (!CXEMU_PLANT(reset_keeps_responder)) qp.responder = {};
  qp.attr = {};
  qp.remote_ipv4_be = 0;
  qp.drained_notify = qp.last_wqe_told = false;
  qp.destination = {};
  qp.state = IBV_QPS_RESET;
}

}  // namespace

NicModel::NicModel(EngineCore& core, FabricNic& fabric_nic, EventSink* port_sink)
    : core_(core),
      fabric_nic_(fabric_nic),
      port_sink_(port_sink),
      kills_at_open_(fabric_nic.kills.load(std::memory_order_acquire)),
      generation_seen_(fabric_nic.generation.load(std::memory_order_acquire)),
      gids_seen_(fabric_nic.gids.load(std::memory_order_acquire)),
      link_up_((faults_now(fabric_nic, core.wall_ns()) & kLinkDown) == 0),
      memory_(first_key_index(fabric_nic), key_reuse(fabric_nic.index)) {
  core_.nic_add(this);
  address_follow();
}

NicModel::~NicModel() {
  if (!core_.gone()) held_writes_.release();
  for (Qp* qp : qps_) core_.qp_remove(qp);
  core_.address_change(second_address_be_, 0);
  core_.nic_remove(this);
}

bool NicModel::dead() const {
  return core_.gone() || fabric_nic_.kills.load(std::memory_order_relaxed) != kills_at_open_;
}

void NicModel::fabric_check(uint64_t now_ns) {
  const uint32_t generation = fabric_nic_.generation.load(std::memory_order_acquire);
  const bool same = generation == generation_seen_;
  // A flapping link changes without a change of the generation.
  const bool flaps = (fabric_nic_.faults.load(std::memory_order_relaxed) & kFlap) != 0;
  if ((same && !flaps) || fatal_told_) return;
  generation_seen_ = generation;
  // What has come in before a fault arrives soon, too.
  held_writes_.release();
  if (dead()) {
    fatal_told_ = true;
    port_event(IBV_EVENT_DEVICE_FATAL);
    return;
  }
  link_check(same, now_ns);
  const uint32_t gids = fabric_nic_.gids.load(std::memory_order_acquire);
  if (gids == gids_seen_) return;
  gids_seen_ = gids;
  address_follow();
  port_event(IBV_EVENT_GID_CHANGE);
}

void NicModel::address_follow() {
  uint32_t now_be = gid_ipv4_be(fabric_nic_, gid_index_now(fabric_nic_, kGidRoceV2Ipv4));
  if (now_be == fabric_nic_.ipv4_be) now_be = 0;
  if (now_be != second_address_be_) core_.address_change(second_address_be_, now_be);
  second_address_be_ = now_be;
}

void NicModel::link_check(bool same_schedule, uint64_t now_ns) {
  flap_settle(core_.fabric(), fabric_nic_, now_ns);
  const bool up = (faults_now(fabric_nic_, now_ns) & kLinkDown) == 0;
  const uint64_t edges = flap_edges(fabric_nic_, now_ns);
  const auto event_of = [](bool is_up) {
    return is_up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
  };
  // The link changed and changed back since the last check.
  if (same_schedule && up == link_up_ && edges != flap_edges_seen_) {
    port_event(event_of(!up));
    port_event(event_of(up));
  }
  flap_edges_seen_ = edges;
  if (up == link_up_) return;
  link_up_ = up;
  port_event(event_of(up));
}

int NicModel::mr_register(uint32_t pd, uint64_t start, uint64_t length, uint64_t iova,
                          uint32_t access, uint32_t* lkey_and_rkey) {
  if (dead()) return EIO;
  return memory_.add(pd, start, length, iova, access, lkey_and_rkey);
}

int NicModel::mr_deregister(uint32_t key) {
  held_writes_.release();
  const int error = memory_.remove(key);
  return dead() ? 0 : error;
}

int NicModel::mr_reregister(uint32_t key, const RegionChange& change, uint32_t* new_key) {
  held_writes_.release();
  return dead() ? EIO : memory_.change(key, change, new_key);
}

int NicModel::mw_allocate(uint32_t pd, bool type2, uint32_t* rkey) {
  return dead() ? EIO : memory_.window_add(pd, type2, rkey);
}

int NicModel::mw_deallocate(uint32_t rkey) {
  const int error = memory_.window_remove(rkey);
  return dead() ? 0 : error;
}

int NicModel::cq_create(const CqConfig& config, Cq** out) {
  if (dead()) return EIO;
  if (!cq_shape_ok(config.cqe_count, config.cqe_size)) return EINVAL;
  cqs_.push_back(std::make_unique<Cq>(config, next_cq_number_++));
  *out = cqs_.back().get();
  return 0;
}

int NicModel::cq_resize(Cq* cq, void* buffer, uint32_t cqe_count, uint32_t cqe_size) {
  if (dead()) return EIO;
  if (!cq_shape_ok(cqe_count, cqe_size)) return EINVAL;
  return cq->resize(buffer, cqe_count, cqe_size) ? 0 : EINVAL;
}

int NicModel::cq_destroy(Cq* cq) {
  if (cq->users > 0) return EBUSY;
  std::erase_if(cqs_, [cq](const auto& own) { return own.get() == cq; });
  return 0;
}

int NicModel::srq_create(const SrqConfig& config, Srq** out) {
  if (dead()) return EIO;
  if (!std::has_single_bit(config.wqe_count) || config.wqe_count > kMaxWqes) return EINVAL;
  if (config.wqe_shift < 5 || config.wqe_shift > 12) return EINVAL;
  srqs_.push_back(std::make_unique<Srq>(config, next_srq_number_++));
  if (config.cq != nullptr) config.cq->users++;
  *out = srqs_.back().get();
  return 0;
}

int NicModel::srq_destroy(Srq* srq) {
  if (srq->users > 0) return EBUSY;
  // XRC queue pairs may refer to the queue without being attached to it.
  for (Qp* qp : qps_) {
    Responder& r = qp->responder;
    if (r.request_srq == srq) r.request_srq = nullptr;
    if (r.recv_srq != srq) continue;
    r.recv_srq = nullptr;
    r.recv_taken = false;
  }
  if (srq->config.cq != nullptr) srq->config.cq->users--;
  std::erase_if(srqs_, [srq](const auto& own) { return own.get() == srq; });
  return 0;
}

int NicModel::srq_limit_set(Srq* srq, uint32_t limit) {
  if (dead()) return EIO;
  if (limit >= srq->config.wqe_count) return EINVAL;
  srq->limit_arm(limit);
  return 0;
}

int NicModel::srq_limit_get(const Srq* srq, uint32_t* limit) const {
  if (dead()) return EIO;
  *limit = srq->limit();
  return 0;
}

Srq* NicModel::srq_find(uint32_t number, uint32_t xrcd) const {
  const auto same = [=](const auto& srq) {
    return srq->number == number && srq->is_xrc() &&
           (srq->config.xrcd == xrcd || CXEMU_PLANT(xrc_domain_unchecked));
  };
  const auto found = std::find_if(srqs_.begin(), srqs_.end(), same);
  return found == srqs_.end() ? nullptr : found->get();
}

int NicModel::qp_create(const QpConfig& config, Qp** out) {
  if (dead()) return EIO;
  if (!type_supported(config.type)) return EOPNOTSUPP;
  const auto count_ok = [](uint32_t n) {
    return n <= kMaxWqes && (n == 0 || std::has_single_bit(n));
  };
  if (!count_ok(config.sq_wqe_count) || !count_ok(config.rq_wqe_count)) return EINVAL;
  if (config.rq_wqe_count != 0 && (config.rq_wqe_shift < 4 || config.rq_wqe_shift > 12)) {
    return EINVAL;
  }
  if (config.rq_wqe_count != 0 && config.srq != nullptr) return EINVAL;
  Qp* qp = core_.qp_add(*this, config);
  if (qp == nullptr) return ENOMEM;
  users_add(config, 1);
  qps_.push_back(qp);
  *out = qp;
  return 0;
}

int NicModel::qp_destroy(Qp* qp) {
  held_writes_.release();
  users_add(qp->config, -1);
  std::erase(qps_, qp);
  core_.qp_remove(qp);
  return 0;
}

int NicModel::qp_modify(Qp* qp, const ibv_qp_attr& attr, int attr_mask) {
  if (dead()) return EIO;
  ibv_qp_state next;
  const int error = qp_modify_check(*qp, attr, attr_mask, &next);
  if (error != 0) return error;

  if (!CXEMU_PLANT(command_wakes_nobody)) core_.qp_wake(*qp);
  const ibv_qp_state previous = qp->state;
  attributes_take(qp->attr, attr, attr_mask);
  if ((attr_mask & IBV_QP_AV) != 0) {
    // An unknown address is no error: packets to it vanish, as they would on a real network.
    qp->remote_ipv4_be = gid_find_ipv4_be(core_.fabric(), attr.ah_attr.grh.dgid.raw);
  }
  if ((attr_mask & IBV_QP_PATH_MTU) != 0) qp->mtu = 128u << attr.path_mtu;
  if (qp->service == Service::kUd) qp->mtu = kMaxMtu;  // the port's
  if ((attr_mask & IBV_QP_RQ_PSN) != 0) qp->responder.psn_expected = attr.rq_psn & kPsnMask;
  if ((attr_mask & IBV_QP_SQ_PSN) != 0) {
    Requester& requester = qp->requester;
    requester.psn_una = requester.psn_sent = requester.psn_next = attr.sq_psn & kPsnMask;
  }
  // The card answers when all that the QP has written is in the memory.
  if (next == IBV_QPS_RESET || next == IBV_QPS_ERR) held_writes_.release();
  switch (next) {
    case IBV_QPS_RESET:
      qp_reset(*qp);
      break;
    case IBV_QPS_ERR:
      qp->responder.nak_pending = false;
      if (!CXEMU_PLANT(modify_to_err_forgotten)) qp_stop(*qp);
      break;
    case IBV_QPS_SQD:
      qp->drained_notify |= previous == IBV_QPS_RTS && attr.en_sqd_async_notify != 0 &&
                            (attr_mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0;
      [[fallthrough]];
    default:
      qp->state = next;
  }
  if (next == IBV_QPS_RTS && previous == IBV_QPS_SQD) qp->drained_notify = false;
  if (next == IBV_QPS_RTS && previous == IBV_QPS_SQE) {
    qp->requester.flush_left = true;
    qp->requester.flush_end = qp->send_producer();
  }
  qp_publish(*qp);
  return 0;
}

int NicModel::qp_query(const Qp* qp, ibv_qp_attr* attr, ibv_qp_init_attr* init) const {
  if (dead()) return EIO;
  *attr = qp->attr;
  attr->qp_state = attr->cur_qp_state = qp->state;
  attr->cap = qp->config.cap;
  attr->sq_psn = qp->requester.psn_sent;
  attr->rq_psn = qp->responder.psn_expected;
  attr->path_mig_state = IBV_MIG_MIGRATED;
  const Requester& requester = qp->requester;
  const bool sending =
      qp->reliable() ? requester.entry_first != requester.entry_end : requester.tx_wqe_valid;
  attr->sq_draining = qp->state == IBV_QPS_SQD && sending;
  *init = {};
  init->cap = qp->config.cap;
  init->qp_type = qp->config.type;
  init->sq_sig_all = qp->config.sq_sig_all ? 1 : 0;
  return 0;
}

}  // namespace cxemu
