// The IPv4 subnet that an address of this host lies in.
#pragma once

#include <cstdint>
#include <optional>

namespace shift::net {

// The fields are in network byte order.
struct Subnet {
  uint32_t address_be = 0;  // this host's
  uint32_t mask_be = 0;

  bool holds(uint32_t ip_be) const noexcept { return ((ip_be ^ address_be) & mask_be) == 0; }
  // The address that reaches all hosts in the subnet.
  uint32_t broadcast_be() const noexcept { return address_be | ~mask_be; }
};

// Returns nothing when no interface has the address now, or when its subnet is too small for a
// broadcast address.
std::optional<Subnet> subnet_of(uint32_t ip_be);

}  // namespace shift::net
