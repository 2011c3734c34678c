// The contexts that the program holds, by address, and what others ask of one.
#pragma once

namespace shift::group {
struct Context;
}  // namespace shift::group

namespace shift::ops {

// Are the faults of the paths of any of its QPs masked? Not with any of its locks held.
bool context_is_masked(group::Context& context);
// Between these the context is found by its address or its NIC's, and its QPs are by theirs.
void context_is_open(group::Context* context);
void context_is_closed(group::Context* context);

}  // namespace shift::ops
