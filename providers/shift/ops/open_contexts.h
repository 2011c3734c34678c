// The contexts that the program holds open, and a query about one of them.
#pragma once

#include <cstdint>

namespace shift::group {
struct Context;
struct Device;
}  // namespace shift::group

namespace shift::ops {

// Whether path faults of any of the context's QPs are masked. The caller holds no lock of the
// context or of its QPs.
bool context_is_masked(group::Context& context);
// Whether the context has connected QPs whose faults are not masked. The same holds for locks.
bool context_has_unprotected(group::Context& context);
// Between these two calls, context_above() finds the context by the real context of its default
// NIC, and is_protected() and has_left() find its QPs by their addresses.
void context_is_open(group::Context* context);
void context_is_closed(group::Context* context);

// Whether a QP of any open context of the device has that number. The caller holds no lock.
bool context_uses_number(const group::Device& device, uint32_t qpn);

// From here on the real devices of the device lists are kept, even when the lists are freed: a call
// that hangs uses one of them.
void device_lists_keep() noexcept;

}  // namespace shift::ops
