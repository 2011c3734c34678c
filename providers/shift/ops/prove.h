// Compares the first requests of a queue with what the NIC's own queue holds of them, before the
// layer counts on that format (group/journal.h: notes).
#pragma once

#include "group/group.h"

namespace shift::ops {

// The NIC has just accepted the whole chain, and the journal does not have it yet. If the chain
// cannot be read back as it is, the journal copies each request from here on. The caller holds the
// queue's mutex; no hot section is running.
void prove_sends(group::Group& group, const ibv_send_wr* chain);
void prove_receives(group::Group& group, const ibv_recv_wr* chain);

}  // namespace shift::ops
