// The front of libmlx5 and this one.
#pragma once

namespace shift::front {

// Before the stock library loads its plug-ins, one of which has the SONAME libmlx5.so.1: a program
// that opens that name afterwards must find the front of it.
void direct_verbs_load() noexcept;

}  // namespace shift::front
