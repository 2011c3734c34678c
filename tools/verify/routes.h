// Asks the kernel which network device a packet would leave through.
#pragma once

#include <cstdint>
#include <string>

namespace shift::verify {

// Of a packet from an address of this host to another, as `ip route get` says it. Empty: there is
// no route, or the kernel does not say. Addresses are in network byte order.
std::string route_device(uint32_t from_be, uint32_t to_be);

}  // namespace shift::verify
