// The functions in the tables of a virtual context, its QPs and its CQs (context.cc fills in the
// context's table). They are verbs that the front exports no function for.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace shift::ops {

// Hot functions (post.cc, poll.cc).
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
// In a mode that asks the peer's responder.
int post_send_counted(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
// If the layer can read the NIC's own queues.
int post_send_noted(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
int post_send_noted_counted(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
int post_recv_noted(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int poll_cq(ibv_cq* cq, int count, ibv_wc* wc);
int req_notify_cq(ibv_cq* cq, int solicited_only);
int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr);
int next_poll(ibv_cq_ex* cq);
void end_poll(ibv_cq_ex* cq);

// Extended verbs of a virtual context, and classic verbs that are called through its table.
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* init);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* init);
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) noexcept;
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* init) noexcept;
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned access) noexcept;
ibv_mr* alloc_null_mr(ibv_pd* pd) noexcept;
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* sges,
              uint32_t count) noexcept;
int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* attr) noexcept;
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) noexcept;
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) noexcept;
int dealloc_mw(ibv_mw* mw) noexcept;
// Fills in the verbs that make objects which the layer does not protect (stock_objects.cc).
void install_stock_objects(verbs_context& verbs);
// Fills in the queries about the device (device_queries.cc).
void install_queries(verbs_context& verbs);

}  // namespace shift::ops
