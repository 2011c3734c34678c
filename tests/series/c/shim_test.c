/* The half of the in-tree carrier that speaks libibverbs' private interface (shim.c), against
 * stubs. */
/* cmocka wants these before it. */
/* clang-format off */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <infiniband/driver.h>
#include <infiniband/stack.h>
#include <string.h>

#include "carrier.h"

extern const struct verbs_device_ops* const registered_shift;

/* A virtual device has room behind it, as the core makes it. */
union room {
  struct ibv_device device;
  struct verbs_device verbs;
  char bytes[sizeof(struct ibv_device) + 512];
};

static union room stood_for[2], made[2];
static struct verbs_sysfs_dev sysfs[2];

const struct verbs_stack_ops shift_stack_ops;

bool shift_owns_device(const struct ibv_device* device) {
  return device == &made[0].device || device == &made[1].device;
}
struct ibv_device* shift_device_beneath(struct ibv_device* device) {
  return &stood_for[device == &made[1].device].device;
}

/* Every verb that shim.c names answers with its own number. */
#define VERB(result, name, ...) \
  result name(__VA_ARGS__) {    \
    called = #name;             \
    return (result)0;           \
  }
#define VOID_VERB(name, ...) \
  void name(__VA_ARGS__) {   \
    called = #name;          \
  }
static const char* called;
VERB(struct ibv_pd*, shift_alloc_pd, struct ibv_context* context)
VERB(int, shift_dealloc_pd, struct ibv_pd* pd)
VERB(struct ibv_pd*, shift_import_pd, struct ibv_context* context, uint32_t handle)
VOID_VERB(shift_unimport_pd, struct ibv_pd* pd)
VERB(struct ibv_mr*, shift_reg_dmabuf_mr, struct ibv_pd* pd, uint64_t offset, size_t length,
     uint64_t iova, int fd, int access)
VERB(struct ibv_mr*, shift_import_mr, struct ibv_pd* pd, uint32_t handle)
VOID_VERB(shift_unimport_mr, struct ibv_mr* mr)
VERB(struct ibv_dm*, shift_import_dm, struct ibv_context* context, uint32_t handle)
VOID_VERB(shift_unimport_dm, struct ibv_dm* dm)
VERB(int, shift_resize_cq, struct ibv_cq* cq, int cqe)
VERB(struct ibv_qp*, shift_create_qp, struct ibv_pd* pd, struct ibv_qp_init_attr* attr)
VERB(int, shift_modify_qp, struct ibv_qp* qp, struct ibv_qp_attr* attr, int mask)
VERB(int, shift_query_qp, struct ibv_qp* qp, struct ibv_qp_attr* attr, int mask,
     struct ibv_qp_init_attr* init)
VERB(int, shift_destroy_qp, struct ibv_qp* qp)
VERB(int, shift_query_qp_data_in_order, struct ibv_qp* qp, enum ibv_wr_opcode opcode,
     uint32_t flags)
VERB(int, shift_query_ece, struct ibv_qp* qp, struct ibv_ece* ece)
VERB(int, shift_set_ece, struct ibv_qp* qp, struct ibv_ece* ece)
VERB(int, shift_modify_srq, struct ibv_srq* srq, struct ibv_srq_attr* attr, int mask)
VERB(int, shift_query_srq, struct ibv_srq* srq, struct ibv_srq_attr* attr)
VERB(int, shift_destroy_srq, struct ibv_srq* srq)
VERB(int, shift_attach_mcast, struct ibv_qp* qp, const union ibv_gid* gid, uint16_t lid)
VERB(int, shift_detach_mcast, struct ibv_qp* qp, const union ibv_gid* gid, uint16_t lid)
VERB(int, shift_query_device_ex, struct ibv_context* context,
     const struct ibv_query_device_ex_input* input, struct ibv_device_attr_ex* attr, size_t size)
VERB(int, shift_query_port, struct ibv_context* context, uint8_t port, struct ibv_port_attr* attr)

