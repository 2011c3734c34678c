// Runs on a new path what the old path is not proven to have executed, and what is sent later.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace shift::group {

struct Group;

// The rkeys that the replay will need and that are not known yet, each once, in posting order. The
// peer's word must be in group.life.control.peer_received and peer_responder.
std::vector<uint32_t> rkeys_missing(Group& group);
// Further rkeys that the group has used lately and will likely use again. The query for the missing
// rkeys names them, too, so that later requests need not wait. The peer may not know some of them
// any more.
std::vector<uint32_t> rkeys_recent(Group& group);

struct ReplayResult {
  const char* refusal = nullptr;  // no path may or can take the replay
  bool path_broken = false;       // a post failed on the way
  uint32_t completed = 0;         // requests that the peer's word proves executed
  uint32_t posted = 0;            // requests that were posted again: an older path had them, too
  uint32_t parked = 0;            // requests that were posted for the first time
  uint32_t skipped = 0;           // packets left out at the beginning of the first of these
};
// Completes the requests that the peer's word proves executed, and posts the others on the
// committed path in order. If the mode asks the responder, group.life.control.peer_responder is a
// part of that word.
[[nodiscard]] ReplayResult replay(Group& group, uint64_t peer_received);

// Whether the next request or receive to post names a region that is still being registered with
// the path's NIC.
bool waits_for_registration(Group& group);

// Whether another path may take a request that a NIC has refused with this errno: the NIC's device
// is going, or its queue is full. For any other errno the request itself is to blame, and no path
// would take it. Some drivers return the errno negated.
inline bool post_blames_path(int error) {
  const int reason = std::abs(error);
  return reason == EIO || reason == ENODEV || reason == ENOMEM;
}

// Posts parked WRs on the committed path as far as their keys are known. The caller holds
// send.mutex, on any thread. Returns 0, the errno of the post, or ENOKEY: a request names memory
// that is not registered with the path's NIC.
int pump(Group& group);
// Posts the waiting receives in the same way. The caller holds recv.mutex.
int pump_receives(Group& group);

}  // namespace shift::group
