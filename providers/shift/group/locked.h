// A group's queues and attributes, read and changed by the control thread under the locks that they
// need.
#pragma once

#include <cstdint>
#include <vector>

#include "fsm/fsm.h"
#include "group/group.h"
#include "wire/messages.h"

namespace shift::group {

// Errors of the group's path are held back and moved away from, as far as the machine is.
inline bool is_protected(const Group& group) {
  return fsm::kMasking.has(group.life.control.state);
}

// The application's own start PSNs, by which the two ends prove who they are.
struct StartPsns {
  bool sends;  // `sq` is known: the QP has reached RTS
  uint32_t sq, rq;
};
StartPsns start_psns(Group& group);

// The journal's end: how many receives the application has posted.
uint64_t receives_end(Group& group);
// Some request waits for its completion that the fenced path was given, or, with `parked`, that the
// application has posted at all.
bool sends_outstanding(Group& group, bool parked);
// What the application has posted and has no word of: from the first such request to the journal's
// end. Requests without a signal before it may be among them.
struct Waiting {
  uint64_t first, end;
};
Waiting sends_waiting(Group& group);
// Posts what waits as far as keys are known, on the way back to the hot path where it can. 0,
// or as pump().
int go_on(Group& group);
// The application has brought the QP of its path to ERR: what waits for a key, or for a
// registration, is given to that QP, which flushes it after all that was posted before. 0, or as
// pump().
int flush_waiting(Group& group);
void remote_keys_add(Group& group, int member, const std::vector<wire::KeyPair>& keys);
// The error that the application gets if the group fails: none is known, or this one if none is.
void original_error_forget(Group& group);
void original_error_suggest(Group& group, ibv_wc_status status, uint32_t vendor_error);

}  // namespace shift::group
