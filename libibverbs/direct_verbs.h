// Loads the front of libmlx5 from the front of libibverbs.
#pragma once

namespace shift::front {

// Must run before the stock library loads its plug-ins, one of which has the SONAME libmlx5.so.1: a
// program that opens that name later must get the front.
void direct_verbs_load() noexcept;

}  // namespace shift::front
