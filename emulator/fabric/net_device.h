// Which network device has a NIC's address. As the kernel's RoCE does, the emulator takes a GID's
// network device from it.
#pragma once

#include <net/if.h>

#include <cstdint>

namespace cxemu {

// The loopback device, unless the address was given to another device of the caller's network
// namespace.
struct NetDevice {
  char name[IFNAMSIZ] = "lo";
  uint32_t index = 1;
};

// Asks the kernel each time, for an address may move.
NetDevice net_device_of(uint32_t ipv4_be);

}  // namespace cxemu
