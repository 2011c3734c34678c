// What the arguments of cxemu's commands name. Throws std::runtime_error when it is not there.
#pragma once

#include <string>

#include "fabric/fabric.h"

namespace cxemu {

Fabric fabric_open(const std::string& name);
std::string device_name(const FabricNic& nic);
// HOST/mlx5_N
FabricNic* target_find(const Fabric& fabric, const std::string& target, int* host);

}  // namespace cxemu
