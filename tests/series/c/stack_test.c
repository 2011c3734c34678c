/* What the series adds to libibverbs for stacked devices (stack.c), against stubs. */
/* cmocka wants these before it. */
/* clang-format off */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ibverbs.h"
#include "stacked.h"

static int refuse_pd(struct ibv_pd* pd) {
  return EOPNOTSUPP;
}
static int refuse_qp(struct ibv_qp* qp) {
  return EOPNOTSUPP;
}
const struct verbs_context_ops verbs_dummy_ops = {.dealloc_pd = refuse_pd, .destroy_qp = refuse_qp};

/* Fills what the operations name, in the private table and, as libibverbs does, in the public one.
 */
void verbs_set_ops(struct verbs_context* context, const struct verbs_context_ops* ops) {
  if (ops->dealloc_pd != NULL) context->priv->ops.dealloc_pd = ops->dealloc_pd;
  if (ops->destroy_qp != NULL) context->priv->ops.destroy_qp = ops->destroy_qp;
  if (ops->destroy_srq != NULL) context->priv->ops.destroy_srq = ops->destroy_srq;
  context->context.ops._compat_dealloc_pd = (void*)ops->dealloc_pd;
}

static int puts_seen;
void ibverbs_device_put(struct ibv_device* device) {
  puts_seen++;
}

static int destroy_result;
static const char* order[8];
static int steps;
static int destroy_qp(struct ibv_qp* qp) {
  order[steps++] = "destroy";
  return destroy_result;
}
static int destroy_srq(struct ibv_srq* srq) {
  order[steps++] = "destroy";
  return destroy_result;
}
static const struct verbs_context_ops own_ops = {.destroy_qp = destroy_qp,
                                                 .destroy_srq = destroy_srq};

static struct ibv_device **wrapped_as, **unwrapped;
static int wrap_error, count_seen;
static struct ibv_device** wrap(struct ibv_device** list, int count) {
  count_seen = count;
  if (wrap_error != 0) {
    errno = wrap_error;
    return NULL;
  }
  return wrapped_as;
}
static struct ibv_device** unwrap(struct ibv_device** list) {
  unwrapped = list;
  return NULL;
}
static struct ibv_context* opened;
static struct ibv_context* open_device(struct ibv_device* device) {
  return opened;
}
static struct ibv_context* asked;
static bool ack(struct ibv_context* context, struct ibv_async_event* event) {
  asked = context;
  return true;
}
static int begin_result;
static int begin(struct ibv_context* context, const void* object) {
  order[steps++] = "begin";
  return begin_result;
}
static int end_result;
static void end(struct ibv_context* context, const void* object, int result) {
  order[steps++] = "end";
  end_result = result;
}
static const struct verbs_stack_ops stack = {
    .context_ops = &own_ops,
    .wrap_list = wrap,
    .unwrap_list = unwrap,
    .open_device = open_device,
    .ack_async_event = ack,
    .destroy_begin = begin,
    .destroy_end = end,
};
static const struct verbs_device_ops stacked_ops = {.stack = &stack},
                                     kernel_ops = {.name = "kernel"};
static struct verbs_device stacked = {.ops = &stacked_ops}, kernel = {.ops = &kernel_ops};
/* As another library makes it: behind the public struct there are zeros. */
static struct verbs_device foreign;
static struct verbs_context context = {
    .context = {.device = &stacked.device, .abi_compat = __VERBS_ABI_IS_EXTENDED}};

static struct ibv_device** new_list(void) {
  struct ibv_device** list = calloc(3, sizeof *list);

  list[0] = list[1] = &kernel.device;
  return list;
}

