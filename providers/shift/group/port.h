// What a NIC's port says of itself: its GID table, the addresses and names in it, and its state.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "group/device.h"
#include "wire/names.h"

namespace shift::group {

struct Context;

inline constexpr uint8_t kPortNumber = 1;  // the port that carries the traffic that the layer moves

// The index of a GID, found by its value and type (indices change when an address flaps); -1: the
// GID is gone. The index `likely` is looked at first.
int gid_index_of(ibv_context* real, uint8_t port, const wire::Gid& gid, uint32_t type,
                 uint32_t likely);
// The entry at that index of the NIC's GID table. Its type says how the NIC encapsulates what is
// sent from there.
std::optional<ibv_gid_entry> gid_at(ibv_context* real, uint8_t port, uint32_t index);

// The whole table of the NIC, without empty places.
std::vector<ibv_gid_entry> gid_entries(ibv_context* real);

// The GID at a place of the default NIC's table as the application is shown it, also where the NIC
// has lost the address or is dead, and another member carries what is sent from there (C9).
std::optional<ibv_gid_entry> shown_gid(Context& context, uint32_t port, uint32_t index);
// Whether another member can carry what is sent to the default NIC. Then the default is shown as it
// is when it is healthy, unless SHIFT_BORN says otherwise.
bool is_backed(const Context& context);

// Places in the default NIC's GID table that QPs of the application use, with the address that was
// there when the QP was connected. A place is listed once for each QP.
struct GidInUse {
  uint32_t port, index;
  wire::Gid gid;
};
std::vector<GidInUse> gids_in_use(Context& context);  // throws std::bad_alloc
std::optional<wire::Gid> gid_in_use(Context& context, uint32_t port, uint32_t index);

// Whether the member's port carries traffic now.
bool member_port_is_up(const Context& context, int member);
// Asks all members' NICs for that, and may sleep in the kernel.
PerMember<bool> ports_up(const Context& context);

// An address of a port, its index in the GID table, the network device that holds it (0: not
// known), and the mask of its subnet there (0: not known; the port itself does not know it).
struct PortAddress {
  wire::Gid gid;
  uint32_t index;
  int ifindex;
  uint32_t mask_be = 0;
};
// The addresses of a port that can carry RoCE v2 over IPv4.
std::vector<PortAddress> port_addresses(ibv_context* real, uint8_t port);

// A GID of a port that holds no IPv4 address (link-local or other IPv6), and one with an IPv4
// address of the same network device.
struct PortName {
  wire::Gid gid;
  wire::Gid address;
};
std::vector<PortName> port_names(ibv_context* real, uint8_t port);

}  // namespace shift::group