/* A mistake in the table would give one verb's arguments to another. */
static void verbs_go_to_their_functions(void** state) {
  const struct verbs_context_ops* ops = &shift_context_ops;
#define GOES(name, ...)                          \
  do {                                           \
    called = NULL;                               \
    assert_non_null(ops->name);                  \
    ops->name(__VA_ARGS__);                      \
    assert_string_equal(called, "shift_" #name); \
  } while (0)
  GOES(alloc_pd, NULL);
  GOES(dealloc_pd, NULL);
  GOES(import_pd, NULL, 0);
  GOES(unimport_pd, NULL);
  GOES(reg_dmabuf_mr, NULL, 0, 0, 0, 0, 0);
  GOES(import_mr, NULL, 0);
  GOES(unimport_mr, NULL);
  GOES(import_dm, NULL, 0);
  GOES(unimport_dm, NULL);
  GOES(resize_cq, NULL, 0);
  GOES(create_qp, NULL, NULL);
  GOES(modify_qp, NULL, NULL, 0);
  GOES(query_qp, NULL, NULL, 0, NULL);
  GOES(destroy_qp, NULL);
  GOES(query_qp_data_in_order, NULL, IBV_WR_SEND, 0);
  GOES(query_ece, NULL, NULL);
  GOES(set_ece, NULL, NULL);
  GOES(modify_srq, NULL, NULL, 0);
  GOES(query_srq, NULL, NULL);
  GOES(destroy_srq, NULL);
  GOES(attach_mcast, NULL, NULL, 0);
  GOES(detach_mcast, NULL, NULL, 0);
  GOES(query_device_ex, NULL, NULL, NULL, 0);
  GOES(query_port, NULL, 1, NULL);
}

/* libibverbs asks each provider whether a kernel device is its own, by the table and by function.
 */
static void no_kernel_device_is_taken(void** state) {
  assert_ptr_equal(registered_shift->stack, &shift_stack_ops);
  assert_non_null(registered_shift->match_table);
  assert_int_equal(registered_shift->match_table[0].kind, 0);
  assert_false(registered_shift->match_device(&sysfs[0]));
  assert_null(registered_shift->alloc_device(&sysfs[0]));
  errno = 0;
  assert_null(registered_shift->alloc_context(&made[0].device, -1, NULL));
  assert_int_equal(errno, EOPNOTSUPP);
}

static void virtual_devices_become_stacked_ones(void** state) {
  struct ibv_device* list[] = {&made[0].device, &stood_for[1].device, NULL};
  char before[sizeof stood_for[1]];

  memset(made, 0, sizeof made);
  stood_for[0].verbs.sysfs = &sysfs[0];
  stood_for[0].verbs.core_support = 5;
  memcpy(before, &stood_for[1], sizeof before);
  shift_devices_adopt(list);
  assert_ptr_equal(made[0].verbs.ops, registered_shift);
  assert_ptr_equal(made[0].verbs.sysfs, &sysfs[0]);
  assert_int_equal(made[0].verbs.core_support, 5);
  assert_int_equal(atomic_load(&made[0].verbs.refcount), 1);
  assert_memory_equal(before, &stood_for[1], sizeof before);

  /* A later list has another struct for the device, and references count on. */
  atomic_store(&made[0].verbs.refcount, 3);
  stood_for[0].verbs.sysfs = &sysfs[1];
  shift_devices_adopt(list);
  assert_ptr_equal(made[0].verbs.sysfs, &sysfs[1]);
  assert_int_equal(atomic_load(&made[0].verbs.refcount), 3);
}

static struct verbs_context imported;
static struct verbs_context* import_by(struct ibv_device* device, int cmd_fd) {
  assert_ptr_equal(device, &stood_for[1].device);
  assert_int_equal(cmd_fd, 7);
  return &imported;
}

static void contexts_are_imported_beneath(void** state) {
  const struct verbs_device_ops can = {.import_context = import_by}, cannot = {.name = "cannot"};

  stood_for[1].verbs.ops = &can;
  assert_ptr_equal(registered_shift->import_context(&made[1].device, 7), &imported);
  stood_for[1].verbs.ops = &cannot;
  errno = 0;
  assert_null(registered_shift->import_context(&made[1].device, 7));
  assert_int_equal(errno, EOPNOTSUPP);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(verbs_go_to_their_functions),
      cmocka_unit_test(no_kernel_device_is_taken),
      cmocka_unit_test(virtual_devices_become_stacked_ones),
      cmocka_unit_test(contexts_are_imported_beneath),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