/* It runs first: nothing has registered yet. */
static void without_a_stack_nothing_changes(void** state) {
  struct ibv_device* list[] = {&kernel.device, NULL};
  struct ibv_async_event event = {.event_type = IBV_EVENT_DEVICE_FATAL};

  assert_ptr_equal(verbs_stack_wrap(list), list);
  assert_ptr_equal(verbs_stack_unwrap(list), list);
  assert_null(verbs_stack_wrap(NULL));
  assert_false(verbs_stack_is_there());
  assert_false(verbs_stack_ack_async_event(&event));
  assert_null(verbs_device_stack(&kernel.device));
  assert_null(verbs_device_stack(&foreign.device));
}

static void stacked_contexts_refuse_what_the_stack_lacks(void** state) {
  struct ibv_pd pd = {.context = &context.context};

  verbs_stack_register(&stack);
  assert_true(verbs_stack_is_there());
  opened = &context.context;
  assert_ptr_equal(verbs_stack_open(&stacked.device), opened);
  assert_int_equal(get_ops(opened)->dealloc_pd(&pd), EOPNOTSUPP);
  assert_ptr_equal(get_ops(opened)->destroy_qp, destroy_qp);
  assert_null(opened->ops._compat_dealloc_pd);
}

static void a_context_of_the_device_beneath_keeps_its_own(void** state) {
  struct verbs_ex_private own = {};
  struct verbs_context beneath = {
      .context = {.device = &kernel.device, .abi_compat = __VERBS_ABI_IS_EXTENDED}, .priv = &own};

  opened = &beneath.context;
  assert_ptr_equal(verbs_stack_open(&stacked.device), opened);
  assert_ptr_equal(beneath.priv, &own);
  opened = NULL;
  assert_null(verbs_stack_open(&stacked.device));
}

static void a_second_stack_is_ignored(void** state) {
  const struct verbs_stack_ops other = {.context_ops = &own_ops};
  struct ibv_device** list = new_list();

  verbs_stack_register(&other);
  wrapped_as = list;
  assert_ptr_equal(verbs_stack_wrap(list), list);
  assert_int_equal(count_seen, 2);
  assert_null(verbs_stack_unwrap(list));
  free(list);
}

/* A list from before, or from another library, is freed as ever. */
static void only_wrapped_lists_are_unwrapped(void** state) {
  struct ibv_device *plain[] = {NULL}, *as_one[] = {NULL}, *as_two[] = {NULL};

  unwrapped = NULL;
  assert_ptr_equal(verbs_stack_unwrap(plain), plain);
  assert_null(unwrapped);
  wrapped_as = as_one;
  assert_ptr_equal(verbs_stack_wrap(plain), as_one);
  wrapped_as = as_two;
  assert_ptr_equal(verbs_stack_wrap(plain), as_two);
  assert_null(verbs_stack_unwrap(as_one));
  assert_ptr_equal(unwrapped, as_one);
  unwrapped = NULL;
  assert_ptr_equal(verbs_stack_unwrap(as_one), as_one);
  assert_null(unwrapped);
  assert_null(verbs_stack_unwrap(as_two));
}

static void a_list_that_cannot_be_wrapped_is_freed(void** state) {
  wrap_error = ENOMEM;
  puts_seen = 0;
  errno = 0;
  assert_null(verbs_stack_wrap(new_list()));
  assert_int_equal(errno, ENOMEM);
  assert_int_equal(puts_seen, 2);
  wrap_error = 0;
}

