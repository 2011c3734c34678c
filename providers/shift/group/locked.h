// What the control thread reads and changes in a group's queues and attributes; the functions take
// the locks that this needs.
#pragma once

#include <cstdint>
#include <vector>

#include "fsm/fsm.h"
#include "group/group.h"
#include "wire/messages.h"

namespace shift::group {

// Whether the layer holds back the errors of the group's path and moves away from it, by the state
// machine.
inline bool is_protected(const Group& group) {
  return fsm::kMasking.has(group.life.control.state);
}

// The application's own start PSNs, with which each end proves that the QP is its own.
struct StartPsns {
  bool sends;  // `sq` is known: the QP has reached RTS
  uint32_t sq, rq;
};
StartPsns start_psns(Group& group);

// How many receives the application has posted, which is where the journal ends.
uint64_t receives_end(Group& group);
// Whether a request waits for its completion: one that the fenced path was given or, with `parked`,
// any that the application has posted.
bool sends_outstanding(Group& group, bool parked);
// From the first request that the application has posted and has no completion of, to the end of
// the journal. Unsignaled requests that are over may be among them.
struct Waiting {
  uint64_t first, end;
};
Waiting sends_waiting(Group& group);
// Posts what waits as far as keys are known, and goes back to the hot path if possible. Returns 0,
// or the error of pump() or pump_receives().
int go_on(Group& group);
// The application has brought the QP of its path to ERR. Requests that wait for a key or for a
// registration are given to that QP, which flushes them after all that was posted before. Returns
// what go_on() does.
int flush_waiting(Group& group);
void remote_keys_add(Group& group, int member, const std::vector<wire::KeyPair>& keys);
// Forgets the peer's keys on all of its members: all of them, or those of these regions.
void remote_keys_forget(Group& group);
void remote_keys_forget(Group& group, const std::vector<uint32_t>& rkeys);
// The error that the application gets if the group fails. The first function forgets it; the second
// sets it, unless a better one is known.
void original_error_forget(Group& group);
void original_error_suggest(Group& group, ibv_wc_status status, uint32_t vendor_error);

}  // namespace shift::group
