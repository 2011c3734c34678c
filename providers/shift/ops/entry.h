// What the files of ops/ share: access to virtual objects and to the background threads.
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

// Queues a task for the worker, which works on the further members. Never waits for the task.
template <typename Task>
void in_background(Task task) {
  if (auto* runtime = control::runtime()) runtime->worker.call_soon(std::move(task));
}
// Like in_background(), for a task about an object, which must live until its jobs are done.
template <typename Object, typename Task>
void in_background_for(Object* object, Task task) {
  ++object->jobs;
  in_background([object, task] {
    task(*object);
    --object->jobs;  // the object may be gone after this
  });
}
// Like in_background(), but waits for the task. A real object on a further member is destroyed in
// this way, after every task that was queued for it. False: there is no worker; this is so in a
// fork child, with the objects that it inherited.
template <typename Task>
bool in_background_and_wait(Task task) {
  auto* runtime = control::runtime();
  return runtime != nullptr && runtime->worker.call_and_wait(task);
}
inline control::Coordinator& coordinator() {
  return control::runtime()->coordinator;
}

}  // namespace shift::ops
