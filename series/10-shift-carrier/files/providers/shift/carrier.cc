// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// The C++ half of the in-tree carrier (carrier.h): gives the core libibverbs' own verbs as the
// stock ones, and libibverbs the core's verbs of virtual objects.
#include "carrier.h"

#include <pthread.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include <infiniband/stack.h>

#include "ops/glue.h"

// verbs.h defines these as macros, too.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace ops = shift::ops;

namespace {

shift::StockVerbs stock_verbs;
pthread_once_t on_once = PTHREAD_ONCE_INIT;
bool is_on = false;

// What unwrap_list() takes from the core: libibverbs frees the list itself.
thread_local ibv_device** list_beneath = nullptr;
void keep_list(ibv_device** list) {
  list_beneath = list;
}

// The core's own calls work on the NICs' objects and mean nothing but these. An application's call on
// the same object comes by the same function, and concerns the virtual context above it.
thread_local bool is_own_call = false;
template <auto verb, typename Result, typename Object>
Result own_call(Object* object) {
  is_own_call = true;
  if constexpr (std::is_void_v<Result>) {
    verb(object);
    is_own_call = false;
  } else {
    const Result result = verb(object);
    is_own_call = false;
    return result;
  }
}

// ibv_query_port's address is that of the entry point for old programs, as the core expects it.
void decide() {
  const char* disable = ::secure_getenv("SHIFT_DISABLE");
  if (disable != nullptr && std::strcmp(disable, "1") == 0) return;
  if (shift_virtual_objects != nullptr) return;  // the front protects the process already
#define SHIFT_BIND(name, version) stock_verbs.name = &::ibv_##name;
  SHIFT_STOCK_FUNCTIONS(SHIFT_BIND)
#undef SHIFT_BIND
  stock_verbs.free_device_list = keep_list;
  stock_verbs.ack_async_event = own_call<ibv_ack_async_event, void, ibv_async_event>;
  stock_verbs.destroy_qp = own_call<ibv_destroy_qp, int, ibv_qp>;
  stock_verbs.destroy_srq = own_call<ibv_destroy_srq, int, ibv_srq>;
  stock_verbs.query_gid_ex = &::_ibv_query_gid_ex;
  stock_verbs.query_gid_table = &::_ibv_query_gid_table;
  is_on = ops::init(stock_verbs);
}

ibv_device** wrap_list(ibv_device** list, int count) {
  if (!shift_is_on()) return list;
  ibv_device** wrapped = ops::device_list_wrap(list, count);
  if (wrapped != nullptr) shift_devices_adopt(wrapped);
  return wrapped;
}

ibv_device** unwrap_list(ibv_device** list) {
  if (!shift_is_on()) return list;
  list_beneath = nullptr;
  ops::device_list_free(list);
  return list_beneath;
}

// An event may name an object that the layer does not protect. Its context is then one beneath a
// virtual context.
bool ack_async_event(ibv_context* context, ibv_async_event* event) {
  if (is_own_call) return false;
  ibv_context* above = ops::owns(context) ? context : ops::context_above(context);
  if (above == nullptr) return false;
  ops::ack_async_event(above, event);
  return true;
}

ibv_context* above_for_application(ibv_context* context) {
  return is_own_call ? nullptr : ops::context_above(context);
}

int destroy_begin(ibv_context* context, const void* object) {
  ibv_context* above = above_for_application(context);
  return above == nullptr || ops::keep_events_back(above, object) ? 0 : ENOMEM;
}

void destroy_end(ibv_context* context, const void* object, int result) {
  ibv_context* above = above_for_application(context);
  if (above == nullptr) return;
  result == 0 ? ops::forget_events(above, object) : ops::let_events_come(above, object);
}

}  // namespace

