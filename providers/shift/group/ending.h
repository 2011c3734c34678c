// The end of a group whose control thread is not waited for (docs/decisions/0034-destroy.md).
//
// A group that is `is_ending` belongs to the application's thread that destroys the QP. Background
// threads leave its default QP and its queues alone, though the control thread may still have a
// session for it. What they would do to them, they do under a lock that the ending took, or in a
// JobTurn, and look first.
#pragma once

namespace shift::group {

struct Group;

// The application destroys the QP. False: the group is off its default path, or a round or a drain
// has barred its queues, so the control thread must forget it first.
[[nodiscard]] bool ending_begin(Group& group);
// The QP could not be destroyed, and the control thread has forgotten the group.
void ending_undo(Group& group);
// After ending_begin(): whether a command thread is in the middle of a job on the default's QP. No
// further job begins.
bool is_default_at_work(const Group& group);

// A job of a command thread for a group, while this object lives.
class JobTurn {
 public:
  JobTurn(Group& group, int member);
  ~JobTurn();
  JobTurn(const JobTurn&) = delete;
  JobTurn& operator=(const JobTurn&) = delete;
  // False: the group ends, so the job must not run.
  explicit operator bool() const { return may_run_; }

 private:
  Group& group_;
  const bool counts_;
  bool may_run_;
};

}  // namespace shift::group
