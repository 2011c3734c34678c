// Objects that the layer does not protect. The application holds the default NIC's own object, and
// its calls on that object go past the layer. Only the call that makes the object comes here,
// because the objects that it is made of may be virtual.
#include "group/shared_queue.h"
#include "ops/completion_queues.h"
#include "ops/entry.h"
#include "ops/tables.h"
#include "util/config.h"
#include "util/log.h"

namespace shift::ops {
namespace {

using group::CompletionQueue;
using group::Context;
using group::kDefault;
using group::SharedQueue;

// The default NIC's own function for an extended verb; null: its provider has none.
template <typename Function>
Function real_verb(ibv_context* context, Function verbs_context::*verb) {
  verbs_context* real = verbs_get_ctx(Context::from(context)->members[kDefault].real);
  if (real == nullptr) return nullptr;
  // The table grows towards lower addresses, so the table of an older stock library begins at a
  // higher address.
  const auto offset =
      static_cast<size_t>(reinterpret_cast<char*>(&(real->*verb)) - reinterpret_cast<char*>(real));
  return real->sz < sizeof *real - offset ? nullptr : real->*verb;
}

// Makes an object from an `init` that names no virtual objects.
template <auto verb, typename Object, typename Init>
Object* make(ibv_context* context, Init* init) noexcept {
  const auto function = real_verb(context, verb);
  if (function == nullptr) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  // Such an object has one NIC only. A deputy would make it on a NIC that is not the one asked
  // for.
  if (Context::from(context)->members[kDefault].is_deputy) {
    errno = EIO;
    return nullptr;
  }
  return function(Context::from(context)->members[kDefault].real, init);
}

// The NIC's own CQ, for an object whose completions come there beside those of protected QPs.
ibv_cq* cq_of_others(ibv_cq* cq) {
  if (is_virtual_cq(cq)) cq_take_others(*CompletionQueue::from(cq));
  return real_cq(cq);
}

ibv_wq* create_wq(ibv_context* context, ibv_wq_init_attr* init) noexcept {
  if (asks_for_newer(init->comp_mask, IBV_WQ_INIT_ATTR_RESERVED - 1)) return nullptr;
  ibv_wq_init_attr real = *init;
  real.pd = real_pd(init->pd);
  real.cq = cq_of_others(init->cq);
  ibv_wq* wq = make<&verbs_context::create_wq, ibv_wq>(context, &real);
  init->max_wr = real.max_wr;
  init->max_sge = real.max_sge;
  return wq;
}

// Makes an SRQ for XRC or tag matching; only QPs that are not protected receive from it.
ibv_srq* create_stock_srq(ibv_context* context, ibv_srq_init_attr_ex* init) noexcept {
  ibv_srq_init_attr_ex real = *init;
  if (init->comp_mask & IBV_SRQ_INIT_ATTR_PD) real.pd = real_pd(init->pd);
  if (init->comp_mask & (IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM)) {
    real.cq = cq_of_others(init->cq);
  }
  ibv_srq* srq = make<&verbs_context::create_srq_ex, ibv_srq>(context, &real);
  init->attr = real.attr;
  return srq;
}

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* init) noexcept {
  if (asks_for_newer(init->comp_mask, IBV_SRQ_INIT_ATTR_RESERVED - 1)) return nullptr;
  const bool is_basic =
      !(init->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) || init->srq_type == IBV_SRQT_BASIC;
  constexpr uint32_t kOfBasic = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  if (!is_basic || (init->comp_mask & ~kOfBasic)) return create_stock_srq(context, init);
  if (!(init->comp_mask & IBV_SRQ_INIT_ATTR_PD) || init->pd == nullptr) {
    errno = EINVAL;
    return nullptr;
  }
  // The long struct begins with the members of the short one.
  return create_srq(init->pd, reinterpret_cast<ibv_srq_init_attr*>(init));
}
static_assert(offsetof(ibv_srq_init_attr_ex, attr) == offsetof(ibv_srq_init_attr, attr));

int get_srq_num(ibv_srq* srq, uint32_t* number) noexcept {
  ibv_srq* real = SharedQueue::from(srq)->members[kDefault].real;
  const auto* verbs = verbs_get_ctx_op(real->context, get_srq_num);
  return verbs != nullptr ? verbs->get_srq_num(real, number) : EOPNOTSUPP;
}

}  // namespace

void install_stock_objects(verbs_context& v) {
  v.open_xrcd = make<&verbs_context::open_xrcd, ibv_xrcd, ibv_xrcd_init_attr>;
  v.open_qp = make<&verbs_context::open_qp, ibv_qp, ibv_qp_open_attr>;
  v.create_srq_ex = create_srq_ex;
  v.get_srq_num = get_srq_num;
  v.create_wq = create_wq;
  v.create_rwq_ind_table =
      make<&verbs_context::create_rwq_ind_table, ibv_rwq_ind_table, ibv_rwq_ind_table_init_attr>;
  v.create_counters = make<&verbs_context::create_counters, ibv_counters, ibv_counters_init_attr>;
  v.create_flow_action_esp =
      make<&verbs_context::create_flow_action_esp, ibv_flow_action, ibv_flow_action_esp_attr>;
  v.alloc_dm = make<&verbs_context::alloc_dm, ibv_dm, ibv_alloc_dm_attr>;
  v.alloc_td = make<&verbs_context::alloc_td, ibv_td, ibv_td_init_attr>;
}

bool keep_events_back(ibv_context* context, const void* object) noexcept {
  return Context::from(context)->events.keep_back(object);
}
void let_events_come(ibv_context* context, const void* object) noexcept {
  Context::from(context)->events.let_come(object);
}
void forget_events(ibv_context* context, const void* object) noexcept {
  Context::from(context)->events.forget(object);
}

ibv_pd* real_pd(ibv_pd* pd) noexcept {
  return pd != nullptr && owns(pd->context) ? virtual_pd(pd)->real[kDefault] : pd;
}
ibv_cq* real_cq(ibv_cq* cq) noexcept {
  if (!is_virtual_cq(cq)) return cq;
  return CompletionQueue::from(cq)->real[kDefault];
}
ibv_srq* real_srq(ibv_srq* srq) noexcept {
  return SharedQueue::from(srq)->members[kDefault].real;
}
DirectVerbs direct_verbs() noexcept {
  return config().direct_verbs;
}
void warn(const char* line) noexcept {
  SHIFT_WARN("%s", line);
}
bool let_go(ibv_srq* srq) noexcept {
  return SharedQueue::from(srq)->claim(false);
}

ibv_dm* import_dm(ibv_context* context, uint32_t handle) noexcept {
  return stock->import_dm(Context::from(context)->members[kDefault].real, handle);
}
void unimport_dm(ibv_dm*) noexcept {}  // no device memory is virtual

}  // namespace shift::ops
