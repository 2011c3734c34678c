// Runs the machine, whose inputs give each session its next state and its actions. Begins and ends
// the sessions, too.
#include "control/coordinator.h"

#include <algorithm>
#include <utility>

#include "group/context.h"
#include "group/errors.h"
#include "group/failing.h"
#include "group/keys.h"
#include "group/locked.h"
#include "group/member_qp.h"
#include "group/shared_queue.h"
#include "group/twins.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::control {

using fsm::Action;
using fsm::Event;
using fsm::State;
using group::Group;

namespace {

// So many sessions try a path at the same time: more would only wait for each other, in the command
// threads of both ends.
constexpr int kTries = 32;
// In so many steps all sessions go to better paths, with one in each step if there are fewer.
constexpr int kMoves = 64;

}  // namespace

Coordinator::Coordinator(net::Loop& control, group::CommandThreads& commands)
    : control_(control),
      nics_(control, *this),
      events_(control, nics_, *this),
      presence_(control, nics_),
      turns_(
          control, [this](uint64_t serial) { tend(serial); }, [] { return kTries; }),
      moves_(
          control, [this](uint64_t serial) { tend(serial); },
          [this] { return std::max(1, static_cast<int>(sessions_.count()) / kMoves); }),
      repeats_(control, [this](const net::PeerChannel* channel) { say_again(channel); }),
      receive_turns_(control),
      late_(control, nics_),
      jobs_(control, sessions_, late_),
      fences_(
          control, sessions_, late_,
          [](Session& session, const group::Fence::Entry& entry) { session.round.fenced(entry); }),
      errors_(control, sessions_, jobs_),
      lines_(control),
      orders_(control, sessions_, *this),
      reporter_(control, sessions_, nics_, orders_),
      locator_(control, sessions_, nics_, late_, *this, reporter_, orders_),
      reaper_(control) {
  group::fault_sink = this;
  group::command_threads = &commands;
}

Coordinator::~Coordinator() = default;

void Coordinator::network_set(std::unique_ptr<net::PeerNetwork> network) {
  net_ = std::move(network);
  nics_.network_set(net_.get());
  presence_.network_set(net_.get());
  shared_ = std::make_unique<Shared>(Shared{control_, *net_, *this, sessions_, jobs_, nics_, pairs_,
                                            turns_, moves_, shares_, errors_, read_backs_, lines_,
                                            reporter_});
}

void Coordinator::tend(uint64_t serial) {
  if (Session* session = sessions_.find(serial)) session->paths.tend();
}

// ---- the machine

void Coordinator::feed(Session& session, const Input& input) {
  // A timer of a session whose group ends; nothing follows from it any more.
  if (session.group.is_ending && input.event != Event::kAppClosed) return;
  std::vector<Input> inputs = std::exchange(inputs_, {});
  inputs.push_back(input);
  for (size_t i = 0; i < inputs.size(); i++) {
    const Input next = inputs[i];
    feed_one(session, next, inputs);
  }
  inputs.clear();
  inputs_ = std::move(inputs);  // its memory serves again
  session.paths.tend();
  locator_.touch(session);
  reporter_.touch(session);
}

