#include "group/drain.h"

#include <mutex>

#include "group/completion.h"
#include "group/completion_events.h"
#include "group/group.h"
#include "group/park.h"
#include "group/replay.h"
#include "util/planted.h"

namespace shift::group {
namespace {

ibv_qp* committed_qp(Group& group) {
  return group.real[group.life.path.member];
}

}  // namespace

bool is_drained(Group& group) {
  const int member = group.life.path.member;
  if (member == kNoMember) return true;
  if (!park_sends(group)) return false;
  if (SHIFT_PLANT(drain_not_awaited)) return true;
  std::lock_guard send(group.send.mutex);
  {
    CqLock lock(group);
    collect(*group.send_cq);
    signal_side(*group.send_cq);
    const uint64_t first =
        group.send.journal.first_incomplete(static_cast<uint32_t>(group.counters.done[0]));
    // By signaled completions, all that was posted has completed. (The signaled stand-ins of a READ
    // count as well.)
    if (first >= group.send.posted && group.life.markers.under_way == 0) return true;
    // Requests without a signal are known to be over only when a later one completes. Both values
    // are read while no marker can be polled, because a flushed marker sets `posted` back.
    if (group.life.markers.posted && group.life.markers.under_way == 0) {
      group.send.drained_to = group.send.posted;
      return true;
    }
  }
  if (!group.life.members[member].can_send) return true;
  if (group.life.markers.posted) return false;
  // A thread that posts a receive may hold the mutex for long; the caller looks again later.
  std::unique_lock recv(group.recv.mutex, std::try_to_lock);
  if (!recv.owns_lock()) return false;
  ibv_send_wr wr{}, *bad = &wr;
  wr.wr_id = own_begin(group, member, OwnRequest::Kind::kSendMarker);
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_qp* real = committed_qp(group);
  // Counted before it is posted, because its completion may be polled at once.
  group.life.markers.under_way++;
  group.life.markers.posted = true;
  if (real->context->ops.post_send(real, &wr, &bad) != 0) {
    group.life.markers.posted = false;  // no room: it is tried again when something has completed
    group.life.markers.under_way--;
    if (bad != nullptr) own_refused(group, member, wr.wr_id);
  } else if (group.asks_responder()) {
    const auto done = static_cast<uint32_t>(group.counters.done[0]);
    group.send.sent.marker_add(group.send.posted, group.send.journal.first_incomplete(done));
  }
  return false;
}

int unpark(Group& group) {
  std::lock_guard lock(group.send.mutex);
  group.life.markers.posted = false;
  if (group.send.route != Route::kParked) return 0;
  group.send.route = Route::kOnPath;
  const int error = pump(group);
  settle(group);
  return error;
}

}  // namespace shift::group
