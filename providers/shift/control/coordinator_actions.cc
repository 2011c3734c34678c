// Handles the table's actions, with one function for each. Most of them call one of the session's
// parts.
#include <algorithm>
#include <array>

#include "control/coordinator.h"
#include "control/ways.h"
#include "group/context.h"
#include "group/drain.h"
#include "group/errors.h"
#include "group/failing.h"
#include "group/park.h"
#include "group/peer_gone.h"
#include "group/replay.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::control {

using fsm::Action;
using fsm::Event;
using fsm::State;
using group::Group;
using std::chrono::milliseconds;

struct Coordinator::Handlers {
  std::array<Handler, static_cast<size_t>(Action::kCount)> of{};
  // This array is apart from `of`, because the compiler of a sanitizer build does not compare such
  // pointers at compile time.
  std::array<bool, static_cast<size_t>(Action::kCount)> is_set{};

  constexpr Handlers() {
    set(Action::kNone, &Coordinator::do_none);
    set(Action::kProtect, &Coordinator::do_protect);
    set(Action::kUnprotect, &Coordinator::do_unprotect);
    set(Action::kPark, &Coordinator::do_park);
    set(Action::kUnpark, &Coordinator::do_unpark);
    set(Action::kWatchDrain, &Coordinator::do_watch_drain);
    set(Action::kLeaveDrain, &Coordinator::do_leave_drain);
    set(Action::kSendDrain, &Coordinator::do_send_drain);
    set(Action::kSendDrained, &Coordinator::do_send_drained);
    set(Action::kSendDrainCancel, &Coordinator::do_send_drain_cancel);
    set(Action::kEnterEpoch, &Coordinator::do_enter_epoch);
    set(Action::kSendSwitch, &Coordinator::do_send_switch);
    set(Action::kStartFence, &Coordinator::do_start_fence);
    set(Action::kArmDeadline, &Coordinator::do_arm_deadline);
    set(Action::kCancelDeadline, &Coordinator::do_cancel_deadline);
    set(Action::kSeekPath, &Coordinator::do_seek_path);
    set(Action::kKeepProgress, &Coordinator::do_keep_progress);
    set(Action::kCommit, &Coordinator::do_commit);
    set(Action::kSendProgress, &Coordinator::do_send_progress);
    set(Action::kRequestKeys, &Coordinator::do_request_keys);
    set(Action::kReplay, &Coordinator::do_replay);
    set(Action::kFail, &Coordinator::do_fail);
    set(Action::kSendRefuse, &Coordinator::do_send_refuse);
    set(Action::kSendClose, &Coordinator::do_send_close);
    set(Action::kFlushWaiting, &Coordinator::do_flush_waiting);
    set(Action::kRebind, &Coordinator::do_rebind);
  }
  constexpr void set(Action action, Handler handler) {
    of[static_cast<size_t>(action)] = handler;
    is_set[static_cast<size_t>(action)] = true;
  }
  constexpr bool is_complete() const {
    return std::ranges::all_of(is_set, [](bool one) { return one; });
  }
};

void Coordinator::run(Session& session, Action action, Step& step) {
  static constexpr Handlers kHandlers;
  static_assert(kHandlers.is_complete());
  (this->*kHandlers.of[static_cast<size_t>(action)])(session, step);
}

void Coordinator::do_none(Session&, Step&) {}

// ---- protection

void Coordinator::do_protect(Session& session, Step&) {
  group::errors_hold(session.group, session.group.life.path.member);
}

// The group is unprotected from here on: the application sees all errors of the path.
void Coordinator::do_unprotect(Session& session, Step& step) {
  Group& group = session.group;
  // A session whose peer was never proven goes on, because the peer may still come.
  if (session.search.is_proven()) {
    session.end();
    session.gone.over();
    const auto tell = group::peer_gone.load();
    if (tell != nullptr && group.life.path.departures != 0) tell(group.handle());
  }
  if (group::errors_pass(group, group.life.path.member)) {
    if (session.keys.is_left_waiting())
      step.then(Event::kReplayRefused, KeyExchange::kNobodyAnswers);
    else if (group.life.unconnected && group.life.path.member == group::kDefault)
      step.then(Event::kReplayRefused, "its NIC has refused to connect it, and no peer was found");
    return;
  }
  // An error was held back already, and its report is on its way to this loop. The report will find
  // the group unprotected, and the application cannot see all of the error without help.
  session.failing.begin();
  step.then(Event::kAppError);
}

// ---- parking and draining

void Coordinator::do_park(Session& session, Step&) {
  // If a batch is open on the hot path, is_drained() tries again.
  group::park_sends(session.group);
}

void Coordinator::do_unpark(Session& session, Step& step) {
  session.way_back.end_trade();
  const int error = group::unpark(session.group);
  if (error == 0) return;
  step.then(group::post_blames_path(error) ? Event::kPathFault : Event::kReplayRefused,
            {"a request could not be posted", group::Detector::kPost});
}

void Coordinator::do_watch_drain(Session& session, Step&) {
  session.drain.watch();
}

void Coordinator::do_leave_drain(Session& session, Step&) {
  session.drain.leave();
}

// The leader leaves the path by its own choice, which no other group has to follow.
void Coordinator::do_send_drain(Session& session, Step&) {
  session.round.note_choice();
  session.drain.send_ask();
}

