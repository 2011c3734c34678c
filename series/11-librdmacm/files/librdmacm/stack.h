/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * How librdmacm reaches a provider of stacked devices (cm_stack.h). The
 * exported functions that such a provider may stand in front of are in
 * stack.c, and what they do by themselves is here under other names.
 */
#ifndef UCMA_STACK_H
#define UCMA_STACK_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* For each device that librdmacm gets to know, under its lock. */
void ucma_find_stack(struct ibv_device *device);

/* rdma_get_cm_event() for librdmacm itself. */
int ucma_await_event(struct rdma_event_channel *channel,
		     struct rdma_cm_event **event);

/* In cma.c. */
int ucma_get_cm_event(struct rdma_event_channel *channel,
		      struct rdma_cm_event **event);
int ucma_ack_cm_event(struct rdma_cm_event *event);
int ucma_disconnect(struct rdma_cm_id *id);
int ucma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel);
int ucma_destroy_id(struct rdma_cm_id *id);
void ucma_destroy_ep(struct rdma_cm_id *id);

#endif
