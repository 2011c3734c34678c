// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * SHIFT as a provider of stacked devices. This is the only file that includes
 * libibverbs' private headers: everything else of the provider is written
 * against the public verbs alone.
 */
#include <infiniband/driver.h>
#include <infiniband/stack.h>

#include "carrier.h"

const struct verbs_context_ops shift_context_ops = {
	.alloc_pd = shift_alloc_pd,
	.attach_mcast = shift_attach_mcast,
	.create_qp = shift_create_qp,
	.dealloc_pd = shift_dealloc_pd,
	.destroy_qp = shift_destroy_qp,
	.destroy_srq = shift_destroy_srq,
	.detach_mcast = shift_detach_mcast,
	.import_dm = shift_import_dm,
	.import_mr = shift_import_mr,
	.import_pd = shift_import_pd,
	.modify_qp = shift_modify_qp,
	.modify_srq = shift_modify_srq,
	.query_device_ex = shift_query_device_ex,
	.query_ece = shift_query_ece,
	.query_port = shift_query_port,
	.query_qp = shift_query_qp,
	.query_qp_data_in_order = shift_query_qp_data_in_order,
	.query_srq = shift_query_srq,
	.reg_dmabuf_mr = shift_reg_dmabuf_mr,
	.resize_cq = shift_resize_cq,
	.set_ece = shift_set_ece,
	.unimport_dm = shift_unimport_dm,
	.unimport_mr = shift_unimport_mr,
	.unimport_pd = shift_unimport_pd,
};

/* No kernel device is this provider's own: it gets none to match. */
static bool match_none(struct verbs_sysfs_dev *sysfs_dev)
{
	return false;
}

static struct verbs_device *alloc_none(struct verbs_sysfs_dev *sysfs_dev)
{
	return NULL;
}

static void uninit_none(struct verbs_device *device)
{
}

/* libibverbs opens stacked devices by verbs_stack_ops. */
static struct verbs_context *alloc_no_context(struct ibv_device *device,
					      int cmd_fd, void *private_data)
{
	errno = EOPNOTSUPP;
	return NULL;
}

/*
 * A context that another process has opened may or may not be protected
 * there; here it is one of the device beneath.
 */
static struct verbs_context *import_beneath(struct ibv_device *device,
					    int cmd_fd)
{
	struct ibv_device *beneath = shift_device_beneath(device);
	const struct verbs_device_ops *ops = verbs_get_device(beneath)->ops;

	if (!ops->import_context) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return ops->import_context(beneath, cmd_fd);
}

static const struct verbs_match_ent no_matches[] = { {} };

static const struct verbs_device_ops shift_device_ops = {
	.name = "shift",
	.match_min_abi_version = 0,
	.match_max_abi_version = INT_MAX,
	.match_table = no_matches,
	.match_device = match_none,
	.alloc_device = alloc_none,
	.uninit_device = uninit_none,
	.alloc_context = alloc_no_context,
	.import_context = import_beneath,
	.stack = &shift_stack_ops,
};

/*
 * The core keeps room behind each virtual ibv_device for what libibverbs
 * keeps there. Virtual devices live as long as the process, so nobody counts
 * their references. What sysfs says of them is what it says of the device
 * beneath. Other threads may read the fields, so they are only written when
 * they change, which is rare.
 */
void shift_devices_adopt(struct ibv_device **list)
{
	struct verbs_device *device, *beneath;

	for (; *list; list++) {
		if (!shift_owns_device(*list))
			continue;
		device = verbs_get_device(*list);
		beneath = verbs_get_device(shift_device_beneath(*list));
		if (device->sysfs != beneath->sysfs)
			device->sysfs = beneath->sysfs;
		if (device->core_support != beneath->core_support)
			device->core_support = beneath->core_support;
		if (device->ops != &shift_device_ops) {
			atomic_init(&device->refcount, 1);
			device->ops = &shift_device_ops;
		}
	}
}

PROVIDER_DRIVER(shift, shift_device_ops);
