// The functions that read the fields of an extended CQ's completion.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace shift::ops {

// Puts the poll functions, and those that read a completion's fields, into the CQ's table. Of the
// optional fields, only those in `wc_flags` get a function.
void install_readers(ibv_cq_ex& cq, uint64_t wc_flags);

}  // namespace shift::ops
