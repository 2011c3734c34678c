// Exported verbs on queue pairs and shared receive queues.
#include "destroy_stock.h"
#include "stock.h"

using shift::front::stock;
namespace ops = shift::ops;

SHIFT_EXPORT ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  return ops::owns(pd->context) ? ops::create_qp(pd, init) : stock.create_qp(pd, init);
}

SHIFT_EXPORT ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  return ops::owns(qp->context) ? ops::qp_to_qp_ex(qp) : stock.qp_to_qp_ex(qp);
}

SHIFT_EXPORT int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  return ops::owns(qp->context) ? ops::modify_qp(qp, attr, mask) : stock.modify_qp(qp, attr, mask);
}

SHIFT_EXPORT int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
  return ops::owns(qp->context) ? ops::query_qp(qp, attr, mask, init)
                                : stock.query_qp(qp, attr, mask, init);
}

SHIFT_EXPORT int ibv_destroy_qp(ibv_qp* qp) {
  return ops::owns(qp->context) ? ops::destroy_qp(qp)
                                : shift::front::destroy_stock(qp, stock.destroy_qp);
}

// Not a verb: the front of librdmacm asks whether faults of this QP's path are hidden. An
// rdma_cm_id keeps its QP's address for ever, and the program may have destroyed the QP, so the
// address is compared and never dereferenced.
SHIFT_EXPORT bool shift_qp_is_protected(ibv_qp* qp) {
  return ops::is_protected(qp);
}

// For the front of librdmacm: the QP has left a path, so the kernel's event about its connection
// may come late or never.
SHIFT_EXPORT bool shift_qp_has_left(ibv_qp* qp) {
  return ops::has_left(qp);
}

// For the front of librdmacm: this process has a protected QP on that device.
SHIFT_EXPORT bool shift_device_is_masked(ibv_context* context) {
  return ops::owns(context) && ops::device_is_masked(context);
}

// For the front of librdmacm; see ops/glue.h.
SHIFT_EXPORT void shift_on_peer_gone(void (*call)(ibv_qp* qp)) {
  ops::on_peer_gone(call);
}

SHIFT_EXPORT int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode opcode, uint32_t flags) {
  return ops::owns(qp->context) ? ops::query_qp_data_in_order(qp, opcode, flags)
                                : stock.query_qp_data_in_order(qp, opcode, flags);
}

SHIFT_EXPORT int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
  return ops::owns(qp->context) ? ops::query_ece(qp, ece) : stock.query_ece(qp, ece);
}

SHIFT_EXPORT int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
  return ops::owns(qp->context) ? ops::set_ece(qp, ece) : stock.set_ece(qp, ece);
}

SHIFT_EXPORT int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return ops::owns(qp->context) ? ops::attach_mcast(qp, gid, lid)
                                : stock.attach_mcast(qp, gid, lid);
}

SHIFT_EXPORT int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  return ops::owns(qp->context) ? ops::detach_mcast(qp, gid, lid)
                                : stock.detach_mcast(qp, gid, lid);
}

SHIFT_EXPORT ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* init) {
  return ops::owns(pd->context) ? ops::create_srq(pd, init) : stock.create_srq(pd, init);
}

SHIFT_EXPORT int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  return ops::owns(srq->context) ? ops::modify_srq(srq, attr, mask)
                                 : stock.modify_srq(srq, attr, mask);
}

SHIFT_EXPORT int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  return ops::owns(srq->context) ? ops::query_srq(srq, attr) : stock.query_srq(srq, attr);
}

SHIFT_EXPORT int ibv_destroy_srq(ibv_srq* srq) {
  return ops::owns(srq->context) ? ops::destroy_srq(srq)
                                 : shift::front::destroy_stock(srq, stock.destroy_srq);
}
