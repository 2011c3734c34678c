// Shared by the files of ops/: access to virtual objects and to the background threads.
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

// Runs a task for the backup member; never waits for it.
template <typename Task>
void in_background(Task task) {
  if (auto* runtime = control::runtime()) runtime->worker.call_soon(std::move(task));
}
// As in_background(), about an object that outlives its jobs.
template <typename Object, typename Task>
void in_background_for(Object* object, Task task) {
  ++object->jobs;
  in_background([object, task] {
    task(*object);
    --object->jobs;  // the object may be gone after this
  });
}
// As in_background(), and waits: to take a backup object down after everything that was queued for
// it. False: there is no worker, as in a fork child with what it inherited.
template <typename Task>
bool in_background_and_wait(Task task) {
  auto* runtime = control::runtime();
  return runtime != nullptr && runtime->worker.call_and_wait(task);
}
inline control::Coordinator& coordinator() {
  return control::runtime()->coordinator;
}

}  // namespace shift::ops