static void events_are_acknowledged_by_their_objects_context(void** state) {
  struct ibv_cq cq = {.context = &context.context};
  struct ibv_qp qp = {.context = &context.context};
  struct ibv_srq srq = {.context = &context.context};
  struct ibv_wq wq = {.context = &context.context};
  const enum ibv_event_type of_qp[] = {IBV_EVENT_QP_FATAL,      IBV_EVENT_QP_REQ_ERR,
                                       IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_COMM_EST,
                                       IBV_EVENT_SQ_DRAINED,    IBV_EVENT_PATH_MIG,
                                       IBV_EVENT_PATH_MIG_ERR,  IBV_EVENT_QP_LAST_WQE_REACHED};
  struct ibv_async_event event = {.event_type = IBV_EVENT_CQ_ERR, .element.cq = &cq};

  assert_true(verbs_stack_ack_async_event(&event));
  event.element.qp = &qp;
  for (size_t i = 0; i < sizeof of_qp / sizeof *of_qp; i++) {
    event.event_type = of_qp[i];
    asked = NULL;
    assert_true(verbs_stack_ack_async_event(&event));
    assert_ptr_equal(asked, &context.context);
  }
  event.element.srq = &srq;
  event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
  assert_true(verbs_stack_ack_async_event(&event));
  event.event_type = IBV_EVENT_SRQ_ERR;
  assert_true(verbs_stack_ack_async_event(&event));
  event.element.wq = &wq;
  event.event_type = IBV_EVENT_WQ_FATAL;
  assert_true(verbs_stack_ack_async_event(&event));
  event.event_type = IBV_EVENT_PORT_ERR;
  asked = NULL;
  assert_false(verbs_stack_ack_async_event(&event));
  assert_null(asked);
}

static void the_stack_learns_of_destroyed_objects(void** state) {
  struct verbs_ex_private own = {.ops = own_ops};
  struct verbs_context beneath = {
      .context = {.device = &kernel.device, .abi_compat = __VERBS_ABI_IS_EXTENDED}, .priv = &own};
  struct ibv_qp qp = {.context = &beneath.context};
  struct ibv_srq srq = {.context = &beneath.context};

  steps = 0;
  destroy_result = EBUSY;
  assert_int_equal(verbs_stack_destroy_qp(&qp), EBUSY);
  assert_int_equal(end_result, EBUSY);
  destroy_result = 0;
  assert_int_equal(verbs_stack_destroy_srq(&srq), 0);
  assert_int_equal(end_result, 0);
  assert_int_equal(steps, 6);
  for (int i = 0; i < 6; i++)
    assert_string_equal(order[i], ((const char*[]){"begin", "destroy", "end"})[i % 3]);

  steps = 0;
  begin_result = ENOMEM;
  assert_int_equal(verbs_stack_destroy_qp(&qp), ENOMEM);
  assert_int_equal(verbs_stack_destroy_srq(&srq), ENOMEM);
  assert_int_equal(steps, 2);
}

static void touch(const char* path) {
  FILE* file = fopen(path, "w");

  assert_non_null(file);
  fclose(file);
}

static void a_stack_is_configured_by_its_file(void** state) {
  const char* const marker = IBV_CONFIG_DIR "/some.stack";
  const char* const others[] = {IBV_CONFIG_DIR "/some.driver", IBV_CONFIG_DIR "/.stack",
                                IBV_CONFIG_DIR "/some.stack.old"};

  unlink(marker);
  for (int i = 0; i < 3; i++) unlink(others[i]);
  rmdir(IBV_CONFIG_DIR);
  assert_false(verbs_stack_is_configured());
  assert_int_equal(mkdir(IBV_CONFIG_DIR, 0755), 0);
  assert_false(verbs_stack_is_configured());
  for (int i = 0; i < 3; i++) touch(others[i]);
  assert_false(verbs_stack_is_configured());
  touch(marker);
  assert_true(verbs_stack_is_configured());
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(without_a_stack_nothing_changes),
      cmocka_unit_test(stacked_contexts_refuse_what_the_stack_lacks),
      cmocka_unit_test(a_context_of_the_device_beneath_keeps_its_own),
      cmocka_unit_test(a_second_stack_is_ignored),
      cmocka_unit_test(only_wrapped_lists_are_unwrapped),
      cmocka_unit_test(a_list_that_cannot_be_wrapped_is_freed),
      cmocka_unit_test(events_are_acknowledged_by_their_objects_context),
      cmocka_unit_test(the_stack_learns_of_destroyed_objects),
      cmocka_unit_test(a_stack_is_configured_by_its_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
