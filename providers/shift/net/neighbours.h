// What the kernel's neighbour table says of the hosts on the link. A link-local GID that was made
// of a MAC address names the NIC that it belongs to, so no other NIC's host is believed to have it.
#pragma once

#include <array>
#include <cstdint>
#include <istream>
#include <optional>

#include "wire/names.h"

namespace shift::net {

using Mac = std::array<uint8_t, 6>;

// The MAC address of which the GID was made (modified EUI-64, RFC 4291); nothing for other GIDs.
std::optional<Mac> mac_of(const wire::Gid& gid) noexcept;

// Whether a table in the format of /proc/net/arp has entries for the address, and none of them has
// the MAC address. Entries that the kernel has not resolved say nothing.
bool table_contradicts(std::istream& table, uint32_t ip_be, const Mac& mac);

// Whether the host at the address has another MAC address than the one in the GID. What is not
// known contradicts nothing: this host's own addresses have no entry, and neither have hosts that
// nothing was sent to. Thread-safe; reads a file of the kernel's.
bool neighbour_contradicts(uint32_t ip_be, const wire::Gid& gid);

}  // namespace shift::net
