// Reads from sysfs what tells NICs apart.
#pragma once

#include <infiniband/verbs.h>

#include "ops/pairing.h"

namespace shift::ops {

// Reads a few small files; what cannot be read stays unknown. The port is the device's first.
NicFacts nic_facts(const ibv_device& device);

}  // namespace shift::ops
