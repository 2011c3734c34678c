// The JSON text in which one process tells the other what the traffic is.
#pragma once

#include <nlohmann/json.hpp>

#include "pattern_options.h"

namespace traffic::nccl {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Options, connections, bidirectional, qps, split, group, depth,
                                   size, random_size, separate_from, cts_inline, flush, messages,
                                   duration_ms, until_stop, rate, seed, quiet_ms, qp_timeout,
                                   retry_count)

}  // namespace traffic::nccl
