// Has the worker loop do the work of a session that may sleep in the kernel. Only the control loop
// uses this; the jobs themselves run on the worker.
#pragma once

#include "control/sessions.h"
#include "net/loop.h"

namespace shift::control {

class Jobs {
 public:
  Jobs(net::Loop& control, net::Loop& worker, const Sessions& sessions)
      : control_(control), worker_(worker), sessions_(sessions) {}

  // Has the worker do `job(group)`, and then the control loop `then(session, result)`. A group
  // outlives its jobs, because the thread that destroys the group waits for them; its session may
  // not.
  template <typename Job, typename Then>
  void run(const Session& session, Job job, Then then) {
    ++session.group.jobs;
    worker_.call_soon([this, serial = session.serial, group = &session.group, job, then] {
      const auto result = job(*group);
      --group->jobs;  // from here on the group may be gone
      control_.call_soon([this, serial, then, result] {
        if (Session* found = sessions_.find(serial)) then(*found, result);
      });
    });
  }
  // Has the control loop do `then(session)` after all that the worker has to do by now, such as
  // registrations.
  template <typename Then>
  void after_all(const Session& session, Then then) {
    run(
        session, [](group::Group&) { return 0; }, [then](Session& found, int) { then(found); });
  }

 private:
  net::Loop& control_;
  net::Loop& worker_;
  const Sessions& sessions_;
};

}  // namespace shift::control
