// The contract between the provider and its carrier (the front library libibverbs/ here; an
// upstream provider tree elsewhere). It has two halves: `StockVerbs` is the stock verbs library as
// the provider sees it, and `shift::ops` holds the functions that the carrier calls on virtual
// objects. Neither side knows more of the other than this file.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "group/stock.h"
#include "util/virtual_objects.h"

namespace shift {

namespace ops {

// Called once per process, before the first device list, and never with SHIFT_DISABLE=1. Starts no
// thread. False: the layer stays out of this process, because the configuration says so or because
// it cannot work here. Then owns() always returns false, and no other function may be called.
bool init(const StockVerbs& functions) noexcept;

// Takes over `real`, a list of `count` devices from stock->get_device_list(), and returns the list
// for the application. That list is NULL-terminated and has the same length and order, with virtual
// devices in the places of the protected ones. A virtual device has the name and sysfs paths of its
// real device, and 512 zero bytes after its ibv_device (stock providers look there). While a list
// or a context refers to the device, its address is the same in every list. NULL with errno: `real`
// still belongs to the caller.
ibv_device** device_list_wrap(ibv_device** real, int count) noexcept;
// Frees a list that device_list_wrap() returned, and the real list in it.
void device_list_free(ibv_device** list) noexcept;

// Whether the device or context is virtual. It is cheap, because it only compares addresses and
// never looks into the device. It may be called for any device or context that the program holds,
// on any thread, before init() and after the last close.
bool owns(const ibv_device* device) noexcept;
inline bool owns(const ibv_context* context) noexcept {
  return owns(context->device);
}

// The default NIC's device or context of a virtual one, for queries that concern only the NIC.
ibv_device* real_device(ibv_device* device) noexcept;
ibv_context* real_context(ibv_context* context) noexcept;
// The default NIC's objects of virtual ones. A caller may look into a real object, but may not work
// on it unless let_go() has returned true for the virtual one.
ibv_pd* real_pd(ibv_pd* pd) noexcept;  // returns an argument that is null or not virtual
ibv_cq* real_cq(ibv_cq* cq) noexcept;  // like real_pd()
ibv_srq* real_srq(ibv_srq* srq) noexcept;
ibv_qp* real_qp(ibv_qp* qp) noexcept;
// direct_verbs() is the value of SHIFT_DIRECT_VERBS; warn() writes a line to the log.
DirectVerbs direct_verbs() noexcept;
void warn(const char* line) noexcept;
// Ends the protection of the object for good; for a CQ, the protection of all QPs on it, and of QPs
// that will be made on it. False: the layer cannot let go of the object.
bool let_go(ibv_qp* qp) noexcept;
bool let_go(ibv_cq* cq) noexcept;
bool let_go(ibv_srq* srq) noexcept;

ibv_context* open_device(ibv_device* device) noexcept;
int close_device(ibv_context* context) noexcept;

int query_device(ibv_context* context, ibv_device_attr* attr) noexcept;
// Like verbs_context.query_port, it fills in at most attr_size bytes. The old exported
// ibv_query_port passes the short size.
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
// A thread may be cancelled in this function, as in get_async_event().
int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context);
void ack_cq_events(ibv_cq* cq, unsigned count) noexcept;

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* init) noexcept;
// Makes a QP that is not protected: `make` makes it of the NIC's own objects.
ibv_qp* create_unprotected_qp(ibv_context* context, ibv_qp_init_attr_ex* init, MakeQp make,
                              void* argument) noexcept;
ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp) noexcept;
int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) noexcept;
int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) noexcept;
int destroy_qp(ibv_qp* qp) noexcept;
// Whether faults of the QP's path are masked, as far as is known: the QP has not failed, and it was
// not found to have no peer that runs the layer. This function and has_left() take any address; for
// a QP that is destroyed or not virtual they return false.
bool is_protected(const ibv_qp* qp) noexcept;
// Whether is_protected() holds for any QP of this process on the context's device.
bool device_is_masked(ibv_context* context) noexcept;
// Whether the QP has ever left a path.
bool has_left(const ibv_qp* qp) noexcept;
// From here on the control thread calls `call` for each QP that has left a path once and whose peer
// has closed its QP, and for each QP that has failed.
void on_peer_gone(void (*call)(ibv_qp* qp)) noexcept;
int query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode opcode, uint32_t flags) noexcept;
int query_ece(ibv_qp* qp, ibv_ece* ece) noexcept;
int set_ece(ibv_qp* qp, ibv_ece* ece) noexcept;

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* init) noexcept;
int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) noexcept;
int query_srq(ibv_srq* srq, ibv_srq_attr* attr) noexcept;
int destroy_srq(ibv_srq* srq) noexcept;

// The carrier implements create_ah_from_wc by init_ah_from_wc on the real context and this
// function.
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) noexcept;
int destroy_ah(ibv_ah* ah) noexcept;
int attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) noexcept;
int detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) noexcept;

// The virtual context whose default NIC has this real context; nullptr: there is none. Objects that
// are not protected name the real context, but their events come through the virtual one.
ibv_context* context_above(const ibv_context* real) noexcept;
// Called before an unprotected object is destroyed: keeps the object's events back, and waits until
// the application has acknowledged those that it was given. False: there is no memory.
[[nodiscard]] bool keep_events_back(ibv_context* context, const void* object) noexcept;
// Called after that: the object could not be destroyed, and its events come again, or it was
// destroyed, and its events are dropped.
void let_events_come(ibv_context* context, const void* object) noexcept;
void forget_events(ibv_context* context, const void* object) noexcept;

// A thread may be cancelled in this function. Cancellation unwinds the stack, so the function is
// not noexcept.
int get_async_event(ibv_context* context, ibv_async_event* event);
// Acknowledges an event that names a CQ, QP, SRQ or WQ. Port and device events need no
// acknowledgement.
void ack_async_event(ibv_context* context, ibv_async_event* event) noexcept;

}  // namespace ops
}  // namespace shift
