// The contract between the provider and whatever carries it (the front library libibverbs/ here; an
// upstream provider tree elsewhere). Two halves: `StockVerbs`, the stock verbs library as the
// provider sees it, and `shift::ops`, what the carrier calls on virtual objects. Neither side knows
// more of the other than this file.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "group/stock.h"
#include "util/virtual_objects.h"

namespace shift {

namespace ops {

// Called once per process, before the first device list, never with SHIFT_DISABLE=1. Starts no
// thread. False: the layer stays out of this process (configuration, or it cannot work here);
// nothing but owns(), which is always false then, is called afterwards.
bool init(const StockVerbs& functions) noexcept;

// Takes over `real`, a list of `count` devices from stock->get_device_list(), and returns the list
// for the application, NULL-terminated, of the same length and order, virtual devices in the places
// of the protected ones. A virtual device has the name and sysfs paths of its real one, stands at
// the same address in every list while a list or a context refers to it, and has 512 zero bytes
// after its ibv_device (stock providers look there). NULL with errno: `real` is still the
// caller's.
ibv_device** device_list_wrap(ibv_device** real, int count) noexcept;
// Frees what device_list_wrap() returned, and the real list in it.
void device_list_free(ibv_device** list) noexcept;

// Cheap (compare addresses, look nothing up in the device), callable with any device or context
// the program holds, from any thread, before init() and after the last close.
bool owns(const ibv_device* device) noexcept;
inline bool owns(const ibv_context* context) noexcept {
  return owns(context->device);
}

// The default NIC behind a virtual device or context: for what asks about the NIC only.
ibv_device* real_device(ibv_device* device) noexcept;
ibv_context* real_context(ibv_context* context) noexcept;
// The same for virtual objects. A caller that looks into them may not work on them, unless the
// layer lets go.
ibv_pd* real_pd(ibv_pd* pd) noexcept;  // of one that is not virtual, or null: itself
ibv_cq* real_cq(ibv_cq* cq) noexcept;  // as real_pd
ibv_srq* real_srq(ibv_srq* srq) noexcept;
ibv_qp* real_qp(ibv_qp* qp) noexcept;
// SHIFT_DIRECT_VERBS, and the log.
DirectVerbs direct_verbs() noexcept;
void warn(const char* line) noexcept;
// Nothing of the object is protected any more, nor will be; of a CQ, none of the QPs on it. False:
// it cannot be let go of.
bool let_go(ibv_qp* qp) noexcept;
bool let_go(ibv_cq* cq) noexcept;
bool let_go(ibv_srq* srq) noexcept;

ibv_context* open_device(ibv_device* device) noexcept;
int close_device(ibv_context* context) noexcept;

int query_device(ibv_context* context, ibv_device_attr* attr) noexcept;
// As verbs_context.query_port: fills at most attr_size bytes. The old exported ibv_query_port comes
// here with the short size.
int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t attr_size) noexcept;
int query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) noexcept;
int query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                 uint32_t flags, size_t entry_size) noexcept;
ssize_t query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t max_entries,
                        uint32_t flags, size_t entry_size) noexcept;
int query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) noexcept;
int get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey) noexcept;

ibv_pd* alloc_pd(ibv_context* context) noexcept;
int dealloc_pd(ibv_pd* pd) noexcept;
ibv_pd* import_pd(ibv_context* context, uint32_t handle) noexcept;
void unimport_pd(ibv_pd* pd) noexcept;

ibv_mr* reg_mr(ibv_pd* pd, void* addr, size_t length, int access) noexcept;
ibv_mr* reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access) noexcept;
ibv_mr* reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                     unsigned access) noexcept;
ibv_mr* reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                      int access) noexcept;
int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length, int access) noexcept;
int dereg_mr(ibv_mr* mr) noexcept;
ibv_mr* import_mr(ibv_pd* pd, uint32_t handle) noexcept;
void unimport_mr(ibv_mr* mr) noexcept;
ibv_dm* import_dm(ibv_context* context, uint32_t handle) noexcept;
void unimport_dm(ibv_dm* dm) noexcept;

ibv_comp_channel* create_comp_channel(ibv_context* context) noexcept;
int destroy_comp_channel(ibv_comp_channel* channel) noexcept;
ibv_cq* create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                  int comp_vector) noexcept;
int resize_cq(ibv_cq* cq, int cqe) noexcept;
int destroy_cq(ibv_cq* cq) noexcept;
// As get_async_event: a thread may be cancelled in it.
int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context);
void ack_cq_events(ibv_cq* cq, unsigned count) noexcept;

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* init) noexcept;
// One that is not protected, made by `make` of the NIC's own objects.
ibv_qp* create_unprotected_qp(ibv_context* context, ibv_qp_init_attr_ex* init, MakeQp make,
                              void* argument) noexcept;
ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp) noexcept;
int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) noexcept;
int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) noexcept;
int destroy_qp(ibv_qp* qp) noexcept;
// Faults of its path are masked, as far as is known: it has not failed, nor was it found to have no
// peer. Of this and has_left(): the QP may be any, or be destroyed already, and then it is not.
bool is_protected(const ibv_qp* qp) noexcept;
// So is any QP of this process on the device that the context is of.
bool device_is_masked(ibv_context* context) noexcept;
// It has left a path, if only once.
bool has_left(const ibv_qp* qp) noexcept;
// `call` is told, on one of the layer's threads, of each QP that has left a path and whose peer has
// closed its own.
void on_peer_gone(void (*call)(ibv_qp* qp)) noexcept;
int query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode opcode, uint32_t flags) noexcept;
int query_ece(ibv_qp* qp, ibv_ece* ece) noexcept;
int set_ece(ibv_qp* qp, ibv_ece* ece) noexcept;

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* init) noexcept;
int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) noexcept;
int query_srq(ibv_srq* srq, ibv_srq_attr* attr) noexcept;
int destroy_srq(ibv_srq* srq) noexcept;

// The carrier makes create_ah_from_wc from init_ah_from_wc on the real context and this.
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) noexcept;
int destroy_ah(ibv_ah* ah) noexcept;
int attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) noexcept;
int detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) noexcept;

// The virtual context whose default NIC's own this is; nullptr: none's. Objects that are not
// protected have such a context, but their events come through the virtual one.
ibv_context* context_above(const ibv_context* real) noexcept;
// Such an object is about to be destroyed: its events are kept back, and the call waits until the
// application has acknowledged those it was given. False: there is no memory.
[[nodiscard]] bool keep_events_back(ibv_context* context, const void* object) noexcept;
// It could not be destroyed, and they come; or it was, and they are dropped.
void let_events_come(ibv_context* context, const void* object) noexcept;
void forget_events(ibv_context* context, const void* object) noexcept;

// A thread may be cancelled in this one: unwound, so no noexcept.
int get_async_event(ibv_context* context, ibv_async_event* event);
// Events that name a virtual CQ, QP, SRQ or WQ. Port and device events need no acknowledgement.
void ack_async_event(ibv_context* context, ibv_async_event* event) noexcept;

}  // namespace ops
}  // namespace shift
