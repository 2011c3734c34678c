// The C++ half of the in-tree carrier (carrier.cc), on the provider's test double. The test stands
// for libibverbs: its verbs ask the stack first, as those of the series do.
#include "carrier.h"

#include <gtest/gtest.h>
#include <infiniband/stack.h>

#include <cerrno>
#include <cstdlib>

#include "cm/cm_carrier.h"
#include "double.h"

// What shim.c defines.
struct verbs_context_ops {
  int nothing;
};
extern "C" const verbs_context_ops shift_context_ops{};
extern "C" void shift_devices_adopt(ibv_device**) {}

namespace {

int acked_by_libibverbs = 0;

template <typename Object>
int destroy(Object* object) {
  if (const int error = shift_stack_ops.destroy_begin(object->context, object)) return error;
  shift_stack_ops.destroy_end(object->context, object, 0);
  return 0;
}

}  // namespace

extern "C" int ibv_destroy_qp(ibv_qp* qp) {
  return destroy(qp);
}
extern "C" int ibv_destroy_srq(ibv_srq* srq) {
  return destroy(srq);
}
extern "C" void ibv_ack_async_event(ibv_async_event* event) {
  if (!shift_stack_ops.ack_async_event(event->element.cq->context, event)) acked_by_libibverbs++;
}

namespace shift {
namespace {

using test::context_beneath;
using test::context_over_it;
using test::kept_back;

// One real context beneath a context of the program's.
class Carrier : public testing::Test {
 protected:
  Carrier() {
    EXPECT_TRUE(shift_is_on());
    context_beneath = &real_;
    context_over_it = &above_;
    kept_back = acked_by_libibverbs = 0;
  }
  ~Carrier() override { context_beneath = context_over_it = nullptr; }

  ibv_context real_{}, above_{}, foreign_{};
};

// The layer destroys its own objects on the NICs. Nobody was given an event of these objects.
TEST_F(Carrier, OnlyTheProgramsDestructionsConcernItsEvents) {
  ibv_qp qp{};
  ibv_srq srq{};
  qp.context = srq.context = &real_;
  EXPECT_EQ(stock->destroy_qp(&qp), 0);
  EXPECT_EQ(stock->destroy_srq(&srq), 0);
  EXPECT_EQ(kept_back, 0);
  EXPECT_EQ(ibv_destroy_qp(&qp), 0);
  EXPECT_EQ(ibv_destroy_srq(&srq), 0);
  EXPECT_EQ(kept_back, 2);
  qp.context = &foreign_;
  EXPECT_EQ(ibv_destroy_qp(&qp), 0);
  EXPECT_EQ(kept_back, 2) << "no virtual context is above it";
}

// The layer has read the NIC's event, and the program the layer's: each acknowledges its own. If
// the layer's went to the layer, the NIC's provider would wait for it when the object is destroyed.
TEST_F(Carrier, TheLayersAcknowledgementsGoToTheNic) {
  ibv_cq cq{};
  cq.context = &real_;
  ibv_async_event came{};
  came.event_type = IBV_EVENT_CQ_ERR;
  came.element.cq = &cq;
  stock->ack_async_event(&came);
  EXPECT_EQ(acked_by_libibverbs, 1);
  EXPECT_EQ(test::last_verb(&real_), 0);
  ibv_ack_async_event(&came);
  EXPECT_EQ(acked_by_libibverbs, 1);
  EXPECT_EQ(test::last_verb(&real_), test::k_ack_async_event);
  cq.context = &foreign_;
  ibv_ack_async_event(&came);
  EXPECT_EQ(acked_by_libibverbs, 2) << "it is an event of a device without the layer";
}

// libibverbs frees the list that it gave.
TEST_F(Carrier, GivesTheListBeneathBack) {
  ibv_device device{};
  ibv_device* list[] = {&device, nullptr};
  ibv_device** wrapped = shift_stack_ops.wrap_list(list, 1);
  ASSERT_NE(wrapped, nullptr);
  EXPECT_NE(wrapped, list);
  EXPECT_EQ(shift_stack_ops.unwrap_list(wrapped), list);
}

TEST_F(Carrier, LeavesNoFunctionOut) {
  // Each member is a pointer.
  const auto* members = reinterpret_cast<void* const*>(&shift_stack_ops);
  for (size_t i = 0; i < sizeof shift_stack_ops / sizeof *members; i++)
    EXPECT_NE(members[i], nullptr) << "member " << i << " of verbs_stack_ops";
}

}  // namespace
}  // namespace shift
