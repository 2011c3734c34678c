#include "group/commit.h"

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "group/completion.h"
#include "group/completion_events.h"
#include "group/context.h"
#include "group/group.h"
#include "group/replay.h"
#include "group/shared_queue.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::group {

Commit commit(Group& group, int member, int peer_member) {
  std::lock_guard send(group.send.mutex);
  std::lock_guard lock(group.recv.mutex);
  {
    CqLock cqs(group);
    group.life.path.member = member;
    if (member != kDefault) group.context->members[member].has_carried = true;
    group.life.path.peer_member = peer_member;
    group.send.given_from = UINT64_MAX;
    group.life.errors.members[member].accept = Accept::kGuard;
    group.life.errors.members[member].fault_reported = false;
    group.life.errors.keeps_refused = false;
    for (CompletionQueue* cq : {group.send_cq, group.recv_cq}) {
      doubt_events(*cq);
      owed_events_settle(*cq);
      if (member != kDefault && !cq->poll_all) {
        cq->poll_all = true;
        // A thread that arms the queue from now on arms this member, too; a thread that has armed
        // it before is seen to have done so.
        barrier_everywhere();
      }
      // This member's completions, too, must wake an application that waits for an event.
      if (cq->real[member] != nullptr && cq->armed) {
        ibv_cq* real = cq->real[member];
        real->context->ops.req_notify_cq(real, cq->armed_solicited);
      }
    }
  }
  group.life.members[member].last_taken = false;
  switch (receives_join(group, member)) {
    case SharedQueue::Join::kDone:
      break;
    case SharedQueue::Join::kUnusable:
      return Commit::kUnusable;
    case SharedQueue::Join::kKeyMissing:
      return Commit::kKeyMissing;
  }
  // (With a shared receive queue, the group's own journal has none of those receives.)
  group.recv.posted = std::min(notifications_received(group), group.recv.journal.head());
  const bool is_known = group.recv.posted >= group.recv.journal.known_from() ||
                        group.recv.posted == group.recv.journal.head();
  if (!is_known && !SHIFT_PLANT(unreadable_ignored)) {
    SHIFT_WARN("qp 0x%x: the receives that were posted cannot be read from the NIC's queue",
               group.qpn());
    return Commit::kKeyMissing;
  }
  switch (const int error = pump_receives(group)) {
    case 0:
      break;
    case ENOKEY:
      return Commit::kKeyMissing;
    default:
      SHIFT_DEBUG("qp 0x%x: receive on member %d: errno %d", group.qpn(), member, error);
      return Commit::kUnusable;
  }
  group.recv.route = Route::kOnPath;
  return Commit::kDone;
}

}  // namespace shift::group
