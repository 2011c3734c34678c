// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ibverbs.h"
#include "stacked.h"

/* Set while providers are loaded, before the first device list is returned. */
static const struct verbs_stack_ops *registered;
/* What all stacked contexts have in common: the table of their verbs. */
static struct verbs_ex_private stacked_private;

bool verbs_stack_is_configured(void)
{
	struct dirent *entry;
	bool found = false;
	size_t length;
	DIR *dir;

	dir = opendir(IBV_CONFIG_DIR);
	if (!dir)
		return false;
	while (!found && (entry = readdir(dir))) {
		length = strlen(entry->d_name);
		found = length > strlen(".stack") &&
			!strcmp(entry->d_name + length - strlen(".stack"), ".stack");
	}
	closedir(dir);
	return found;
}

void verbs_stack_register(const struct verbs_stack_ops *ops)
{
	struct verbs_context scratch = {};

	if (registered) {
		fprintf(stderr,
			PFX "Warning: a second provider of stacked devices is ignored\n");
		return;
	}
	/* verbs_set_ops() fills tables of the context, too; those stay here. */
	scratch.sz = sizeof(scratch);
	scratch.priv = &stacked_private;
	verbs_set_ops(&scratch, &verbs_dummy_ops);
	verbs_set_ops(&scratch, ops->context_ops);
	registered = ops;
}

const struct verbs_stack_ops *
verbs_device_stack(const struct ibv_device *device)
{
	/* A device that another library has made has no operations. */
	const struct verbs_device_ops *ops = verbs_get_device(device)->ops;

	return ops ? ops->stack : NULL;
}

/*
 * The lists that the provider has made. Others come back as well: lists from
 * before the provider was loaded, and lists that another library makes.
 */
struct wrapped_list {
	struct list_node entry;
	struct ibv_device **list;
};
static LIST_HEAD(wrapped_lists);
static pthread_mutex_t wrapped_lock = PTHREAD_MUTEX_INITIALIZER;

struct ibv_device **verbs_stack_wrap(struct ibv_device **list)
{
	struct wrapped_list *wrapped;
	int count = 0;
	int err;

	if (!registered || !list)
		return list;
	while (list[count])
		count++;
	wrapped = malloc(sizeof(*wrapped));
	if (!wrapped) {
		errno = ENOMEM;
		goto err_list;
	}
	wrapped->list = registered->wrap_list(list, count);
	if (!wrapped->list)
		goto err_wrapped;
	pthread_mutex_lock(&wrapped_lock);
	list_add(&wrapped_lists, &wrapped->entry);
	pthread_mutex_unlock(&wrapped_lock);
	return wrapped->list;

err_wrapped:
	err = errno;
	free(wrapped);
	errno = err;
err_list:
	err = errno;
	for (count = 0; list[count]; count++)
		ibverbs_device_put(list[count]);
	free(list);
	errno = err;
	return NULL;
}

/* Forgets the list. False: it is none of the provider's. */
static bool forget_wrapped(struct ibv_device **list)
{
	struct wrapped_list *wrapped;
	bool found = false;

	pthread_mutex_lock(&wrapped_lock);
	list_for_each(&wrapped_lists, wrapped, entry) {
		found = wrapped->list == list;
		if (found) {
			list_del(&wrapped->entry);
			free(wrapped);
			break;
		}
	}
	pthread_mutex_unlock(&wrapped_lock);
	return found;
}

struct ibv_device **verbs_stack_unwrap(struct ibv_device **list)
{
	return forget_wrapped(list) ? registered->unwrap_list(list) : list;
}

struct ibv_context *verbs_stack_open(struct ibv_device *device)
{
	struct ibv_context *context;

	context = verbs_device_stack(device)->open_device(device);
	/* The provider may return a context of the device beneath. */
	if (context && verbs_stack_of(context))
		verbs_get_ctx(context)->priv = &stacked_private;
	return context;
}

/* NULL: the event is one of a port or of the device. */
static struct ibv_context *named_context(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return event->element.cq->context;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return event->element.qp->context;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return event->element.srq->context;
	case IBV_EVENT_WQ_FATAL:
		return event->element.wq->context;
	default:
		return NULL;
	}
}

bool verbs_stack_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_context *context;

	if (!registered)
		return false;
	context = named_context(event);
	return context && registered->ack_async_event(context, event);
}

bool verbs_stack_is_there(void)
{
	return registered;
}

int verbs_stack_destroy_qp(struct ibv_qp *qp)
{
	struct ibv_context *context = qp->context;
	int ret;

	ret = registered->destroy_begin(context, qp);
	if (ret)
		return ret;
	ret = get_ops(context)->destroy_qp(qp);
	registered->destroy_end(context, qp, ret);
	return ret;
}

int verbs_stack_destroy_srq(struct ibv_srq *srq)
{
	struct ibv_context *context = srq->context;
	int ret;

	ret = registered->destroy_begin(context, srq);
	if (ret)
		return ret;
	ret = get_ops(context)->destroy_srq(srq);
	registered->destroy_end(context, srq, ret);
	return ret;
}
