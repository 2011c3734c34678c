/* How librdmacm reaches a provider of stacked devices (librdmacm/stack.c), against stubs. Built
 * twice: with a libibverbs that knows of stacks, and (WITHOUT_STACKS) with one that does not. */
/* cmocka wants these before it. */
/* clang-format off */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <rdma/cm_stack.h>
#include <stdbool.h>
#include <string.h>

#include "librdmacm/stack.h"

/* Which functions were called, in this order. */
static const char* order[8];
static int steps;
static void step(const char* what) {
  order[steps++] = what;
}
static void expect_steps(int count, const char* const* expected) {
  assert_int_equal(steps, count);
  for (int i = 0; i < count; i++) assert_string_equal(order[i], expected[i]);
  steps = 0;
}
#define EXPECT_STEPS(...)                                       \
  do {                                                          \
    const char* const expected[] = {__VA_ARGS__};               \
    expect_steps(sizeof expected / sizeof *expected, expected); \
  } while (0)

static struct rdma_event_channel channel;
static struct rdma_cm_id id = {.channel = &channel};
static struct rdma_cm_event kernel_event;

/* What librdmacm does by itself. Each has a result of its own, and knows the arguments. */
int ucma_get_cm_event(struct rdma_event_channel* of, struct rdma_cm_event** event) {
  step("kernel's event");
  assert_ptr_equal(of, &channel);
  *event = &kernel_event;
  return 1;
}
int ucma_ack_cm_event(struct rdma_cm_event* event) {
  step("acknowledge");
  assert_ptr_equal(event, &kernel_event);
  return 2;
}
/* As for an id that has no channel of the application's: librdmacm waits for the event. */
int ucma_disconnect(struct rdma_cm_id* of) {
  step("disconnect");
  assert_ptr_equal(of, &id);
  return ucma_await_event(of->channel, &of->event);
}
int ucma_migrate_id(struct rdma_cm_id* of, struct rdma_event_channel* to) {
  step("migrate");
  assert_ptr_equal(of, &id);
  assert_ptr_equal(to, &channel);
  return 4;
}
int ucma_destroy_id(struct rdma_cm_id* of) {
  step("destroy");
  assert_ptr_equal(of, &id);
  return 5;
}
void ucma_destroy_ep(struct rdma_cm_id* of) {
  step("destroy the endpoint");
  rdma_destroy_id(of);
}

#ifndef WITHOUT_STACKS

/* A provider that hands all calls on, with other results. */
static struct rdma_cm_event own_event;

static int stacked_get(const struct rdma_cm_functions* beneath, struct rdma_event_channel* of,
                       struct rdma_cm_event** event, bool by_librdmacm) {
  step(by_librdmacm ? "stack: event for librdmacm" : "stack: event");
  int result = beneath->get_cm_event(of, event);
  *event = &own_event;
  return result + 10;
}
static int stacked_ack(const struct rdma_cm_functions* beneath, struct rdma_cm_event* event) {
  step("stack: acknowledge");
  return event == &own_event ? 0 : beneath->ack_cm_event(event) + 10;
}
static int stacked_disconnect(const struct rdma_cm_functions* beneath, struct rdma_cm_id* of) {
  step("stack: disconnect");
  return beneath->disconnect(of) + 100;
}
static int stacked_migrate(const struct rdma_cm_functions* beneath, struct rdma_cm_id* of,
                           struct rdma_event_channel* to) {
  step("stack: migrate");
  return beneath->migrate_id(of, to) + 10;
}
static int stacked_destroy(const struct rdma_cm_functions* beneath, struct rdma_cm_id* of) {
  step("stack: destroy");
  return beneath->destroy_id(of) + 10;
}
static void stacked_destroy_ep(const struct rdma_cm_functions* beneath, struct rdma_cm_id* of) {
  step("stack: destroy the endpoint");
  beneath->destroy_ep(of);
}
static const struct rdma_cm_stack_ops stack = {
    .get_cm_event = stacked_get,
    .ack_cm_event = stacked_ack,
    .disconnect = stacked_disconnect,
    .migrate_id = stacked_migrate,
    .destroy_id = stacked_destroy,
    .destroy_ep = stacked_destroy_ep,
};
/* All its functions are missing: to call one ends the test. */
static const struct rdma_cm_stack_ops another_stack;