void Coordinator::feed_one(Session& session, const Input& input, std::vector<Input>& inputs) {
  Group& group = session.group;
  const State from = session.control.state;
  const fsm::Cell& cell = fsm::step(from, input.event);
  SHIFT_DEBUG("qp 0x%x epoch %u: %s + %s -> %s", group.qpn(), session.control.epoch,
              fsm::to_string(from), fsm::to_string(input.event), fsm::to_string(cell.next));
  if (cell.kind == fsm::Kind::kImpossible) return fail_impossible(session, input, cell, inputs);
  if (cell.kind == fsm::Kind::kIgnore) return;
  const bool leaves = fsm::kCarrying.has(from) && cell.next != from;
  const auto left = session.book.current();
  Round& round = session.round;
  round.note_cause(input.cause, leaves || cell.next == State::kFailed);
  if (leaves) round.note_evidence(input.cause.detector, input.seen.value_or(control_.now()));
  if (input.event == Event::kPathFault || input.is_peer_fault) round.note_fault();
  if (input.refusal) round.note_refusal(*input.refusal);
  SHIFT_EVENT(cell.next != from ? "state" : "stay", {{"qp", group.qpn()},
                                                     {"epoch", session.control.epoch},
                                                     {"from", fsm::to_string(from)},
                                                     {"to", fsm::to_string(cell.next)},
                                                     {"on", fsm::to_string(input.event)},
                                                     {"cause", round.cause()}});
  if (input.event == Event::kBound) reporter_.peer_found();
  if (input.event == Event::kNoPeer) reporter_.peer_missing();
  if (input.event == Event::kDrainTimeout) reporter_.drain_called_off();
  enter(session, cell.next, cell.actions, input, inputs);
  const bool is_told = input.cause.detector != group::Detector::kPeer || input.is_peer_fault;
  if (leaves && left && is_told) locator_.evidence(session, *left, input.cause);
}

// No other function assigns a state.
void Coordinator::enter(Session& session, State next, std::span<const Action> actions,
                        const Input& input, std::vector<Input>& inputs) {
  const bool leaves = !fsm::kLeaving.has(session.control.state) && fsm::kLeaving.has(next);
  session.control.state = next;
  if (leaves) session.search.path_left();
  Step step{input, inputs};
  for (Action action : actions) {
    run(session, action, step);
    if (step.is_stopped) break;
  }
}

// An input that cannot occur in the session's state is a bug of the layer. The group fails closed,
// and the program goes on.
void Coordinator::fail_impossible(Session& session, const Input& input, const fsm::Cell& cell,
                                  std::vector<Input>& inputs) {
  Group& group = session.group;
  SHIFT_EVENT("bug", {{"qp", group.qpn()},
                      {"from", fsm::to_string(session.control.state)},
                      {"on", fsm::to_string(input.event)},
                      {"cause", cell.reason}});
  SHIFT_ERROR_LIMITED("qp 0x%x epoch %u: internal error: %s in state %s (%s)", group.qpn(),
                      session.control.epoch, fsm::to_string(input.event),
                      fsm::to_string(session.control.state), cell.reason);
  session.round.note_cause("internal error", true);
  static constexpr Action kEnd[] = {Action::kLeaveDrain, Action::kCancelDeadline, Action::kFail,
                                    Action::kSendRefuse};
  enter(session, State::kFailed, kEnd, input, inputs);
}

// ---- what other threads tell

// The task keeps only the group's serial number, because the group may be destroyed before the task
// runs.
void Coordinator::soon(uint64_t serial, std::function<void(Session&)> then) {
  control_.call_soon([this, serial, then = std::move(then)] {
    if (Session* session = sessions_.find(serial)) then(*session);
  });
}

void Coordinator::fault(Group* group, Event event, int member, group::Cause cause) {
  soon(group->life.serial, [this, event, member, cause, seen = control_.now()](Session& session) {
    // A fault on a member that the group has left already is of no interest.
    if (member != group::kNoMember && member != session.group.life.path.member) return;
    // The flushes behind an error that the NIC is being asked about say nothing of their own.
    if (event == Event::kPathFault && cause.detector == group::Detector::kCompletion &&
        session.verdict.is_open(member)) {
      return;
    }
    feed(session, {.event = event, .cause = cause, .seen = seen});
  });
}

void Coordinator::verdict_wanted(Group* group, int member) {
  soon(group->life.serial, [member](Session& session) { session.verdict.want(member); });
}

void Coordinator::pump_wanted(Group* group) {
  soon(group->life.serial, [](Session& session) { session.keys.pump_wanted(); });
}

