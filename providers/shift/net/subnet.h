// The IPv4 subnet that an address of this host lies in.
#pragma once

#include <cstdint>
#include <optional>

namespace shift::net {

// All in network byte order.
struct Subnet {
  uint32_t address_be = 0;  // ours
  uint32_t mask_be = 0;

  bool holds(uint32_t ip_be) const noexcept { return ((ip_be ^ address_be) & mask_be) == 0; }
  // Reaches all of them.
  uint32_t broadcast_be() const noexcept { return address_be | ~mask_be; }
};

// None when no interface has the address now, or its subnet is too small for a broadcast address.
std::optional<Subnet> subnet_of(uint32_t ip_be);

}  // namespace shift::net
