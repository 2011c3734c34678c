// Makes QPs: protected ones, and those that are the default NIC's own.
#include "ops/create_qp.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "group/group.h"
#include "group/park.h"
#include "group/shared_queue.h"
#include "ops/builder.h"
#include "ops/completion_queues.h"
#include "ops/deputy.h"
#include "ops/entry.h"
#include "ops/open_contexts.h"
#include "ops/tables.h"
#include "util/config.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::ops {
namespace {

using group::CompletionQueue;
using group::Context;
using group::Group;
using group::kDefault;
using group::SharedQueue;

// nullptr: there is no shared queue, or one that the layer does not protect.
SharedQueue* shared_queue_of(ibv_srq* srq) {
  return srq != nullptr && owns(srq->context) ? SharedQueue::from(srq) : nullptr;
}

// The real init attributes for a QP on the default member.
template <typename Init>
Init on_default(const Init& init) {
  Init real = init;
  real.send_cq = real_cq(init.send_cq);
  real.recv_cq = real_cq(init.recv_cq);
  if (SharedQueue* queue = shared_queue_of(init.srq)) real.srq = queue->members[kDefault].real;
  return real;
}

// Says why a QP cannot be protected; nullptr: it can.
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

// A shared receive queue serves either protected QPs or unprotected ones (C10). `reason` is what
// unprotected_because() returned, and is set when the queue is the reason. False, with errno: the
// queue serves the other kind, and the QP cannot be made.
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
  // The wr_ids of the receives have to be replaced, which the hot path never does. The CQ stays off
  // the hot path for as long as it lives, since the layer does not see such a QP's destruction.
  if (is_virtual_cq(init.recv_cq)) {
    CompletionQueue* cq = CompletionQueue::from(init.recv_cq);
    auto lock = lock_queue(*cq);
    cq->slow_groups++;
  }
  return true;
}

// Gives up the claim of a protected QP that was not made after all.
template <typename Init>
void unclaim_shared(const Init& init, const char* reason) {
  if (init.srq != nullptr && reason == nullptr) shared_queue_of(init.srq)->users--;
}

template <typename Init>
void leave_unprotected(Context* context, const Init& init, const char* reason) {
  for (ibv_cq* cq : {init.send_cq, init.recv_cq}) {
    if (is_virtual_cq(cq)) cq_take_others(*CompletionQueue::from(cq));
  }
  const char* name = context->device->dev.name;
  SHIFT_INFO_FEW("a QP on %s behaves as stock: %s", name, reason);
  if (context->members[kDefault].port_down && group::is_backed(*context))
    SHIFT_WARN_LIMITED(
        "%s: its port is down, and a QP is made on it that is not protected (%s): it "
        "carries nothing (SHIFT_BORN=stock: programs see that the port is down)",
        name, reason);
  context->stock_qps++;
  coordinator().stock_qps_changed(context);
}

void copy_public(ibv_qp& qp, const ibv_qp& real) {
  qp.handle = real.handle;
  qp.qp_num = real.qp_num;
  qp.state = real.state;
  qp.qp_type = real.qp_type;
  pthread_mutex_init(&qp.mutex, nullptr);
  pthread_cond_init(&qp.cond, nullptr);
}

// When the QP is fenced, all its requests give completions, and a CQ that overruns breaks every QP
// on it. False: a CQ has no room for that.
bool reserve_room(Group& g) {
  // A shared receive queue gives its QPs one receive at a time.
  if (g.qp.qp_base.srq != nullptr) cq_take_others(*g.recv_cq);
  const uint32_t receives = g.qp.qp_base.srq != nullptr ? 1 : g.cap.max_recv_wr;
  if (!cq_reserve(*g.send_cq, g.cap.max_send_wr)) return false;
  g.reserved_sends = g.cap.max_send_wr;
  if (!cq_reserve(*g.recv_cq, receives)) return false;
  g.reserved_receives = receives;
  return true;
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
  g->mode = config().mode;
  if (const WorkRingTable* rings = work_rings();
      rings != nullptr && rings->open(real, &g->reader.rings))
    g->reader.table = rings;
  g->tag = reinterpret_cast<uintptr_t>(g.get());
  g->life_begin();
  {
    std::lock_guard lock(context->mutex);
    context->groups.push_back(g.get());
    context->members[kDefault].qps.insert(real->qp_num, &g->counters);
  }
  for (CompletionQueue* cq : {g->send_cq, g->recv_cq}) {
    cq->users++;
    cq_join(*cq, *g);
  }
  if (!reserve_room(*g)) {
    SHIFT_WARN_LIMITED(
        "qp 0x%x on %s is not protected: its CQ cannot grow to what the QP may flush", g->qpn(),
        context->device->dev.name);
    g->let_go = true;
  }
  g->pd->users++;
  g->send_cq_held = group::Held(g->send_cq);
  g->recv_cq_held = group::Held(g->recv_cq);
  g->pd_held = group::Held(g->pd);
  if (init.srq != nullptr) {
    g->srq = SharedQueue::from(init.srq);  // claim_shared() counted the user
    g->srq_held = group::Held(g->srq);
    // The wr_ids of its receives have to be replaced, which the hot path never does.
    auto lock = lock_queue(*g->recv_cq);
    g->recv_cq->slow_groups++;
  }
  return g.release();
}

