/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* How libibverbs reaches the provider of stacked devices (see stack.h). */
#ifndef IB_STACKED_H
#define IB_STACKED_H

#include <infiniband/stack.h>

/*
 * Whether a provider of stacked devices is installed: a file NAME.stack lies
 * beside its NAME.driver. Providers are otherwise loaded only while a device
 * has none, which never happens in a program that is linked with the provider
 * of all its devices.
 */
bool verbs_stack_is_configured(void);

/*
 * The provider registers once, when it is loaded. There is one of them: what
 * a stack of stacks would mean for events and lists is not defined.
 */
void verbs_stack_register(const struct verbs_stack_ops *ops);

/* The functions of a stacked device or context; NULL for all others. */
const struct verbs_stack_ops *
verbs_device_stack(const struct ibv_device *device);
static inline const struct verbs_stack_ops *
verbs_stack_of(const struct ibv_context *context)
{
	return verbs_device_stack(context->device);
}

/*
 * The list for the application, from a list of the kernel's devices, which
 * is freed on failure. A NULL list stays one.
 */
struct ibv_device **verbs_stack_wrap(struct ibv_device **list);
/* Back again; NULL: nothing is to be freed. */
struct ibv_device **verbs_stack_unwrap(struct ibv_device **list);

struct ibv_context *verbs_stack_open(struct ibv_device *device);
/* True: the provider of stacked devices has acknowledged the event. */
bool verbs_stack_ack_async_event(struct ibv_async_event *event);

/* Whether destroying objects concerns anybody but their own provider. */
bool verbs_stack_is_there(void);
int verbs_stack_destroy_qp(struct ibv_qp *qp);
int verbs_stack_destroy_srq(struct ibv_srq *srq);

#endif
