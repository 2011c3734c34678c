// What several commands need: the fabric of a name, and how NICs, addresses and QPs are called.
#pragma once

#include <string>

#include "fabric/fabric.h"

namespace cxemu {

// The fabric of this name, which must exist. Throws std::runtime_error.
Fabric fabric_open(const std::string& name);
// "HOST/mlx5_N". Throws.
FabricNic& target_find(const Fabric&, const std::string& target);

std::string address_text(uint32_t ipv4_be);
std::string device_name(const FabricNic&);
const char* qp_type_name(uint32_t type);
const char* qp_state_name(uint32_t state);
// The time of day with milliseconds, and the whole in ISO 8601 (UTC, microseconds).
std::string clock_text(uint64_t realtime_ns);
std::string iso_text(uint64_t realtime_ns);

}  // namespace cxemu