void Coordinator::do_send_drained(Session& session, Step&) {
  session.drain.send_done();
}

void Coordinator::do_send_drain_cancel(Session& session, Step&) {
  session.drain.send_cancel();
  session.way_back.drain_failed();
}

// ---- a round

void Coordinator::do_enter_epoch(Session& session, Step& step) {
  session.round.enter_epoch(step.input.epoch);
}

void Coordinator::do_send_switch(Session& session, Step&) {
  session.round.send_switch();
}

void Coordinator::do_start_fence(Session& session, Step&) {
  fences_.start(session);
}

void Coordinator::do_arm_deadline(Session& session, Step&) {
  session.round.arm_deadline();
}

void Coordinator::do_cancel_deadline(Session& session, Step&) {
  session.round.cancel_deadline();
}

void Coordinator::do_seek_path(Session& session, Step& step) {
  // A path that is ready now is not the path that the current one was given up for.
  if (session.way_back.wanted()) return session.way_back.seek();
  const PathBook::Ready* ready = session.book.best_ready();
  if (!session.control.is_leader) return;
  if (ready == nullptr) return session.paths.hurry();  // tend() looks for a path
  Input found = step.input.then(Event::kPathReady);
  found.target = {ready->path, ready->generation};
  step.inputs.push_back(found);
}

void Coordinator::do_keep_progress(Session& session, Step& step) {
  if (step.input.progress != nullptr) session.round.keep(*step.input.progress);
}

void Coordinator::do_commit(Session& session, Step& step) {
  if (step.input.target) session.round.set_target(*step.input.target);
  const auto problem = session.round.commit(step.input);
  if (!problem) return;
  step.inputs.push_back(*problem);
  step.is_stopped = true;
}

void Coordinator::do_send_progress(Session& session, Step&) {
  session.round.send_progress();
}

void Coordinator::do_request_keys(Session& session, Step& step) {
  if (!session.keys.ask()) step.then(Event::kKeysReady);
  spread(session);
}

void Coordinator::do_replay(Session& session, Step& step) {
  if (const auto problem = session.round.replay(step.input)) step.inputs.push_back(*problem);
}

// The peer agrees that this path is broken, so the other QPs of the same NIC pair leave it now,
// without waiting for the retry time of each one's NIC.
void Coordinator::spread(Session& origin) {
  const Round& round = origin.round;
  if (!round.is_by_fault() || !round.left()) return;
  // One session does this for all sessions that left the path together.
  const PathName left = own_first(origin, *round.left());
  NicPair& pair = origin.paths.pair_of(left);
  if (pair.spread >= round.detected()) return;
  pair.spread = control_.now();
  sessions_.for_each_of(origin.group.context, [&](Session& other) {
    if (&other == &origin || other.control.state != State::kActive) return;
    if (other.search.channel() != origin.search.channel() ||
        other.ends.remote.gid != origin.ends.remote.gid || !other.book.current() ||
        own_first(other, *other.book.current()) != left ||
        other.round.active_since() > round.detected()) {
      return;  // not on that path, or only since the fault
    }
    soon(other.serial, [this, path = round.left(), seen = control_.now()](Session& told) {
      // Meanwhile the peer may have said so, and then this is no word on the path that came next.
      if (told.book.current() != path && !SHIFT_PLANT(late_word_taken)) return;
      feed(told, {.event = Event::kPathFault,
                  .cause = {"another QP of the same path failed", group::Detector::kNeighbour},
                  .seen = seen});
    });
  });
}

// ---- the end

void Coordinator::do_fail(Session& session, Step&) {
  Group& group = session.group;
  fences_.forget(&group);
  session.failing.begin();
  session.end();
  session.gone.over();
  session.way_back.end_trade();
  session.paths.stop();
  // The kernel's word on the connection may have been hidden from the application, and the kernel
  // will not repeat it.
  if (const auto tell = group::peer_gone.load(); tell != nullptr) tell(group.handle());
  const Round& round = session.round;
  if (lines_.failed.allow())
    SHIFT_ERROR("qp 0x%x on %s: %s: the application gets the original error", group.qpn(),
                group.context->device->dev.name, round.cause());
  SHIFT_EVENT("failed", {{"qp", group.qpn()},
                         {"epoch", session.control.epoch},
                         {"detector", to_string(round.detector())},
                         {"cause", round.cause()}});
  reporter_.failed(session, round.refusal(), {round.cause(), round.detector()});
  if (!group.context->members[group::kDefault].dead) return;
  ibv_async_event event{};
  event.event_type = IBV_EVENT_DEVICE_FATAL;
  event.element.port_num = 1;
  events_.give(group.context, event, false);
}

void Coordinator::do_send_refuse(Session& session, Step& step) {
  wire::Refuse refusal{session.ends.local, session.ends.remote,
                       step.input.epoch.value_or(session.control.epoch), session.round.refusal()};
  if (session.control.state == State::kClosed) refusal.reason = wire::RefuseReason::kGone;
  session.search.send(refusal);
}

void Coordinator::do_send_close(Session& session, Step&) {
  session.search.send(wire::Close{session.ends.local, session.ends.remote});
}

void Coordinator::do_flush_waiting(Session& session, Step&) {
  session.keys.flush();
}

void Coordinator::do_rebind(Session& session, Step&) {
  session.search.look_later(milliseconds(200));
}

}  // namespace shift::control
