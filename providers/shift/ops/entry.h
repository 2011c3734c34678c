// What the files of ops/ share: access to virtual objects and to the control thread.
#pragma once

#include <cerrno>
#include <memory>
#include <new>

#include "control/runtime.h"
#include "group/completion_queue.h"
#include "group/context.h"
#include "group/domain.h"
#include "ops/glue.h"
#include "util/config.h"

namespace shift::ops {

inline group::ProtectionDomain* virtual_pd(ibv_pd* pd) {
  return group::ProtectionDomain::from(pd);
}
inline bool is_virtual_cq(ibv_cq* cq) {
  return cq != nullptr && owns(cq->context);
}
inline group::CompletionChannel* virtual_channel(ibv_comp_channel* channel) {
  return reinterpret_cast<group::CompletionChannel*>(channel);
}

// The program asks for what only younger headers know, by a bit in the mask of its attributes. The
// layer copies attributes in the size that it knows, so a provider that is as young would read
// beyond the copy. Sets errno.
inline bool asks_for_newer(uint64_t mask, uint64_t known) {
  if ((mask & ~known) == 0) return false;
  errno = EOPNOTSUPP;
  return true;
}

// How the NIC's own queues are read, if what is posted is kept as notes (group/journal.h); or
// nullptr.
inline const WorkRingTable* work_rings() {
  return config().journal_by_notes ? stock->work_rings : nullptr;
}

inline control::Coordinator& coordinator() {
  return control::runtime()->coordinator;
}

}  // namespace shift::ops