extern "C" {

bool shift_is_on() {
  pthread_once(&on_once, decide);
  return is_on;
}
bool shift_owns_device(const ibv_device* device) {
  return ops::owns(device);
}
ibv_device* shift_device_beneath(ibv_device* device) {
  return ops::real_device(device);
}

const verbs_stack_ops shift_stack_ops = {
    .context_ops = &shift_context_ops,
    .wrap_list = wrap_list,
    .unwrap_list = unwrap_list,
    .open_device = ops::open_device,
    .close_device = ops::close_device,
    .get_async_event = ops::get_async_event,
    .ack_async_event = ack_async_event,
    .query_gid = ops::query_gid,
    .query_gid_ex = ops::query_gid_ex,
    .query_gid_table = ops::query_gid_table,
    .reg_mr = ops::reg_mr_iova2,
    .rereg_mr = ops::rereg_mr,
    .dereg_mr = ops::dereg_mr,
    .create_comp_channel = ops::create_comp_channel,
    .destroy_comp_channel = ops::destroy_comp_channel,
    .create_cq = ops::create_cq,
    .destroy_cq = ops::destroy_cq,
    .get_cq_event = ops::get_cq_event,
    .ack_cq_events = ops::ack_cq_events,
    .create_srq = ops::create_srq,
    .qp_to_qp_ex = ops::qp_to_qp_ex,
    .create_ah = ops::create_ah,
    .destroy_begin = destroy_begin,
    .destroy_end = destroy_end,
};

ibv_pd* shift_alloc_pd(ibv_context* context) {
  return ops::alloc_pd(context);
}
int shift_dealloc_pd(ibv_pd* pd) {
  return ops::dealloc_pd(pd);
}
ibv_pd* shift_import_pd(ibv_context* context, uint32_t handle) {
  return ops::import_pd(context, handle);
}
void shift_unimport_pd(ibv_pd* pd) {
  ops::unimport_pd(pd);
}
ibv_mr* shift_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                            int access) {
  return ops::reg_dmabuf_mr(pd, offset, length, iova, fd, access);
}
ibv_mr* shift_import_mr(ibv_pd* pd, uint32_t handle) {
  return ops::import_mr(pd, handle);
}
void shift_unimport_mr(ibv_mr* mr) {
  ops::unimport_mr(mr);
}
ibv_dm* shift_import_dm(ibv_context* context, uint32_t handle) {
  return ops::import_dm(context, handle);
}
void shift_unimport_dm(ibv_dm* dm) {
  ops::unimport_dm(dm);
}
int shift_resize_cq(ibv_cq* cq, int cqe) {
  return ops::resize_cq(cq, cqe);
}
ibv_qp* shift_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  return ops::create_qp(pd, attr);
}
int shift_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  return ops::modify_qp(qp, attr, mask);
}
int shift_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
  return ops::query_qp(qp, attr, mask, init);
}
int shift_destroy_qp(ibv_qp* qp) {
  return ops::destroy_qp(qp);
}
int shift_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode opcode, uint32_t flags) {
  return ops::query_qp_data_in_order(qp, opcode, flags);
}
int shift_query_ece(ibv_qp* qp, ibv_ece* ece) {
  return ops::query_ece(qp, ece);
}
int shift_set_ece(ibv_qp* qp, ibv_ece* ece) {
  return ops::set_ece(qp, ece);
}
int shift_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  return ops::modify_srq(srq, attr, mask);
}
int shift_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  return ops::query_srq(srq, attr);
}
int shift_destroy_srq(ibv_srq* srq) {
  return ops::destroy_srq(srq);
}
int shift_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return ops::attach_mcast(qp, gid, lid);
}
int shift_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return ops::detach_mcast(qp, gid, lid);
}
int shift_query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                          ibv_device_attr_ex* attr, size_t size) {
  // libibverbs asks for the short struct through this verb, too.
  if (size == sizeof attr->orig_attr) return ops::query_device(context, &attr->orig_attr);
  return verbs_get_ctx(context)->query_device_ex(context, input, attr, size);
}
int shift_query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr) {
  return ops::query_port(context, port, attr, sizeof *attr);
}

}  // extern "C"