void Coordinator::read_back_wanted(Group* group) {
  soon(group->life.serial, [this](Session& session) {
    for (int member = 0; member < session.group.context->member_count; member++) {
      const auto make = [member](Group& g) {
        group::read_back_make(g, member);
        return 0;
      };
      jobs_.run(session, member, make, [](Session&, int) {});
    }
  });
}

void Coordinator::read_back_failed(Group* group, int member) {
  soon(group->life.serial, [this, member](Session& session) {
    const auto& state = session.group.read_back.members[member].state;
    if (state != group::ReadBack::State::kBroken) return;  // traffic has moved there anew
    sessions_.for_each_of(session.group.context, [&](Session& other) {
      if (other.is_self || other.group.life.path.member != member) return;
      fault(&other.group, Event::kPathFault, member,
            {"the NIC does not read back", group::Detector::kNeighbour});
    });
  });
}

void Coordinator::receives_wanted(group::SharedQueue* queue, int member) {
  (void)group::on_nic(queue->context, member,
                      [held = group::Held(queue), member] { held->recall_some(member); });
}

void Coordinator::receives_scarce(group::SharedQueue* queue) {
  control_.call_soon([this, held = group::Held(queue)] { receive_turns_.begin(held); });
}

void Coordinator::receives_stuck(group::SharedQueue* queue, int member) {
  control_.call_soon([this, queue, member] {
    sessions_.for_each([&](Session& session) {
      if (session.group.srq != queue || session.group.srq_member != member) return;
      fault(&session.group, Event::kPathFault, member,
            {"shared receives cannot be brought back", group::Detector::kNeighbour});
    });
  });
}

void Coordinator::receives_refused(group::SharedQueue* queue, int member) {
  control_.call_soon([this, queue, member] {
    sessions_.for_each([&](Session& session) {
      if (session.group.srq != queue || session.group.srq_member != member) return;
      session.round.note_refusal(wire::RefuseReason::kKeyMissing);
      fault(&session.group, Event::kReplayRefused, member,
            "a shared receive's region is not registered on the other NIC");
    });
  });
}

// ---- the life of a session

void Coordinator::group_add(Group* group) {
  // Errors are held back at once, because it takes a while to find the peer, and a fault may come
  // first.
  group::errors_hold(*group, group::kDefault);
  group->life.is_alone = false;
  // The task holds the group: the application may destroy the QP at once, and what it leaves may be
  // reaped before this task has its turn. (A Held would not fit into the task without memory.)
  group->holders.add();
  const bool is_known = control_.call_soon([this, group] {
    const group::Held held(group);
    group::let_go(group);
    session_begin(*held);
  });
  if (!is_known) group::let_go(group);
  // Without the control loop, nobody would give the application the errors that are held back.
  if (!is_known && !group::errors_pass(*group, group::kDefault)) group::fail(*group);
}

// A session begins here, and a new one after each reset of the QP. From now on only feed() changes
// its state.
void Coordinator::session_begin(Group& group) {
  if (group.is_ending) return;
  // The NIC may give the number of a QP out again as soon as that QP is destroyed. The peer must
  // hear that the old one is closed before it hears of the new one.
  Session* const old = sessions_.find_any(group.life.ends.local);
  if (old != nullptr && old->group.is_ending && !SHIFT_PLANT(ending_name_kept))
    session_forget(*old);
  group.life.control.is_leader = group.life.ends.local <= group.life.ends.remote;
  Session& session = sessions_.add(std::make_unique<Session>(group, *shared_));
  read_backs_.add(session);
  session.qps.make();
  if (session.is_self) {
    group.life.is_self = true;
    read_back_prepare(group);
    read_back_wanted(&group);
  }
  session.watch_errors();
  session.lost_early = group.life.unconnected || !nics_.is_up(group.context, group::kDefault);
  orders_.session_begin(session);
  session.search.begin();
  reporter_.touch(session);
}

