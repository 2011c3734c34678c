// What the peer's word proves about the journal: which WRs were executed, and which may run again.
#pragma once

#include <cstdint>

#include "group/packets.h"

namespace shift::group {

struct Group;

struct Plan {
  uint64_t first = 0;  // the first WR without a completion
  uint64_t end = 0;
  // The peer has executed all WRs before that position, and, if its responder was asked, some
  // packets of the WRITE there.
  Executed executed;
  // Whether it is known of each atomic under way whether it was executed.
  bool knows_atomics = false;
  // READs and atomics before that position have completed, with their data: a request after them
  // that carries a fence flag was executed.
  uint64_t fenced = 0;
  // Why the group cannot go on. If it is set, only WRs that were executed may be completed.
  const char* refusal = nullptr;
};

// Whether the request names an object of another NIC than the committed path's.
bool names_other_nic(const Group& group, uint32_t opcode);

// Makes the plan from group.life.control.peer_received and, if the mode asks the responder, from
// group.life.control.peer_responder. The caller holds send.mutex.
Plan make_plan(const Group& group);

}  // namespace shift::group
