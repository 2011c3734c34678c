// By which of its addresses a NIC is used, when it has several. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace shift::control {

// Addresses and masks are in network byte order.
struct HostAddress {
  uint32_t ip_be = 0;
  uint32_t mask_be = 0;          // of its subnet; 0: not known
  std::optional<uint16_t> vlan;  // of its network device, 0 if that has none; nothing: not known
};

// The place in `addresses` of the one to use. The application chose `application` among the default
// NIC's addresses: with it, it chose a network. So the best address is one of its subnet, and the
// next best one of a network device with its VLAN. If the peer has told the address that it uses at
// its end, one in whose subnet that lies is better than both. The first in the list is taken if
// nothing tells them apart. `addresses` holds one at least.
size_t address_choose(std::span<const HostAddress> addresses, const HostAddress& application,
                      std::optional<uint32_t> peer_ip_be = std::nullopt);

}  // namespace shift::control