void Coordinator::group_sends(Group* group) {
  soon(group->life.serial, [this](Session& session) {
    session.search.sends_begin();
    if (const auto kept = session.search.take_kept()) on(kept->channel, kept->bind);
    // What happened to the NIC while the QP was in RTR was not acted on (nic_lost).
    const int member = session.group.life.path.member;
    if (std::exchange(session.lost_early, false) && member >= group::kDefault &&
        (session.group.life.unconnected || !nics_.is_up(session.group.context, member))) {
      feed(session,
           {.event = Event::kPathFault,
            .cause = {"the NIC was lost before the QP could send", group::Detector::kPort}});
    }
    for (int each = 0; each < session.group.context->member_count; each++) {
      jobs_.run(
          session, each, [each](Group& g) { return group::member_qp_start_sending(g, each); },
          [](Session& started, int error) {
            if (error == 0) return;
            SHIFT_WARN_LIMITED("qp 0x%x: a spare QP cannot start sending (errno %d)",
                               started.group.qpn(), error);
          });
    }
  });
}

void Coordinator::group_forget(Group* group) {
  control_.call_and_wait([this, group] {
    if (Session* session = sessions_.find_any(group->life.serial)) session_forget(*session);
  });
  group->life.is_alone = true;
}

void Coordinator::group_ended(Group* group) {
  net::Loop::Task task = [this, held = group::Held(group)] {
    if (Session* session = sessions_.find_any(held->life.serial)) session_forget(*session);
    group::twin_qps_destroy(*held);
    // The control thread may have been about to tell the peer a key when the group began to end.
    if (!SHIFT_PLANT(told_while_ending)) group::told_keys_forget(*held);
  };
  // Otherwise nobody lets go of the group any more, since a session may know it.
  if (!reaper_.add(task)) group->holders.add();
}

void Coordinator::session_forget(Session& session) {
  feed(session, {.event = Event::kAppClosed});
  session.end();
  session.paths.stop();
  pairs_.session_forget(session.serial);
  fences_.forget(&session.group);
  read_backs_.forget(session);
  reporter_.session_forget(session);
  sessions_.remove(session);
}

void Coordinator::later(net::Loop::Task task) noexcept {
  if (SHIFT_PLANT(later_is_now) || !reaper_.add(task)) task();
}

void Coordinator::context_add(group::Context* context, const group::PerMember<bool>& ports_up) {
  control_.call_and_wait([this, context, &ports_up] {
    nics_.context_add(context, ports_up);
    events_.context_add(context);
    errors_.context_add(context);
    orders_.context_add(context);
    reporter_.context_changed(context);
  });
}

void Coordinator::context_forget(group::Context* context) {
  control_.call_and_wait([this, context] {
    if (!SHIFT_PLANT(closed_before_reaped)) reaper_.run();
    // QPs that the application leaves on the context are its leak, as with the stock library; the
    // layer lets go of them.
    for (Session* session : sessions_.all_of(context)) session_forget(*session);
    locator_.context_forget(context);
    reporter_.context_forget(context);
    orders_.context_forget(context);
    errors_.context_forget(context);
    events_.context_forget(context);
    nics_.context_forget(context);
    pairs_.context_forget(context);
  });
}

void Coordinator::cq_stays(group::CompletionQueue* cq) {
  control_.call_soon([this, held = group::Held(cq)] { errors_.cq_again(*held); });
}

// Whoever makes or destroys a QP keeps the context, and its end waits behind this task.
void Coordinator::stock_qps_changed(group::Context* context) {
  control_.call_soon([this, context] { reporter_.context_changed(context); });
}

// The context lives until context_forget() returns, which is behind this task.
void Coordinator::keys_gone(group::Context* context) {
  control_.call_soon([this, context] {
    std::vector<uint64_t> listeners;
    {
      std::lock_guard lock(context->mutex);
      listeners = context->told_keys.listeners();
    }
    for (uint64_t serial : listeners) {
      if (Session* session = sessions_.find(serial)) session->gone.say();
    }
  });
}

}  // namespace shift::control
