#include "control/ways.h"

#include "control/session.h"

namespace shift::control {

PeerNics peer_of(const Session& session) {
  return {session.group.context, session.search.channel(), session.ends.remote.gid};
}

int own_of(const Session& session, PathName path) {
  return session.control.is_leader ? path.leader : path.follower;
}

int peers_of(const Session& session, PathName path) {
  return session.control.is_leader ? path.follower : path.leader;
}

PathName own_first(const Session& session, PathName path) {
  return {static_cast<uint8_t>(own_of(session, path)),
          static_cast<uint8_t>(peers_of(session, path))};
}

}  // namespace shift::control
