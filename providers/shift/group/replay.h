// Running again on a new path what the old one has not proven executed, and whatever is sent after
// it.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace shift::group {

struct Group;

// What the replay will need: distinct rkeys, in posting order, that are not known yet. The peer's
// word must be in group.life.control.peer_received and peer_responder.
std::vector<uint32_t> rkeys_missing(Group& group);
// Further rkeys that the group named lately and is likely to name again: asking for them along with
// the others spares later requests the wait. Unlike the missing ones they may be unknown by now.
std::vector<uint32_t> rkeys_recent(Group& group);

struct ReplayResult {
  const char* refusal = nullptr;  // it must not or cannot be replayed, on any path
  bool path_broken = false;       // a post failed on the way
  uint32_t completed = 0;         // proven executed by the peer's word
  uint32_t posted = 0;            // posted again
  uint32_t skipped = 0;           // packets left out at the beginning of the first of these
};
// Completes what the peer's word proves executed, posts the rest on the committed path in order.
// In the mode exact, group.life.control.peer_responder is a part of that word.
[[nodiscard]] ReplayResult replay(Group& group, uint64_t peer_received);

// The next request or receive to post names a region that is still being registered with the path's
// NIC.
bool waits_for_registration(Group& group);

// Whether another path may take what a NIC refused with this errno: its device is going, or its
// queue is full. Everything else is the request's doing, and no path would take it. Some drivers
// negate it.
inline bool post_blames_path(int error) {
  const int reason = std::abs(error);
  return reason == EIO || reason == ENODEV || reason == ENOMEM;
}

// Posts parked WRs on the committed path as far as keys are known. Caller holds send.mutex, on any
// thread. Returns 0, the errno of the post, or ENOKEY: a request names memory that is not
// registered there.
int pump(Group& group);
// The same for receives that wait. Caller holds recv.mutex.
int pump_receives(Group& group);

}  // namespace shift::group
