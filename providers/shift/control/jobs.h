// Has the command threads do the work of a session that may sleep in the kernel. Only the control
// loop uses this; the jobs themselves run on the command threads.
#pragma once

#include <optional>
#include <utility>

#include "control/late_nics.h"
#include "control/sessions.h"
#include "group/command_threads.h"
#include "group/ending.h"
#include "net/loop.h"

namespace shift::control {

class Jobs {
 public:
  Jobs(net::Loop& control, const Sessions& sessions, LateNics& late)
      : control_(control), sessions_(sessions), late_(late) {}

  // Has the command thread of the member's NIC do `job(group)`, and then the control loop
  // `then(session, result)`, if there is such a session then. A group that ends gets neither.
  template <typename Job, typename Then>
  void run(const Session& session, int member, Job job, Then then) {
    late_.expect();
    ++session.group.jobs;
    const auto task = [this, serial = session.serial, held = group::Held(&session.group), member,
                       job, then] {
      std::optional<decltype(job(*held))> result;
      if (const group::JobTurn turn(*held, member); turn) result = job(*held);
      --held->jobs;
      if (!result) return;
      control_.call_soon([this, serial, then, result = *std::move(result)] {
        if (Session* found = sessions_.find(serial)) then(*found, result);
      });
    };
    // Without a thread for it, which the system refused, the job is better done here than never.
    if (!group::on_nic(*session.group.context, member, task)) task();
  }
  // Has the control loop do `then(session)` after all that the command thread of the member's NIC
  // has to do by now, such as registrations.
  template <typename Then>
  void after(const Session& session, int member, Then then) {
    run(
        session, member, [](group::Group&) { return 0; },
        [then](Session& found, int) { then(found); });
  }

 private:
  net::Loop& control_;
  const Sessions& sessions_;
  LateNics& late_;
};

}  // namespace shift::control