// Whether a deputy has given QPs their numbers: these may be numbers of QPs on the NIC itself, when
// it has come back.
constinit std::atomic<bool> numbers_mixed{false};

// `make` makes QPs until one has a number that no QP of the application has on the device. Two NICs
// may give the same one.
template <typename Make>
ibv_qp* with_own_number(const Context& context, const Make& make) {
  constexpr size_t kTries = 64;
  ibv_qp* made = make();
  if (!numbers_mixed.load(std::memory_order_relaxed)) return made;
  std::vector<ibv_qp*> used;
  while (made != nullptr && context_uses_number(*context.device, made->qp_num) &&
         !SHIFT_PLANT(number_given_twice)) {
    used.push_back(std::exchange(made, nullptr));
    errno = EAGAIN;
    if (used.size() < kTries) made = make();
  }
  const int error = errno;
  for (ibv_qp* one : used) (void)stock->destroy_qp(one);
  errno = error;
  return made;
}

// ---- QPs that are made while the default NIC is dead

// The init attributes for the deputy's QP, which takes no work: its queues are as large as asked
// for, so that the provider says what it would have made of that.
template <typename Init>
Init on_deputy(const Init& init, const Context::Deputy& at) {
  Init real = init;
  real.send_cq = real.recv_cq = at.cq;
  real.srq = nullptr;
  if (init.srq != nullptr) real.cap.max_recv_wr = real.cap.max_recv_sge = 0;
  return real;
}

// From here on everything that is posted waits in the journal. The group is in no list of control/
// yet.
void begin_elsewhere(Group& g) {
  g.life.unconnected = true;
  Group* const one = &g;
  group::park({&one, 1});
}

// `make` makes the deputy's QP from the init attributes.
template <typename Init, typename Make>
Group* make_elsewhere(ibv_pd* pd, Init* init, const Make& make) {
  Context& context = *Context::from(pd->context);
  const char* reason = unprotected_because(*init);
  const Context::Deputy* at = reason == nullptr ? deputy_of(context) : nullptr;
  if (at == nullptr) {
    errno = EIO;  // as on the dead NIC
    return nullptr;
  }
  if (!claim_shared(*init, &reason) || reason != nullptr) {
    errno = EIO;
    return nullptr;
  }
  Init real_init = on_deputy(*init, *at);
  numbers_mixed = true;
  ibv_qp* real =
      with_own_number(context, [&] { return make(*at, &(real_init = on_deputy(*init, *at))); });
  if (real == nullptr) {
    unclaim_shared(*init, reason);
    return nullptr;
  }
  if (init->srq == nullptr) {
    init->cap = real_init.cap;
  } else {
    init->cap.max_send_wr = real_init.cap.max_send_wr;
    init->cap.max_send_sge = real_init.cap.max_send_sge;
    init->cap.max_inline_data = real_init.cap.max_inline_data;
  }
  Group* g = make_group(pd, real, *init);
  g->is_homeless = true;
  begin_elsewhere(*g);
  return g;
}

}  // namespace

void begin_again_elsewhere(Group& group) {
  begin_elsewhere(group);
}

