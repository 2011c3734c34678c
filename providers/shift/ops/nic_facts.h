// Reads from sysfs what tells NICs apart.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/pairing.h"

namespace shift::ops {

// All but the speed. Reads a few small files, which the kernel answers from its own memory; what
// cannot be read stays unknown. The port is the device's first.
NicFacts nic_facts(const ibv_device& device);

// The NIC's own number, which no other NIC has; 0: the system does not know it. In the byte order
// of the host.
uint64_t nic_guid(const ibv_device& device);

// Puts the speeds of ports and buses into the facts of these devices. For this the kernel asks the
// NICs, one of which may hang: what is not known after `patience` stays unknown.
void port_speeds_read(std::span<ibv_device* const> devices, std::vector<NicFacts>& facts,
                      std::chrono::milliseconds patience);

}  // namespace shift::ops
