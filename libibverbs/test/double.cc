// A test double of the provider: one virtual device whose objects are poisoned. They hold only what
// the public ABI promises, so stock code that is given one crashes.
#include "double.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

namespace shift {

const StockVerbs* stock = nullptr;

namespace {

using namespace test;

constexpr uintptr_t kPoison = 0x5a5a5a5a5a5a5a5aULL;

struct VirtualDevice {
  ibv_device device;
  char zero_tail[512];
  ibv_device* real;
};

// The list that the application gets. The real list is needed again to free it.
struct List {
  ibv_device** real;
  ibv_device* devices[1];
};

VirtualDevice the_device;
ibv_pd the_pd;
ibv_mr the_mr;
ibv_dm the_dm;
ibv_ah the_ah;
ibv_comp_channel the_channel;
ibv_cq the_cq;
ibv_qp_ex the_qp;
ibv_srq the_srq;
verbs_context the_context;

int note(ibv_context* context, Verb verb) {
  context->num_comp_vectors = verb;
  return verb;
}

template <typename Object>
Object* note_object(ibv_context* context, Verb verb, Object& object) {
  note(context, verb);
  object.context = context;
  return &object;
}

List* list_of(ibv_device** devices) {
  return reinterpret_cast<List*>(reinterpret_cast<char*>(devices) - offsetof(List, devices));
}

}  // namespace

namespace ops {

bool init(const StockVerbs& functions) noexcept {
  stock = &functions;
  return true;
}

ibv_device** device_list_wrap(ibv_device** real, int count) noexcept {
  auto* list = static_cast<List*>(calloc(1, sizeof(List) + count * sizeof(ibv_device*)));
  if (list == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  list->real = real;
  memcpy(list->devices, real, count * sizeof(ibv_device*));
  if (count > 0 && getenv(kEnableVariable) != nullptr) {
    the_device.device = *real[0];
    the_device.real = real[0];
    list->devices[0] = &the_device.device;
  }
  return list->devices;
}

void device_list_free(ibv_device** devices) noexcept {
  List* list = list_of(devices);
  stock->free_device_list(list->real);
  free(list);
}

bool owns(const ibv_device* device) noexcept {
  return device == &the_device.device;
}
ibv_device* real_device(ibv_device*) noexcept {
  return the_device.real;
}
ibv_context* real_context(ibv_context*) noexcept {
  return nullptr;
}

ibv_context* open_device(ibv_device* device) noexcept {
  the_context = {};
  the_context.sz = sizeof(the_context);
  the_context.priv = reinterpret_cast<verbs_ex_private*>(kPoison);
  memset(&the_context.context.ops, 0x5a, sizeof(the_context.context.ops));
  the_context.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  the_context.context.device = device;
  the_context.context.cmd_fd = the_context.context.async_fd = -1;
  note(&the_context.context, k_open_device);
  return &the_context.context;
}

int close_device(ibv_context* context) noexcept {
  return note(context, k_close_device);
}

int query_device(ibv_context* context, ibv_device_attr*) noexcept {
  return note(context, k_query_device);
}
int query_port(ibv_context* context, uint8_t, ibv_port_attr* attr, size_t attr_size) noexcept {
  memset(static_cast<void*>(attr), 0x11, attr_size);
  return note(context, k_query_port);
}
int query_gid(ibv_context* context, uint8_t, int, ibv_gid*) noexcept {
  return note(context, k_query_gid);
}
int query_gid_ex(ibv_context* context, uint32_t, uint32_t, ibv_gid_entry*, uint32_t,
                 size_t) noexcept {
  return note(context, k_query_gid_ex);
}
ssize_t query_gid_table(ibv_context* context, ibv_gid_entry*, size_t, uint32_t, size_t) noexcept {
  return note(context, k_query_gid_table);
}
int query_pkey(ibv_context* context, uint8_t, int, __be16*) noexcept {
  return note(context, k_query_pkey);
}
int get_pkey_index(ibv_context* context, uint8_t, __be16) noexcept {
  return note(context, k_get_pkey_index);
}

ibv_pd* alloc_pd(ibv_context* context) noexcept {
  return note_object(context, k_alloc_pd, the_pd);
}
int dealloc_pd(ibv_pd* pd) noexcept {
  return note(pd->context, k_dealloc_pd);
}
ibv_pd* import_pd(ibv_context* context, uint32_t) noexcept {
  return note_object(context, k_import_pd, the_pd);
}
void unimport_pd(ibv_pd* pd) noexcept {
  note(pd->context, k_unimport_pd);
}

ibv_mr* reg_mr(ibv_pd* pd, void*, size_t, int) noexcept {
  return note_object(pd->context, k_reg_mr, the_mr);
}
ibv_mr* reg_mr_iova(ibv_pd* pd, void*, size_t, uint64_t, int) noexcept {
  return note_object(pd->context, k_reg_mr_iova, the_mr);
}
ibv_mr* reg_mr_iova2(ibv_pd* pd, void*, size_t, uint64_t, unsigned) noexcept {
  return note_object(pd->context, k_reg_mr_iova2, the_mr);
}
ibv_mr* reg_dmabuf_mr(ibv_pd* pd, uint64_t, size_t, uint64_t, int, int) noexcept {
  return note_object(pd->context, k_reg_dmabuf_mr, the_mr);
}
int rereg_mr(ibv_mr* mr, int, ibv_pd*, void*, size_t, int) noexcept {
  return note(mr->context, k_rereg_mr);
}
int dereg_mr(ibv_mr* mr) noexcept {
  return note(mr->context, k_dereg_mr);
}
ibv_mr* import_mr(ibv_pd* pd, uint32_t) noexcept {
  return note_object(pd->context, k_import_mr, the_mr);
}
void unimport_mr(ibv_mr* mr) noexcept {
  note(mr->context, k_unimport_mr);
}
ibv_dm* import_dm(ibv_context* context, uint32_t) noexcept {
  return note_object(context, k_import_dm, the_dm);
}
void unimport_dm(ibv_dm* dm) noexcept {
  note(dm->context, k_unimport_dm);
}

ibv_comp_channel* create_comp_channel(ibv_context* context) noexcept {
  the_channel.fd = -1;
  return note_object(context, k_create_comp_channel, the_channel);
}
int destroy_comp_channel(ibv_comp_channel* channel) noexcept {
  return note(channel->context, k_destroy_comp_channel);
}
ibv_cq* create_cq(ibv_context* context, int, void*, ibv_comp_channel*, int) noexcept {
  return note_object(context, k_create_cq, the_cq);
}
int resize_cq(ibv_cq* cq, int) noexcept {
  return note(cq->context, k_resize_cq);
}
int destroy_cq(ibv_cq* cq) noexcept {
  return note(cq->context, k_destroy_cq);
}
int get_cq_event(ibv_comp_channel* channel, ibv_cq**, void**) {
  return note(channel->context, k_get_cq_event);
}
void ack_cq_events(ibv_cq* cq, unsigned) noexcept {
  note(cq->context, k_ack_cq_events);
}

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr*) noexcept {
  return note_object(pd->context, k_create_qp, the_qp.qp_base);
}
ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp) noexcept {
  note(qp->context, k_qp_to_qp_ex);
  return &the_qp;
}
int modify_qp(ibv_qp* qp, ibv_qp_attr*, int) noexcept {
  return note(qp->context, k_modify_qp);
}
int query_qp(ibv_qp* qp, ibv_qp_attr*, int, ibv_qp_init_attr*) noexcept {
  return note(qp->context, k_query_qp);
}
int destroy_qp(ibv_qp* qp) noexcept {
  return note(qp->context, k_destroy_qp);
}
// These are poisoned, too: callers may only pass them on.
ibv_pd* real_pd(ibv_pd*) noexcept {
  return reinterpret_cast<ibv_pd*>(kPoison);
}
ibv_cq* real_cq(ibv_cq*) noexcept {
  return reinterpret_cast<ibv_cq*>(kPoison);
}
ibv_srq* real_srq(ibv_srq*) noexcept {
  return reinterpret_cast<ibv_srq*>(kPoison);
}
ibv_qp* real_qp(ibv_qp*) noexcept {
  return reinterpret_cast<ibv_qp*>(kPoison);
}
ibv_context* context_above(const ibv_context* real) noexcept {
  return real == context_beneath ? context_over_it : nullptr;
}
bool keep_events_back(ibv_context*, const void*) noexcept {
  kept_back++;
  return true;
}
void let_events_come(ibv_context*, const void*) noexcept {}
void forget_events(ibv_context*, const void*) noexcept {}
DirectVerbs direct_verbs() noexcept {
  return DirectVerbs::kRefuse;
}
void warn(const char*) noexcept {}
bool let_go(ibv_qp*) noexcept {
  return false;
}
bool let_go(ibv_cq*) noexcept {
  return false;
}
bool let_go(ibv_srq*) noexcept {
  return false;
}
ibv_qp* create_unprotected_qp(ibv_context*, ibv_qp_init_attr_ex*, MakeQp, void*) noexcept {
  return nullptr;
}
bool is_protected(const ibv_qp*) noexcept {
  return false;
}
bool has_left(const ibv_qp*) noexcept {
  return false;
}
bool device_is_masked(ibv_context*) noexcept {
  return false;
}
void on_peer_gone(void (*)(ibv_qp*)) noexcept {}
int query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode, uint32_t) noexcept {
  return note(qp->context, k_query_qp_data_in_order);
}
int query_ece(ibv_qp* qp, ibv_ece*) noexcept {
  return note(qp->context, k_query_ece);
}
int set_ece(ibv_qp* qp, ibv_ece*) noexcept {
  return note(qp->context, k_set_ece);
}

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr*) noexcept {
  return note_object(pd->context, k_create_srq, the_srq);
}
int modify_srq(ibv_srq* srq, ibv_srq_attr*, int) noexcept {
  return note(srq->context, k_modify_srq);
}
int query_srq(ibv_srq* srq, ibv_srq_attr*) noexcept {
  return note(srq->context, k_query_srq);
}
int destroy_srq(ibv_srq* srq) noexcept {
  return note(srq->context, k_destroy_srq);
}

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr*) noexcept {
  return note_object(pd->context, k_create_ah, the_ah);
}
int destroy_ah(ibv_ah* ah) noexcept {
  return note(ah->context, k_destroy_ah);
}
int attach_mcast(ibv_qp* qp, const ibv_gid*, uint16_t) noexcept {
  return note(qp->context, k_attach_mcast);
}
int detach_mcast(ibv_qp* qp, const ibv_gid*, uint16_t) noexcept {
  return note(qp->context, k_detach_mcast);
}

int get_async_event(ibv_context* context, ibv_async_event*) {
  return note(context, k_get_async_event);
}
void ack_async_event(ibv_context*, ibv_async_event* event) noexcept {
  note(event->element.cq->context, k_ack_async_event);
}

}  // namespace ops
}  // namespace shift
