// Queries about a QP's state, for other files of ops/.
#pragma once

#include "group/command_threads.h"
#include "group/group.h"

namespace shift::ops {

// Whether a fault of the default NIC stays hidden from the group's application, as far as is known.
// The caller does not hold Context::mutex.
bool is_masked(group::Group& group);

// Where the group's send requests go.
group::Route send_route(group::Group* g);

// The member that carries the group's data now, or kNoMember: receives are parked from the
// beginning of a fence until the next path is chosen. The QP is not shut while this thread builds a
// batch that began on the hot path.
int carrying_member(group::Group* g);

// Runs the task on the command thread of a member's NIC: the program must not wait for a NIC that
// hangs, if it is not the program's own. False: the NIC is late, and the task may still run.
template <typename Task>
bool on_command_thread(group::Group* g, int member, const Task& task) {
  using Waited = group::CommandThreads::Waited;
  if (group::is_late(*g->context, member)) return false;
  const Waited waited = group::on_nic_and_wait(*g->context, member, task);
  if (waited == Waited::kNever) task();
  return waited != Waited::kLate;
}

}  // namespace shift::ops
