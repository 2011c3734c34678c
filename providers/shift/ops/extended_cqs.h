// What reads the fields of an extended CQ's completion.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace shift::ops {

// Fills in the functions that read a completion's fields (extended_cqs.cc).
void install_readers(ibv_cq_ex& cq, uint64_t wc_flags);

}  // namespace shift::ops