static struct ibv_device kernel_device, stacked_device, other_stacked_device;

/* What libibverbs answers. The name has the number of config.h. */
__attribute__((visibility("default"))) const struct rdma_cm_stack_ops* verbs_stack_cm_44(
    const struct ibv_device* device);
const struct rdma_cm_stack_ops* verbs_stack_cm_44(const struct ibv_device* device) {
  step("libibverbs");
  if (device == &stacked_device) return &stack;
  return device == &other_stacked_device ? &another_stack : NULL;
}

static void find_stack(struct ibv_device* device) {
  ucma_find_stack(device);
  steps = 0;
}

#endif

static void expect_all_is_librdmacms(void) {
  struct rdma_cm_event* event = NULL;

  assert_int_equal(rdma_get_cm_event(&channel, &event), 1);
  assert_ptr_equal(event, &kernel_event);
  assert_int_equal(rdma_ack_cm_event(event), 2);
  EXPECT_STEPS("kernel's event", "acknowledge");
  assert_int_equal(rdma_disconnect(&id), 1);
  assert_ptr_equal(id.event, &kernel_event);
  EXPECT_STEPS("disconnect", "kernel's event");
  assert_int_equal(rdma_migrate_id(&id, &channel), 4);
  assert_int_equal(rdma_destroy_id(&id), 5);
  rdma_destroy_ep(&id);
  EXPECT_STEPS("migrate", "destroy", "destroy the endpoint", "destroy");
}

static void nothing_is_stacked_at_first(void** state) {
  expect_all_is_librdmacms();
}

#ifdef WITHOUT_STACKS

static void a_libibverbs_without_stacks_is_not_asked(void** state) {
  struct ibv_device device = {};

  ucma_find_stack(&device);
  ucma_find_stack(&device);
  expect_all_is_librdmacms();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_is_stacked_at_first),
      cmocka_unit_test(a_libibverbs_without_stacks_is_not_asked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

/* Also one whose provider wants to know nothing of connections. */
static void a_device_without_a_stack_changes_nothing(void** state) {
  ucma_find_stack(&kernel_device);
  EXPECT_STEPS("libibverbs");
  expect_all_is_librdmacms();
}

static void a_stack_is_asked_and_calls_what_is_beneath(void** state) {
  struct rdma_cm_event* event = NULL;

  find_stack(&stacked_device);
  assert_int_equal(rdma_get_cm_event(&channel, &event), 11);
  assert_ptr_equal(event, &own_event);
  EXPECT_STEPS("stack: event", "kernel's event");
  assert_int_equal(rdma_ack_cm_event(&kernel_event), 12);
  EXPECT_STEPS("stack: acknowledge", "acknowledge");
  assert_int_equal(rdma_ack_cm_event(&own_event), 0);
  EXPECT_STEPS("stack: acknowledge");
  assert_int_equal(rdma_migrate_id(&id, &channel), 14);
  EXPECT_STEPS("stack: migrate", "migrate");
  assert_int_equal(rdma_destroy_id(&id), 15);
  EXPECT_STEPS("stack: destroy", "destroy");
}

static void calls_within_the_work_come_to_the_stack_too(void** state) {
  id.event = NULL;
  assert_int_equal(rdma_disconnect(&id), 111);
  assert_ptr_equal(id.event, &own_event);
  EXPECT_STEPS("stack: disconnect", "disconnect", "stack: event for librdmacm", "kernel's event");
  rdma_destroy_ep(&id);
  EXPECT_STEPS("stack: destroy the endpoint", "destroy the endpoint", "stack: destroy", "destroy");
}

static void the_first_stack_stays(void** state) {
  struct rdma_cm_event* event = NULL;

  find_stack(&kernel_device);
  find_stack(&other_stacked_device);
  assert_int_equal(rdma_get_cm_event(&channel, &event), 11);
  EXPECT_STEPS("stack: event", "kernel's event");
}

/* In this order: there is no way back from a stack. */
int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_is_stacked_at_first),
      cmocka_unit_test(a_device_without_a_stack_changes_nothing),
      cmocka_unit_test(a_stack_is_asked_and_calls_what_is_beneath),
      cmocka_unit_test(calls_within_the_work_come_to_the_stack_too),
      cmocka_unit_test(the_first_stack_stays),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
