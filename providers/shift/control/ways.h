// Names of the ways between two NICs, and which of them a session's path is.
#pragma once

#include <compare>

#include "control/nic_pairs.h"
#include "group/group.h"
#include "net/network.h"
#include "wire/messages.h"

namespace shift::control {

struct Session;

// The process and the device group that a peer's NICs belong to, as seen from a context of this
// end.
struct PeerNics {
  group::Context* context = nullptr;
  const net::PeerChannel* channel = nullptr;
  wire::Gid gid;  // of the peer's default NIC

  auto operator<=>(const PeerNics&) const = default;
};

// The way from a NIC of the context to another of it (no channel, no GID), or to one of the peer's.
struct WayName {
  PeerNics peer;
  int from = 0, to = 0;

  auto operator<=>(const WayName&) const = default;
  bool is_local() const { return peer.channel == nullptr; }
};

// The peer's NICs that the session may use.
PeerNics peer_of(const Session& session);
// The member of the path at this end, and the peer's.
int own_of(const Session& session, PathName path);
int peers_of(const Session& session, PathName path);
// The same with this end's NIC in the leader's place, whichever end leads: the name of a NicPair,
// and of a path in the PathBook.
PathName own_first(const Session& session, PathName path);

}  // namespace shift::control
