// What becomes of a verb that is younger than this front, when a program calls it with a virtual
// object. The call reaches the stock library past the front, because the dynamic linker finds
// there what the front does not export.
#pragma once

#include <infiniband/verbs.h>

namespace shift::front {

// Makes such verbs answer EOPNOTSUPP for `context`, which is virtual, and for all objects of it.
// `real` is a context of the stock library. Where that is not possible, a line in the log says so.
// Any thread may call this.
void unknown_verbs_refuse(ibv_context* context, const ibv_context* real) noexcept;

}  // namespace shift::front