void cq_join(CompletionQueue& cq, Group& group) {
  auto lock = lock_queue(cq);
  // The last number may be that of an unprotected QP that is gone, and now of this group.
  cq.last_qpn = UINT32_MAX;
  if (std::ranges::find(cq.groups, &group) == cq.groups.end()) cq.groups.push_back(&group);
  if (cq.let_go) group.let_go = true;
}

namespace {

ibv_qp* create_elsewhere(ibv_pd* pd, ibv_qp_init_attr* init) {
  Group* g = make_elsewhere(pd, init, [](const Context::Deputy& at, ibv_qp_init_attr* real) {
    return stock->create_qp(at.pd, real);
  });
  return g != nullptr ? g->handle() : nullptr;
}

}  // namespace

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* init) noexcept try {
  Context& context = *Context::from(pd->context);
  if (needs_deputy(context)) return create_elsewhere(pd, init);
  const char* reason = unprotected_because(*init);
  if (!claim_shared(*init, &reason)) return nullptr;
  ibv_qp_init_attr real_init = on_default(*init);
  ibv_qp* real = with_own_number(
      context, [&] { return stock->create_qp(virtual_pd(pd)->real[kDefault], &real_init); });
  if (real == nullptr) {
    unclaim_shared(*init, reason);
    return is_default_gone(context, errno) ? create_elsewhere(pd, init) : nullptr;
  }
  init->cap = real_init.cap;
  if (reason != nullptr) {
    leave_unprotected(Context::from(pd->context), *init, reason);
    return real;
  }
  return make_group(pd, real, *init)->handle();
} catch (const std::bad_alloc&) {
  errno = ENOMEM;
  return nullptr;
}

namespace {

void add_builder(Group& g, const ibv_qp_init_attr_ex& init) {
  if (!(init.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) return;
  g.real_ex = stock->qp_to_qp_ex(g.real[kDefault]);
  try {
    if (g.real_ex != nullptr) install_builder(g);
  } catch (const std::bad_alloc&) {
    (void)destroy_qp(g.handle());
    throw;
  }
}

ibv_qp* create_extended_elsewhere(ibv_qp_init_attr_ex* init) {
  Group* g =
      make_elsewhere(init->pd, init, [](const Context::Deputy& at, ibv_qp_init_attr_ex* real) {
        real->pd = at.pd;
        return verbs_get_ctx(at.real)->create_qp_ex(at.real, real);
      });
  if (g == nullptr) return nullptr;
  add_builder(*g, *init);
  return g->handle();
}

// `make` makes the QP by other means than the verb; such a QP is not protected.
ibv_qp* create_extended(ibv_context* context, ibv_qp_init_attr_ex* init, MakeQp make,
                        void* argument) {
  constexpr uint32_t kInHeaders = 2 * IBV_QP_INIT_ATTR_SEND_OPS_FLAGS - 1;
  if (asks_for_newer(init->comp_mask, kInHeaders)) return nullptr;
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
  // The builder has no function for other requests: a program that asked for one would call null.
  constexpr uint64_t kBuilt = 2 * IBV_QP_EX_WITH_SEND_WITH_INV - 1;
  if (reason == nullptr && (init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) &&
      (init->send_ops_flags & ~kBuilt)) {
    reason = "it asks for requests that are not protected";
  }
  if (needs_deputy(*Context::from(context))) {
    if (reason == nullptr) return create_extended_elsewhere(init);
    errno = EIO;
    return nullptr;
  }
  if (!claim_shared(*init, &reason)) return nullptr;
  ibv_context* real_context = Context::from(context)->members[kDefault].real;
  ibv_qp_init_attr_ex real_init = on_default(*init);
  if (has_pd) real_init.pd = virtual_pd(init->pd)->real[kDefault];
  ibv_qp* real = with_own_number(*Context::from(context), [&] {
    return make != nullptr ? make(real_context, &real_init, argument)
                           : verbs_get_ctx(real_context)->create_qp_ex(real_context, &real_init);
  });
  if (real == nullptr) {
    unclaim_shared(*init, reason);
    const bool is_gone = is_default_gone(*Context::from(context), errno) && reason == nullptr;
    return is_gone ? create_extended_elsewhere(init) : nullptr;
  }
  init->cap = real_init.cap;
  if (reason != nullptr) {
    leave_unprotected(Context::from(context), *init, reason);
    return real;
  }
  Group* g = make_group(init->pd, real, *init);
  add_builder(*g, *init);
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

}  // namespace shift::ops
