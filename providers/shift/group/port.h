// What a NIC's port says of itself: its GID table, the addresses and names in it, and its state.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "wire/names.h"

namespace shift::group {

struct Context;

inline constexpr uint8_t kPortNumber = 1;  // the one that carries what the layer moves

// The index of a GID by its value and type (indices change when an address flaps), -1 when it is
// gone. `likely` is looked at first.
int gid_index_of(ibv_context* real, uint8_t port, const wire::Gid& gid, uint32_t type,
                 uint32_t likely);
// What stands at that place of the NIC's GID table; its type says how the NIC encapsulates what is
// sent from there.
std::optional<ibv_gid_entry> gid_at(ibv_context* real, uint8_t port, uint32_t index);

// The address at that place of the default NIC's GID table, as a QP of the application has used it.
std::optional<wire::Gid> gid_in_use(Context& context, uint32_t port, uint32_t index);

// Whether the member's port carries traffic now.
bool member_port_is_up(const Context& context, int member);

// An address of a port, its place in the GID table, and the network device that holds it (0: not
// known).
struct PortAddress {
  wire::Gid gid;
  uint32_t index;
  int ifindex;
};
// Those that can carry RoCE v2 over IPv4.
std::vector<PortAddress> port_addresses(ibv_context* real, uint8_t port);

// A GID of a port that holds no IPv4 address (link-local ones, other IPv6), and one that does and
// is of the same network device.
struct PortName {
  wire::Gid gid;
  wire::Gid address;
};
std::vector<PortName> port_names(ibv_context* real, uint8_t port);

}  // namespace shift::group
