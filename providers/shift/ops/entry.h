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

inline control::Coordinator& coordinator() {
  return control::runtime()->coordinator;
}

}  // namespace shift::ops
