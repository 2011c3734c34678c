// The contexts that the program holds open, and a query about one of them.
#pragma once

namespace shift::group {
struct Context;
}  // namespace shift::group

namespace shift::ops {

// Whether path faults of any of the context's QPs are masked. The caller holds no lock of the
// context or of its QPs.
bool context_is_masked(group::Context& context);
// Between these two calls, context_above() finds the context by the real context of its default
// NIC, and is_protected() and has_left() find its QPs by their addresses.
void context_is_open(group::Context* context);
void context_is_closed(group::Context* context);

// From here on the real devices of the device lists are kept, even when the lists are freed: a call
// that hangs uses one of them.
void device_lists_keep() noexcept;

}  // namespace shift::ops
