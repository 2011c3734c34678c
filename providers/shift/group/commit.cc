#include "group/commit.h"

#include <mutex>

#include "group/completion.h"
#include "group/context.h"
#include "group/group.h"
#include "group/keys.h"
#include "group/shared_queue.h"
#include "util/log.h"

namespace shift::group {

Commit commit(Group& group, int member, int peer_member, Clock::time_point deadline) {
  std::lock_guard send(group.send.mutex);
  std::lock_guard lock(group.recv.mutex);
  {
    CqLock cqs(group);
    group.life.path.member = member;
    group.life.path.peer_member = peer_member;
    group.life.errors.members[member].accept = Accept::kGuard;
    group.life.errors.members[member].fault_reported = false;
    for (CompletionQueue* cq : {group.send_cq, group.recv_cq}) {
      doubt_events(*cq);
      if (member != kDefault && !cq->poll_all) {
        cq->poll_all = true;
        // A thread that arms the queue now does so on this member, too, or is seen to have armed
        // it.
        barrier_everywhere();
      }
      // An application that waits for an event must be woken by this member's completions too.
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
  ibv_qp* real = group.real[member];
  const RecvJournal& journal = group.recv.journal;
  for (uint64_t position = notifications_received(group); position < journal.head(); position++) {
    ibv_recv_wr wr, *bad;
    ibv_sge sges[kMaxSge];
    journal.rebuild(position, &wr, sges);
    if (!translate_local(*group.context, member, sges, wr.num_sge, deadline)) {
      return Commit::kKeyMissing;
    }
    const int error = real->context->ops.post_recv(real, &wr, &bad);
    if (error != 0) {
      SHIFT_DEBUG("qp 0x%x: receive on member %d: errno %d", group.qpn(), member, error);
      return Commit::kUnusable;
    }
  }
  group.recv.posted = journal.head();
  group.recv.route = Route::kOnPath;
  return Commit::kDone;
}

}  // namespace shift::group
