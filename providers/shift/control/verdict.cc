#include "control/verdict.h"

#include <utility>

#include "control/input.h"
#include "control/jobs.h"
#include "control/session.h"
#include "group/context.h"
#include "group/errors.h"
#include "group/port.h"
#include "util/planted.h"

namespace shift::control {

using fsm::Event;
using fsm::State;
using group::Group;

void Verdict::want(int member, std::function<void()> then) {
  Question& question = questions_[member];
  const bool is_asked = is_open(member);
  if (!is_asked) question.number = next_number_++;
  if (then) question.if_believed.push_back(std::move(then));
  if (group::is_late(*session_.group.context, member)) {
    return SHIFT_PLANT(late_nic_believed) ? answered(member, question.number, true)
                                          : nic_late(member);
  }
  if (is_asked) return;
  jobs_.run(
      session_, member,
      [member](const Group& g) { return group::member_port_is_up(*g.context, member); },
      [member, number = question.number](Session& session, bool is_up) {
        session.verdict.answered(member, number, is_up);
      });
}

void Verdict::answered(int member, uint32_t number, bool is_up) {
  if (number == 0 || questions_[member].number != number) return;  // too late, as the NIC was
  const Question question = std::exchange(questions_[member], {});
  // If the group has left the path, the request meets its error again on the next one.
  if (member != session_.group.life.path.member) return;
  if (is_up || SHIFT_PLANT(port_not_asked)) {
    for (const auto& then : question.if_believed) then();
    return application(member, "application error completion");
  }
  {
    group::CqLock lock(session_.group);
    group::kept_hold_back(session_.group);
  }
  machine_.feed(session_,
                {.event = Event::kPathFault,
                 .cause = {"error of a NIC without a port", group::Detector::kCompletion}});
}

void Verdict::application(int member, const char* cause) {
  Group& group = session_.group;
  if (member != group.life.path.member) return;
  // Errors that are held back are let go before the machine closes the session, because nobody
  // would let go of them afterwards. In the middle of a round or of a drain the machine itself
  // fails the group, and gives the application everything.
  const State state = session_.control.state;
  const bool is_in_round = fsm::kLeaving.has(state) || fsm::kOver.has(state);
  const bool is_shown =
      group::kept_pass(group, member) || is_in_round || group::errors_pass(group, member);
  if (!is_shown && !fsm::kParked.has(state)) session_.failing.begin();
  machine_.feed(session_, {.event = Event::kAppError, .cause = cause});
}

}  // namespace shift::control
