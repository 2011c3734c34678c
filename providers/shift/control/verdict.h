// Whose an error is that a NIC has given: the application's own, or that of a NIC that is going,
// whose errors are not believed (docs/decisions/0017-doubtful-errors.md). The state of the NIC's
// port tells, and its command thread asks for it. Each session has one, which only the control loop
// uses.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "group/device.h"

namespace shift::control {

class Jobs;
class Machine;
struct Session;

class Verdict {
 public:
  Verdict(Session& session, Machine& machine, Jobs& jobs)
      : session_(session), machine_(machine), jobs_(jobs) {}

  // The member has given an error that may be the application's. If it is, `then` is called first.
  void want(int member, std::function<void()> then = {});
  // Whether the member's answer has not come yet. If the error is not the application's, it is a
  // fault of the path, so further errors say nothing new. (A group that has left the path is back
  // there after commands to the same NIC, and so after the answer.)
  bool is_open(int member) const { return questions_[member].number != 0; }
  // The NIC does not answer commands, so none of its errors is believed.
  void nic_late(int member) { answered(member, questions_[member].number, false); }
  // The application's own error has broken the QP of that member: it sees what was held back.
  void application(int member, const char* cause);

 private:
  struct Question {
    uint32_t number = 0;  // 0: none is open
    std::vector<std::function<void()>> if_believed;
  };
  void answered(int member, uint32_t number, bool is_up);

  Session& session_;
  Machine& machine_;
  Jobs& jobs_;
  uint32_t next_number_ = 1;
  group::PerMember<Question> questions_;
};

}  // namespace shift::control
