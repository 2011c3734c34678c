/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the two halves of the in-tree carrier know of each other: shim.c, which
 * speaks libibverbs' private interface for providers, and carrier.cc, which
 * speaks C++ with the core (ops/glue.h). Everything here is plain C on public
 * types.
 */
#ifndef SHIFT_CARRIER_H
#define SHIFT_CARRIER_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct verbs_context_ops;
struct verbs_stack_ops;

/* In carrier.cc. */
extern const struct verbs_stack_ops shift_stack_ops;
/* Whether the layer is in use in this process; the first call decides. */
bool shift_is_on(void);
bool shift_owns_device(const struct ibv_device *device);
struct ibv_device *shift_device_beneath(struct ibv_device *device);

/* In shim.c. */
extern const struct verbs_context_ops shift_context_ops;
/* Makes stacked devices of those in the list that are virtual. */
void shift_devices_adopt(struct ibv_device **list);

/* The verbs of virtual objects, with the arguments that libibverbs gives to
 * providers. In carrier.cc.
 */
struct ibv_pd *shift_alloc_pd(struct ibv_context *context);
int shift_dealloc_pd(struct ibv_pd *pd);
struct ibv_pd *shift_import_pd(struct ibv_context *context, uint32_t handle);
void shift_unimport_pd(struct ibv_pd *pd);
struct ibv_mr *shift_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				   size_t length, uint64_t iova, int fd,
				   int access);
struct ibv_mr *shift_import_mr(struct ibv_pd *pd, uint32_t handle);
void shift_unimport_mr(struct ibv_mr *mr);
struct ibv_dm *shift_import_dm(struct ibv_context *context, uint32_t handle);
void shift_unimport_dm(struct ibv_dm *dm);
int shift_resize_cq(struct ibv_cq *cq, int cqe);
struct ibv_qp *shift_create_qp(struct ibv_pd *pd,
			       struct ibv_qp_init_attr *attr);
int shift_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int shift_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		   struct ibv_qp_init_attr *init);
int shift_destroy_qp(struct ibv_qp *qp);
int shift_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode opcode,
				 uint32_t flags);
int shift_query_ece(struct ibv_qp *qp, struct ibv_ece *ece);
int shift_set_ece(struct ibv_qp *qp, struct ibv_ece *ece);
int shift_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int shift_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int shift_destroy_srq(struct ibv_srq *srq);
int shift_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid,
		       uint16_t lid);
int shift_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid,
		       uint16_t lid);
int shift_query_device_ex(struct ibv_context *context,
			  const struct ibv_query_device_ex_input *input,
			  struct ibv_device_attr_ex *attr, size_t size);
int shift_query_port(struct ibv_context *context, uint8_t port,
		     struct ibv_port_attr *attr);

#ifdef __cplusplus
}
#endif

#endif
