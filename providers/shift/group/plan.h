// What the peer's word proves about the journal: which WRs were executed, and which may run again.
#pragma once

#include <cstdint>

#include "group/packets.h"

namespace shift::group {

struct Group;

struct Plan {
  uint64_t first = 0;  // first WR without a completion
  uint64_t end = 0;
  // The peer has executed all before that position, and packets of the WRITE there (mode exact).
  Executed executed;
  // READs and atomics before that position have completed, data and all: something after them that
  // carries a fence flag was executed.
  uint64_t fenced = 0;
  // Why the group cannot go on; then only what was executed may be completed.
  const char* refusal = nullptr;
};

// The request names an object of another NIC than the committed path's.
bool names_other_nic(const Group& group, uint32_t opcode);

// From group.life.control.peer_received and, in the mode exact, group.life.control.peer_responder.
// Caller holds send.mutex.
Plan make_plan(const Group& group);

}  // namespace shift::group
