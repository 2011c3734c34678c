// Creating, connecting, querying and destroying QPs.
#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "group/completion.h"
#include "group/member.h"
#include "group/path_switch.h"
#include "group/peer_gone.h"
#include "group/shared_queue.h"
#include "ops/entry.h"
#include "util/config.h"
#include "util/log.h"

namespace shift::ops {
namespace {

using group::CompletionQueue;
using group::Context;
using group::Group;
using group::kDefault;
using group::SharedQueue;

constinit std::atomic<uint64_t> next_serial{1};

// nullptr: there is none, or one that the layer does not protect.
SharedQueue* shared_queue_of(ibv_srq* srq) {
  return srq != nullptr && owns(srq->context) ? SharedQueue::from(srq) : nullptr;
}

// The real init attributes for a QP on the default member.
template <typename Init>
Init on_default(const Init& init) {
  Init real = init;
  real.send_cq = cq_beneath(init.send_cq);
  real.recv_cq = cq_beneath(init.recv_cq);
  if (SharedQueue* queue = shared_queue_of(init.srq)) real.srq = queue->member[kDefault].real;
  return real;
}

// Why a QP cannot be protected; nullptr: it can.
template <typename Init>
const char* unprotected_because(const Init& init) {
  if (init.qp_type != IBV_QPT_RC) return "only RC is protected";
  if (!is_virtual_cq(init.send_cq) || !is_virtual_cq(init.recv_cq)) {
    return "it needs a send and a receive CQ";
  }
  if (init.srq != nullptr && shared_queue_of(init.srq) == nullptr) {
    return "its shared receive queue is of another kind";
  }
  return nullptr;
}

// A shared receive queue serves protected QPs or others (C10). `reason`: as above, and what comes
// of it. False, with errno: it serves the other kind, and the QP cannot be made.
template <typename Init>
bool claim_shared(const Init& init, const char** reason) {
  SharedQueue* queue = shared_queue_of(init.srq);
  if (queue == nullptr) return true;
  if (*reason == nullptr && !queue->claim(true)) {
    *reason = "its shared receive queue serves QPs that are not protected";
  }
  if (*reason == nullptr) return true;
  if (!queue->claim(false)) {
    SHIFT_WARN_LIMITED("a QP is refused (%s): its shared receive queue serves protected ones",
                       *reason);
    errno = EOPNOTSUPP;
    return false;
  }
  // The receives' numbers have to be replaced: never on the hot path. For as long as the CQ lives,
  // since nobody tells us when such a QP is destroyed.
  if (is_virtual_cq(init.recv_cq)) {
    CompletionQueue* cq = CompletionQueue::from(init.recv_cq);
    auto lock = lock_queue(*cq);
    cq->slow_groups++;
  }
  return true;
}

// The claim of a protected QP that was not made after all.
template <typename Init>
void unclaim_shared(const Init& init, const char* reason) {
  if (init.srq != nullptr && reason == nullptr) shared_queue_of(init.srq)->users--;
}

void tell_unprotected(Context* context, const char* reason) {
  SHIFT_INFO("a QP on %s behaves as stock: %s", context->device->dev.name, reason);
}

void copy_public(ibv_qp& qp, const ibv_qp& real) {
  qp.handle = real.handle;
  qp.qp_num = real.qp_num;
  qp.state = real.state;
  qp.qp_type = real.qp_type;
  pthread_mutex_init(&qp.mutex, nullptr);
  pthread_cond_init(&qp.cond, nullptr);
}

// Takes over a real RC QP as the default member of a new group.
template <typename Init>
Group* make_group(ibv_pd* pd, ibv_qp* real, const Init& init) {
  const ibv_qp_cap& cap = init.cap;
  auto g = std::make_unique<Group>();
  Context* context = Context::from(pd->context);
  ibv_qp& qp = g->qp.qp_base;
  copy_public(qp, *real);
  qp.context = pd->context;
  qp.qp_context = init.qp_context;
  qp.pd = pd;
  qp.send_cq = init.send_cq;
  qp.recv_cq = init.recv_cq;
  qp.srq = init.srq;
  g->real[kDefault] = real;
  g->context = context;
  g->pd = virtual_pd(pd);
  g->send_cq = CompletionQueue::from(init.send_cq);
  g->recv_cq = CompletionQueue::from(init.recv_cq);
  g->cap = cap;
  g->sq_sig_all = init.sq_sig_all != 0;
  g->exact = config().mode == Mode::kExact;
  g->serial = next_serial++;
  g->tag = reinterpret_cast<uintptr_t>(g.get());
  g->send.journal.init(cap.max_send_wr, cap.max_send_sge, cap.max_inline_data, g->sq_sig_all);
  g->recv.journal.init(cap.max_recv_wr, cap.max_recv_sge);
  {
    std::lock_guard lock(context->mutex);
    context->groups.push_back(g.get());
    context->qps[kDefault].insert(real->qp_num, &g->counters);
  }
  for (CompletionQueue* cq : {g->send_cq, g->recv_cq}) {
    cq->users++;
    std::lock_guard lock(cq->mutex);
    if (std::find(cq->groups.begin(), cq->groups.end(), g.get()) == cq->groups.end()) {
      cq->groups.push_back(g.get());
    }
  }
  g->pd->users++;
  if (init.srq != nullptr) {
    g->srq = SharedQueue::from(init.srq);  // claimed
    // Its receives' numbers have to be replaced: never on the hot path.
    auto lock = lock_queue(*g->recv_cq);
    g->recv_cq->slow_groups++;
  }
  return g.release();
}

// The peer is known from RTR on. False: this path cannot be protected (no global address).
bool name_ends(Group* g) {
  ibv_gid gid;
  const ibv_ah_attr& av = g->attr.ah_attr;
  if (!av.is_global || below->query_gid(g->context->real[kDefault], g->attr.port_num,
                                        av.grh.sgid_index, &gid) != 0) {
    return false;
  }
  const uint32_t type =
      group::gid_type_of(g->context->real[kDefault], g->attr.port_num, av.grh.sgid_index);
  std::lock_guard lock(g->attr_mutex);  // others look for users of an address
  g->gid_type = type;
  g->local = {wire::Gid::from_verbs(gid), g->qpn()};
  g->remote = {wire::Gid::from_verbs(av.grh.dgid), g->attr.dest_qp_num};
  return true;
}

// The application breaks or resets its QP: what the real ones say from now on is the truth.
void stop_masking(Group* g) {
  coordinator().group_forget(g);
  in_background_and_wait([] {});  // what was begun for it
  bool parked;
  {
    std::lock_guard send(g->send.mutex);
    parked = g->send.route == group::Route::kParked;
  }
  // In the middle of a switch no NIC holds what is posted; and where an error was held back, the
  // NIC has given a part of it already. Nobody else would flush that.
  if (parked || !group::errors_pass(*g, g->member)) group::fail(*g);
}

// The member that carries the group's data now. A fence under way is waited for: the QP that is
// being shut is none that the application should see. The round's deadline bounds the wait.
size_t current_member(Group* g) {
  for (;;) {
    {
      std::lock_guard lock(g->recv.mutex);
      // Receives are parked from the beginning of a fence until the next path is chosen.
      if (g->recv.route != group::Route::kParked) {
        return static_cast<size_t>(std::max<int>(g->member, kDefault));
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

// Before the application connects its QP. Receives of the shared queue that moved away while the
// default NIC was broken may still lie there. False: they do, and it still is.
bool join_default(Group* g) {
  if (g->srq == nullptr || g->srq_member != group::kNoMember) return true;
  bool is_clean = false;
  in_background_and_wait([&] { is_clean = g->srq->cleanse(kDefault); });
  return is_clean && group::receives_join(*g, kDefault) == SharedQueue::Join::kDone;
}

// RESET gives a fresh QP: on the default again, with empty queues and no peer.
int reset_group(Group* g);

void leave_cqs(Group* g) {
  group::purge(*g->send_cq, g);
  if (g->recv_cq != g->send_cq) group::purge(*g->recv_cq, g);
  group::CqLock lock(*g);
  if (!std::exchange(g->counted_slow, false)) return;
  g->send_cq->slow_groups--;
  if (g->recv_cq != g->send_cq) g->recv_cq->slow_groups--;
}

int reset_group(Group* g) {
  in_background_and_wait([g] { group::twin_qps_destroy(*g); });
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  const int error = below->modify_qp(g->real[kDefault], &attr, IBV_QP_STATE);
  if (error != 0) return error;
  group::receives_leave(*g);
  for (auto& flag : g->last_taken) flag = false;
  leave_cqs(g);
  auto send = lock_queue(g->send);
  auto recv = lock_queue(g->recv);
  group::CqLock lock(*g);
  for (CompletionQueue* cq : {g->send_cq, g->recv_cq}) {
    if (std::find(cq->groups.begin(), cq->groups.end(), g) == cq->groups.end()) {
      cq->groups.push_back(g);
    }
  }
  g->send.route = g->recv.route = group::Route::kOnDefault;
  g->send.journal.init(g->cap.max_send_wr, g->cap.max_send_sge, g->cap.max_inline_data,
                       g->sq_sig_all);
  g->recv.journal.init(g->cap.max_recv_wr, g->cap.max_recv_sge);
  g->counters = {};
  g->accept.fill(group::Accept::kDrop);
  g->accept[kDefault] = group::Accept::kPass;
  g->member = g->peer_member = kDefault;
  g->send.posted = g->send.drained_to = g->recv.posted = 0;
  g->send.sent = {};
  g->send.executed = {};
  g->drain_markers = 0;
  g->drain_marked = false;
  for (auto& flag : g->can_send) flag = false;
  g->last_psn = {};
  g->original_error = {};
  g->fault_reported = {};
  g->local_error = {};
  g->opcode_of_signaled.clear();
  g->remote_keys = {};
  g->off_default = false;
  g->attr_mask = 0;
  g->attr = {};
  g->qp.qp_base.state = IBV_QPS_RESET;
  return 0;
}

}  // namespace

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* init) noexcept try {
  const char* reason = unprotected_because(*init);
  if (!claim_shared(*init, &reason)) return nullptr;
  ibv_qp_init_attr real_init = on_default(*init);
  ibv_qp* real = below->create_qp(virtual_pd(pd)->real[kDefault], &real_init);
  if (real == nullptr) {
    unclaim_shared(*init, reason);
    return nullptr;
  }
  init->cap = real_init.cap;
  if (reason != nullptr) {
    tell_unprotected(Context::from(pd->context), reason);
    return real;
  }
  return make_group(pd, real, *init)->handle();
} catch (const std::bad_alloc&) {
  errno = ENOMEM;
  return nullptr;
}

namespace {

// `make`: by what other means than the verb, and then it is not protected.
ibv_qp* create_extended(ibv_context* context, ibv_qp_init_attr_ex* init, MakeQp make,
                        void* argument) {
  // An XRC receiver belongs to an XRC domain instead.
  const bool has_pd = init->comp_mask & IBV_QP_INIT_ATTR_PD;
  if (has_pd && (init->pd == nullptr || !owns(init->pd->context))) {
    errno = EINVAL;
    return nullptr;
  }
  const char* reason = make != nullptr ? "it is made by direct verbs" : unprotected_because(*init);
  if (reason == nullptr && !has_pd) reason = "it belongs to no protection domain";
  constexpr uint32_t kKnown = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if (reason == nullptr && (init->comp_mask & ~kKnown)) reason = "it asks for special features";
  // The builder has no function for the others: a program that asked for one would call null.
  constexpr uint64_t kBuilt = 2 * IBV_QP_EX_WITH_SEND_WITH_INV - 1;
  if (reason == nullptr && (init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) &&
      (init->send_ops_flags & ~kBuilt)) {
    reason = "it asks for requests that are not protected";
  }
  if (!claim_shared(*init, &reason)) return nullptr;
  ibv_context* real_context = Context::from(context)->real[kDefault];
  ibv_qp_init_attr_ex real_init = on_default(*init);
  if (has_pd) real_init.pd = virtual_pd(init->pd)->real[kDefault];
  ibv_qp* real = make != nullptr
                     ? make(real_context, &real_init, argument)
                     : verbs_get_ctx(real_context)->create_qp_ex(real_context, &real_init);
  if (real == nullptr) {
    unclaim_shared(*init, reason);
    return nullptr;
  }
  init->cap = real_init.cap;
  if (reason != nullptr) {
    tell_unprotected(Context::from(context), reason);
    return real;
  }
  Group* g = make_group(init->pd, real, *init);
  if (init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
    g->real_ex = below->qp_to_qp_ex(real);
    if (g->real_ex != nullptr) install_builder(*g);
  }
  return g->handle();
}

}  // namespace

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* init) try {
  return create_extended(context, init, nullptr, nullptr);
} catch (const std::bad_alloc&) {
  errno = ENOMEM;
  return nullptr;
}

ibv_qp* create_unprotected_qp(ibv_context* context, ibv_qp_init_attr_ex* init, MakeQp make,
                              void* argument) noexcept try {
  return create_extended(context, init, make, argument);
} catch (const std::bad_alloc&) {
  errno = ENOMEM;
  return nullptr;
}

ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp) noexcept {
  Group* g = Group::from(qp);
  return g->real_ex != nullptr ? &g->qp : nullptr;
}

int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) noexcept {
  Group* g = Group::from(qp);
  const bool to_state = mask & IBV_QP_STATE;
  if (to_state && (attr->qp_state == IBV_QPS_ERR || attr->qp_state == IBV_QPS_RESET)) {
    stop_masking(g);
  }
  if (to_state && attr->qp_state == IBV_QPS_RESET) return reset_group(g);
  if (to_state && attr->qp_state == IBV_QPS_RTR && !join_default(g)) return EAGAIN;
  for (;;) {
    const uint32_t departures = g->departures;
    const size_t member = current_member(g);
    const int error = group::application_modify(*g, static_cast<int>(member), *attr, mask);
    if (error == 0) break;
    // A QP that was left meanwhile is in ERR, and refuses what its successor takes.
    if (g->departures == departures) return error;
  }
  if (!to_state) return 0;
  qp->state = attr->qp_state;
  if (attr->qp_state == IBV_QPS_RTR && (mask & IBV_QP_AV)) {
    if (!g->let_go && name_ends(g)) coordinator().group_add(g);
  } else if (attr->qp_state == IBV_QPS_RTS && (mask & IBV_QP_SQ_PSN)) {
    group::count_packets(*g);
    coordinator().group_sends(g);
  }
  return 0;
}

int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) noexcept {
  Group* g = Group::from(qp);
  const size_t member = current_member(g);
  const int error = below->query_qp(g->real[member], attr, mask, init);
  if (error != 0) return error;
  bool failed;
  {
    std::lock_guard lock(g->send.mutex);
    failed = g->send.route == group::Route::kError;
  }
  if (failed) attr->qp_state = attr->cur_qp_state = IBV_QPS_ERR;
  qp->state = attr->qp_state;
  {
    // What the application set, not what we made of it (C9).
    std::lock_guard lock(g->attr_mutex);
    const ibv_qp_attr& asked = g->attr;
    if (g->attr_mask & IBV_QP_TIMEOUT) attr->timeout = asked.timeout;
    if (g->attr_mask & IBV_QP_RETRY_CNT) attr->retry_cnt = asked.retry_cnt;
    if (g->off_default) {
      attr->dest_qp_num = asked.dest_qp_num;
      attr->ah_attr = asked.ah_attr;
      attr->path_mtu = asked.path_mtu;
      attr->rq_psn = asked.rq_psn;
      attr->sq_psn = asked.sq_psn;
    }
  }
  attr->cap = g->cap;
  init->qp_context = qp->qp_context;
  init->send_cq = qp->send_cq;
  init->recv_cq = qp->recv_cq;
  init->srq = qp->srq;
  init->cap = g->cap;
  return 0;
}

