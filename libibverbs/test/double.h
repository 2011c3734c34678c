// The answers of the provider's test double: one number per verb, so that a test can tell that a
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

// Makes the first real device of each list a virtual one. Without this variable the double does
// nothing.
inline constexpr char kEnableVariable[] = "SHIFT_FRONT_DOUBLE";

// A context of the program's that has this real one beneath it, and how often it was asked to keep
// the events of an object back.
inline const ibv_context* context_beneath = nullptr;
inline ibv_context* context_over_it = nullptr;
inline int kept_back = 0;

// Each call is noted in this field of the virtual context, where a program can read it.
inline int last_verb(const ibv_context* context) {
  return context->num_comp_vectors;
}

}  // namespace shift::test
