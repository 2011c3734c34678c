// What several commands need: opening a fabric by name, and the names of NICs, addresses and QPs.
#pragma once

#include <string>

#include "fabric/fabric.h"
#include "fabric/host_fault.h"

namespace cxemu {

// Opens the fabric of this name, which must exist, and tells it what `cxemu calibrate` has
// measured. Throws std::runtime_error.
Fabric fabric_open(const std::string& name);
// Finds the NIC "HOST/mlx5_N". Throws std::runtime_error.
FabricNic& target_find(const Fabric&, const std::string& target);

// Applies a fault to a NIC or a host. Returns false and *error as fault_apply does.
bool target_fault(const Fabric&, const std::string& fabric_name, const FaultTarget&,
                  const FaultCommand&, std::string* error);

std::string address_text(uint32_t ipv4_be);
std::string device_name(const FabricNic&);
const char* qp_type_name(uint32_t type);
const char* qp_state_name(uint32_t state);
// clock_text: the time of day with milliseconds. iso_text: date and time in ISO 8601 (UTC,
// microseconds).
std::string clock_text(uint64_t realtime_ns);
std::string iso_text(uint64_t realtime_ns);

}  // namespace cxemu
