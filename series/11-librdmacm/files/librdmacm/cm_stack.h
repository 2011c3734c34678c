/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What librdmacm asks a provider of stacked devices (infiniband/stack.h).
 *
 * An id belongs to a stacked device as it does to any other. But a device
 * that stands for several can outlive the one whose addresses the kernel's
 * connection manager has agreed on, and then the kernel's word about a
 * connection is not the last. So a provider may stand in front of the calls
 * that deal with events of connections, and with the end of one.
 */
#ifndef RDMA_CM_STACK_H
#define RDMA_CM_STACK_H

#include <stdbool.h>

struct rdma_cm_event;
struct rdma_cm_id;
struct rdma_event_channel;

/* What librdmacm does where there is no stack. */
struct rdma_cm_functions {
	int (*get_cm_event)(struct rdma_event_channel *channel,
			    struct rdma_cm_event **event);
	int (*ack_cm_event)(struct rdma_cm_event *event);
	int (*disconnect)(struct rdma_cm_id *id);
	int (*migrate_id)(struct rdma_cm_id *id,
			  struct rdma_event_channel *channel);
	int (*destroy_id)(struct rdma_cm_id *id);
	void (*destroy_ep)(struct rdma_cm_id *id);
};

/*
 * Each function has the result and the errors of the call of its name, for
 * ids and channels of all devices, stacked or not. `beneath` is what it
 * calls to have the work done. Calls that librdmacm makes within that work,
 * such as the one for the event that a synchronous id waits for, come here
 * like those of the application.
 */
struct rdma_cm_stack_ops {
	/*
	 * by_librdmacm: the event is for librdmacm, which acts for an id that
	 * has no channel of the application's. A caller whose channel was
	 * readable must get an event, even if it is one without meaning.
	 */
	int (*get_cm_event)(const struct rdma_cm_functions *beneath,
			    struct rdma_event_channel *channel,
			    struct rdma_cm_event **event, bool by_librdmacm);
	/* The event may be one that the provider has made. */
	int (*ack_cm_event)(const struct rdma_cm_functions *beneath,
			    struct rdma_cm_event *event);
	int (*disconnect)(const struct rdma_cm_functions *beneath,
			  struct rdma_cm_id *id);
	int (*migrate_id)(const struct rdma_cm_functions *beneath,
			  struct rdma_cm_id *id,
			  struct rdma_event_channel *channel);
	int (*destroy_id)(const struct rdma_cm_functions *beneath,
			  struct rdma_cm_id *id);
	void (*destroy_ep)(const struct rdma_cm_functions *beneath,
			   struct rdma_cm_id *id);
};

#endif
