// What the test double of the provider answers: a number per verb, so that a test can tell that a
// call on a virtual object arrived there and nowhere else.
#pragma once

#include "ops/glue.h"

namespace shift::test {

#define SHIFT_DOUBLE_ENUMERATOR(name, version) k_##name,
enum Verb : int {
  kVerbFirst = 7000,
  SHIFT_STOCK_FUNCTIONS(SHIFT_DOUBLE_ENUMERATOR) k_query_gid_ex,
  k_query_gid_table,
};
#undef SHIFT_DOUBLE_ENUMERATOR

// Turns the first real device of each list into a virtual one; without it the double does nothing.
inline constexpr char kEnableVariable[] = "SHIFT_FRONT_DOUBLE";

// Each call is noted in this field of the virtual context, which a program can read.
inline int last_verb(const ibv_context* context) {
  return context->num_comp_vectors;
}

}  // namespace shift::test
