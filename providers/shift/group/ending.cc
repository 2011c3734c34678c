#include "group/ending.h"

#include <mutex>

#include "group/group.h"
#include "util/planted.h"

namespace shift::group {

// The locks are those under which the control thread bars the queues (park.h), posts a probe
// (member_qp.h) and looks into the CQs.
bool ending_begin(Group& group) {
  std::lock_guard send(group.send.mutex);
  std::lock_guard recv(group.recv.mutex);
  CqLock cqs(group);
  const Life& life = group.life;
  const bool is_on_default = group.send.route == Route::kOnDefault &&
                             group.recv.route == Route::kOnDefault && !life.path.off_default &&
                             life.path.member == kDefault && !life.errors.switching;
  // The last three: a QP that has no connection there, and one whose READs come back to it through
  // further QPs, which others use.
  if (!is_on_default || group.send.is_closing || group.is_homeless || life.unconnected ||
      life.is_self) {
    return false;
  }
  group.is_ending.store(true);
  return true;
}

void ending_undo(Group& group) {
  group.is_ending.store(SHIFT_PLANT(ending_for_good));
}

// A job counts itself and then looks whether the group ends; the application's thread says that the
// group ends and then looks at the count. Both orders are sequentially consistent, so one of the
// two sees the other.
bool is_default_at_work(const Group& group) {
  return group.at_work.load() != 0 && !SHIFT_PLANT(work_overlooked);
}

// The jobs on the further members need no count: their QPs are destroyed on the same thread.
JobTurn::JobTurn(Group& group, int member) : group_(group), counts_(member == kDefault) {
  if (counts_) group_.at_work.fetch_add(1);
  may_run_ = !group_.is_ending.load() || SHIFT_PLANT(ending_jobs_run);
}

JobTurn::~JobTurn() {
  if (counts_) group_.at_work.fetch_sub(1);
}

}  // namespace shift::group
