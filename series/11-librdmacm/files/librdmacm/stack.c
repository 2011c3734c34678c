// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#define _GNU_SOURCE
#include <config.h>

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <rdma/cm_stack.h>

#include "stack.h"

#define NAME_OF(function, pabi) #function "_" NAME_OF_NUMBER(pabi)
#define NAME_OF_NUMBER(number) #number

static const struct rdma_cm_functions beneath = {
	.get_cm_event = ucma_get_cm_event,
	.ack_cm_event = ucma_ack_cm_event,
	.disconnect = ucma_disconnect,
	.migrate_id = ucma_migrate_id,
	.destroy_id = ucma_destroy_id,
	.destroy_ep = ucma_destroy_ep,
};

/* Set once, when a list of devices is read: before there is an id of one. */
static _Atomic(const struct rdma_cm_stack_ops *) stack;

/*
 * librdmacm may be of another release than libibverbs, and must not look into
 * private structures of a libibverbs that has others. So it asks by a
 * function with the number of those structures in its name. A libibverbs that
 * has no such function has no stacks for this librdmacm, and one that is
 * linked statically has none at all.
 */
void ucma_find_stack(struct ibv_device *device)
{
	static const char name[] =
		NAME_OF(verbs_stack_cm, IBVERBS_PABI_VERSION);
	static const struct rdma_cm_stack_ops *(*stack_of)(
		const struct ibv_device *device);
	static bool asked;

	if (!asked) {
		stack_of = dlsym(RTLD_DEFAULT, name);
		asked = true;
	}
	if (stack_of && !atomic_load(&stack))
		atomic_store(&stack, stack_of(device));
}

static int get_event(struct rdma_event_channel *channel,
		     struct rdma_cm_event **event, bool by_librdmacm)
{
	const struct rdma_cm_stack_ops *ops = atomic_load(&stack);

	if (!ops)
		return ucma_get_cm_event(channel, event);
	return ops->get_cm_event(&beneath, channel, event, by_librdmacm);
}

int ucma_await_event(struct rdma_event_channel *channel,
		     struct rdma_cm_event **event)
{
	return get_event(channel, event, true);
}

int rdma_get_cm_event(struct rdma_event_channel *channel,
		      struct rdma_cm_event **event)
{
	return get_event(channel, event, false);
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	const struct rdma_cm_stack_ops *ops = atomic_load(&stack);

	return ops ? ops->ack_cm_event(&beneath, event) :
		     ucma_ack_cm_event(event);
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	const struct rdma_cm_stack_ops *ops = atomic_load(&stack);

	return ops ? ops->disconnect(&beneath, id) : ucma_disconnect(id);
}

int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	const struct rdma_cm_stack_ops *ops = atomic_load(&stack);

	return ops ? ops->migrate_id(&beneath, id, channel) :
		     ucma_migrate_id(id, channel);
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	const struct rdma_cm_stack_ops *ops = atomic_load(&stack);

	return ops ? ops->destroy_id(&beneath, id) : ucma_destroy_id(id);
}

void rdma_destroy_ep(struct rdma_cm_id *id)
{
	const struct rdma_cm_stack_ops *ops = atomic_load(&stack);

	if (ops)
		ops->destroy_ep(&beneath, id);
	else
		ucma_destroy_ep(id);
}