int destroy_qp(ibv_qp* qp) noexcept {
  Group* g = Group::from(qp);
  coordinator().group_forget(g);
  // Behind the making of the backup, if that is still queued; then nothing refers to the group.
  in_background_and_wait([g] { group::twin_qps_destroy(*g); });
  const int error = below->destroy_qp(g->real[kDefault]);
  if (error != 0 && !g->context->dead[kDefault]) return error;
  {
    std::scoped_lock lock(g->context->event_mutex, g->context->mutex);
    std::erase(g->context->groups, g);
    g->context->qps[kDefault].erase(g->qpn(), &g->counters);
  }
  g->context->events.forget(qp);
  leave_cqs(g);
  if (g->srq != nullptr) {
    group::receives_leave(*g);
    g->srq->users--;
    std::lock_guard lock(g->recv_cq->mutex);
    g->recv_cq->slow_groups--;
  }
  g->send_cq->users--;
  g->recv_cq->users--;
  g->pd->users--;
  pthread_mutex_destroy(&qp->mutex);
  pthread_cond_destroy(&qp->cond);
  delete g;
  return 0;
}

bool is_protected(ibv_qp* qp) noexcept {
  Group* g = Group::from(qp);
  std::lock_guard send(g->send.mutex);
  if (g->send.route == group::Route::kError) return false;
  if (g->off_default) return true;
  group::CqLock lock(*g);
  return std::ranges::find(g->accept, group::Accept::kGuard) != g->accept.end();
}

