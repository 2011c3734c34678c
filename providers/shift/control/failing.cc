#include "control/failing.h"

#include <utility>

#include "control/jobs.h"
#include "control/session.h"
#include "group/context.h"
#include "group/failing.h"
#include "group/member_qp.h"
#include "group/park.h"

namespace shift::control {

using group::Group;

void Failing::begin() {
  if (std::exchange(has_begun_, true)) return;
  // The peer may refuse before the fence has begun, so the group may not be parked yet.
  Group* const group = &session_.group;
  group::park({&group, 1});
  if (group->is_ending) return;  // it was not parked, and its QP is the application's thread's
  const int members = group->context->member_count;
  waits_for_ = (1u << members) - 1;
  for (int m = 0; m < members; m++) {
    if (group->real[m] == nullptr || group::is_late(*group->context, m)) {
      stopped(m);
      continue;
    }
    jobs_.run(
        session_, m,
        // A dead device refuses ERR, but it writes nothing either.
        [m](Group& g) { return group::member_qp_to_state(g, m, IBV_QPS_ERR); },
        [m](Session& session, int) { session.failing.stopped(m); });
  }
}

void Failing::stopped(int member) {
  const uint32_t bit = 1u << member;
  if ((waits_for_ & bit) == 0) return;
  waits_for_ &= ~bit;
  if (waits_for_ != 0) return;
  group::fail_stopped(session_.group);
  await_batch();
}

// The errors of a batch that a thread is building are given when the batch is over.
void Failing::await_batch() {
  if (group::batch_is_over(session_.group)) return;
  look_again_.start(std::chrono::milliseconds(1), [this] { await_batch(); });
}

}  // namespace shift::control
