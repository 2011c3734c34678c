// What happens to an unprotected object's events when the object is destroyed.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "destroy_stock.h"

namespace {

using Calls = std::vector<std::string>;
Calls calls;
ibv_context context_beneath, above_it, unrelated;
bool has_memory = true;
int destroy_error = 0;

int destroy(ibv_qp*) {
  calls.push_back("destroy");
  return destroy_error;
}

}  // namespace

// These stand in for the provider's functions.
namespace shift::ops {
ibv_context* context_above(const ibv_context* context) noexcept {
  return context == &context_beneath ? &above_it : nullptr;
}
bool keep_events_back(ibv_context* context, const void*) noexcept {
  EXPECT_EQ(context, &above_it);
  calls.push_back("keep back");
  return has_memory;
}
void let_events_come(ibv_context* context, const void*) noexcept {
  EXPECT_EQ(context, &above_it);
  calls.push_back("let come");
}
void forget_events(ibv_context* context, const void*) noexcept {
  EXPECT_EQ(context, &above_it);
  calls.push_back("forget");
}
}  // namespace shift::ops

namespace shift::front {
namespace {

class DestroyTest : public ::testing::Test {
 protected:
  DestroyTest() {
    calls.clear();
    has_memory = true;
    destroy_error = 0;
    qp_.context = &context_beneath;
  }
  ibv_qp qp_{};
};

TEST_F(DestroyTest, events_go_with_the_object) {
  EXPECT_EQ(destroy_stock(&qp_, destroy), 0);
  EXPECT_EQ(calls, (Calls{"keep back", "destroy", "forget"}));
}

TEST_F(DestroyTest, events_of_a_busy_object_stay) {
  destroy_error = EBUSY;
  EXPECT_EQ(destroy_stock(&qp_, destroy), EBUSY);
  EXPECT_EQ(calls, (Calls{"keep back", "destroy", "let come"}));
}

TEST_F(DestroyTest, nothing_happens_without_memory) {
  has_memory = false;
  EXPECT_EQ(destroy_stock(&qp_, destroy), ENOMEM);
  EXPECT_EQ(calls, (Calls{"keep back"}));
}

TEST_F(DestroyTest, what_is_on_a_stock_context_is_left_alone) {
  qp_.context = &unrelated;
  EXPECT_EQ(destroy_stock(&qp_, destroy), 0);
  EXPECT_EQ(calls, (Calls{"destroy"}));
}

}  // namespace
}  // namespace shift::front