ibv_qp* real_qp(ibv_qp* qp) noexcept {
  return Group::from(qp)->real[kDefault];
}

bool let_go(ibv_qp* qp) noexcept {
  Group* g = Group::from(qp);
  if (g->let_go) return true;
  auto on_default = [g] {
    std::lock_guard send(g->send.mutex);
    return g->send.route == group::Route::kOnDefault && !g->off_default;
  };
  if (!on_default()) return false;
  stop_masking(g);
  g->let_go = on_default();  // it may have been leaving
  return g->let_go;
}

void on_peer_gone(void (*call)(ibv_qp*)) noexcept {
  group::peer_gone = call;
}

int query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t) noexcept {
  return 0;
}
// What the two NICs agree on beyond the standard holds for the application's own connection; those
// that we make have none of it. The mode exact counts packets by the standard's rules.
int query_ece(ibv_qp* qp, ibv_ece* ece) noexcept {
  Group* g = Group::from(qp);
  return g->exact ? EOPNOTSUPP : below->query_ece(g->real[kDefault], ece);
}
int set_ece(ibv_qp* qp, ibv_ece* ece) noexcept {
  Group* g = Group::from(qp);
  return g->exact ? EOPNOTSUPP : below->set_ece(g->real[kDefault], ece);
}

// A rate is kept by one NIC, and would be lost on the way to another.
int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr*) noexcept {
  SHIFT_WARN_LIMITED("qp 0x%x: rate limits are not supported on a group of NICs",
                     Group::from(qp)->qpn());
  return EOPNOTSUPP;
}

// Address handles are the default NIC's own; this call only finds its PD.
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) noexcept {
  return below->create_ah(virtual_pd(pd)->real[kDefault], attr);
}
int destroy_ah(ibv_ah*) noexcept {
  return EOPNOTSUPP;
}
// RC QPs have no multicast.
int attach_mcast(ibv_qp*, const ibv_gid*, uint16_t) noexcept {
  return EINVAL;
}
int detach_mcast(ibv_qp*, const ibv_gid*, uint16_t) noexcept {
  return EINVAL;
}

}  // namespace shift::ops
