/* What shim.c and stack.c use of libibverbs' header for providers, in our own words, for tests. */
#ifndef TEST_DRIVER_H
#define TEST_DRIVER_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct verbs_sysfs_dev {
  int number;
};

struct verbs_match_ent {
  int kind;
};

struct verbs_stack_ops;
struct verbs_device;

struct verbs_device_ops {
  const char* name;
  uint32_t match_min_abi_version, match_max_abi_version;
  const struct verbs_match_ent* match_table;
  bool (*match_device)(struct verbs_sysfs_dev* sysfs);
  struct verbs_device* (*alloc_device)(struct verbs_sysfs_dev* sysfs);
  void (*uninit_device)(struct verbs_device* device);
  struct verbs_context* (*alloc_context)(struct ibv_device* device, int cmd_fd, void* data);
  struct verbs_context* (*import_context)(struct ibv_device* device, int cmd_fd);
  const struct verbs_stack_ops* stack;
};

struct verbs_device {
  struct ibv_device device;
  const struct verbs_device_ops* ops;
  atomic_int refcount;
  struct verbs_sysfs_dev* sysfs;
  uint64_t core_support;
};

static inline struct verbs_device* verbs_get_device(const struct ibv_device* device) {
  return (struct verbs_device*)(uintptr_t)device;
}

/* Verbs that the shim gives to libibverbs; each is a pointer to a function. */
struct verbs_context_ops {
  struct ibv_pd* (*alloc_pd)(struct ibv_context*);
  int (*attach_mcast)(struct ibv_qp*, const union ibv_gid*, uint16_t);
  struct ibv_qp* (*create_qp)(struct ibv_pd*, struct ibv_qp_init_attr*);
  int (*dealloc_pd)(struct ibv_pd*);
  int (*destroy_qp)(struct ibv_qp*);
  int (*destroy_srq)(struct ibv_srq*);
  int (*detach_mcast)(struct ibv_qp*, const union ibv_gid*, uint16_t);
  struct ibv_dm* (*import_dm)(struct ibv_context*, uint32_t);
  struct ibv_mr* (*import_mr)(struct ibv_pd*, uint32_t);
  struct ibv_pd* (*import_pd)(struct ibv_context*, uint32_t);
  int (*modify_qp)(struct ibv_qp*, struct ibv_qp_attr*, int);
  int (*modify_srq)(struct ibv_srq*, struct ibv_srq_attr*, int);
  int (*query_device_ex)(struct ibv_context*, const struct ibv_query_device_ex_input*,
                         struct ibv_device_attr_ex*, size_t);
  int (*query_ece)(struct ibv_qp*, struct ibv_ece*);
  int (*query_port)(struct ibv_context*, uint8_t, struct ibv_port_attr*);
  int (*query_qp)(struct ibv_qp*, struct ibv_qp_attr*, int, struct ibv_qp_init_attr*);
  int (*query_qp_data_in_order)(struct ibv_qp*, enum ibv_wr_opcode, uint32_t);
  int (*query_srq)(struct ibv_srq*, struct ibv_srq_attr*);
  struct ibv_mr* (*reg_dmabuf_mr)(struct ibv_pd*, uint64_t, size_t, uint64_t, int, int);
  int (*resize_cq)(struct ibv_cq*, int);
  int (*set_ece)(struct ibv_qp*, struct ibv_ece*);
  void (*unimport_dm)(struct ibv_dm*);
  void (*unimport_mr)(struct ibv_mr*);
  void (*unimport_pd)(struct ibv_pd*);
};

/* The test looks at what a provider registers. */
#define PROVIDER_DRIVER(name, ops) const struct verbs_device_ops* const registered_##name = &(ops)

#endif
