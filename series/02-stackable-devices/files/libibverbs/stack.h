/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Stacked devices: devices that a provider puts into the device list in the
 * place of other devices, and that stand for one or more of them.
 *
 * A stacked device is a struct verbs_device like any other, but its provider
 * made it, and there is no kernel device of its own beneath it. Calls on its
 * objects reach the provider in two ways. Verbs that libibverbs hands to the
 * provider as a whole go through context_ops, as with every provider. Verbs
 * that libibverbs does itself, wholly or in part, because it knows the kernel
 * device or the layout of the object, go through the other members here.
 *
 * A function of struct verbs_stack_ops has the arguments, the result and the
 * errors of the verb of its name.
 */
#ifndef INFINIBAND_STACK_H
#define INFINIBAND_STACK_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct verbs_context_ops;

struct verbs_stack_ops {
	/* Verbs that are missing here answer EOPNOTSUPP. */
	const struct verbs_context_ops *context_ops;

	/*
	 * Takes a NULL terminated list of devices and returns the one that the
	 * application gets, with stacked devices in the places of some. It may
	 * be the same list. On failure it returns NULL, sets errno, and the
	 * list still belongs to the caller. It is called without locks.
	 */
	struct ibv_device **(*wrap_list)(struct ibv_device **list, int count);
	/*
	 * Frees what wrap_list has made, and returns the list that was given
	 * to it. NULL: the devices of that list are still in use, so that it
	 * stays for the rest of the process.
	 */
	struct ibv_device **(*unwrap_list)(struct ibv_device **list);

	struct ibv_context *(*open_device)(struct ibv_device *device);
	int (*close_device)(struct ibv_context *context);
	int (*get_async_event)(struct ibv_context *context,
			       struct ibv_async_event *event);
	/*
	 * The event may name an object of a device beneath a stacked one.
	 * False: it came from that device, and libibverbs acknowledges it.
	 */
	bool (*ack_async_event)(struct ibv_context *context,
				struct ibv_async_event *event);

	int (*query_gid)(struct ibv_context *context, uint8_t port_num,
			 int index, union ibv_gid *gid);
	int (*query_gid_ex)(struct ibv_context *context, uint32_t port_num,
			    uint32_t gid_index, struct ibv_gid_entry *entry,
			    uint32_t flags, size_t entry_size);
	ssize_t (*query_gid_table)(struct ibv_context *context,
				   struct ibv_gid_entry *entries,
				   size_t max_entries, uint32_t flags,
				   size_t entry_size);

	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t length,
				 uint64_t iova, unsigned int access);
	int (*rereg_mr)(struct ibv_mr *mr, int flags, struct ibv_pd *pd,
			void *addr, size_t length, int access);
	int (*dereg_mr)(struct ibv_mr *mr);

	struct ibv_comp_channel *(*create_comp_channel)(
		struct ibv_context *context);
	int (*destroy_comp_channel)(struct ibv_comp_channel *channel);
	struct ibv_cq *(*create_cq)(struct ibv_context *context, int cqe,
				    void *cq_context,
				    struct ibv_comp_channel *channel,
				    int comp_vector);
	int (*destroy_cq)(struct ibv_cq *cq);
	int (*get_cq_event)(struct ibv_comp_channel *channel,
			    struct ibv_cq **cq, void **cq_context);
	void (*ack_cq_events)(struct ibv_cq *cq, unsigned int nevents);
	struct ibv_srq *(*create_srq)(struct ibv_pd *pd,
				      struct ibv_srq_init_attr *attr);
	struct ibv_qp_ex *(*qp_to_qp_ex)(struct ibv_qp *qp);
	/* The AH may be one of a device beneath, and name its context. */
	struct ibv_ah *(*create_ah)(struct ibv_pd *pd,
				    struct ibv_ah_attr *attr);

	/*
	 * A QP or SRQ of a context is about to be destroyed. If the context is
	 * beneath a stacked one, events of the object may have been read from
	 * it that the application has not acknowledged yet: begin waits for
	 * that, and returns 0 or an errno. end is told the result.
	 */
	int (*destroy_begin)(struct ibv_context *context, const void *object);
	void (*destroy_end)(struct ibv_context *context, const void *object,
			    int result);
};

#endif
