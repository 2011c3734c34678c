// The machine: events in, states and actions out.
#include "control/coordinator.h"

#include <cerrno>

#include "group/completion.h"
#include "group/path_switch.h"
#include "group/shared_queue.h"
#include "util/config.h"
#include "util/log.h"

namespace shift::control {

using fsm::Action;
using fsm::Event;
using fsm::State;
using group::Group;
using std::chrono::milliseconds;

namespace {

// The states from which a path is left.
bool carries_traffic(State state) {
  return state == State::kActive || state == State::kDraining || state == State::kHeld;
}

bool is_between_paths(State state) {
  return state >= State::kFencing && state <= State::kResuming;
}

}  // namespace

Coordinator::Coordinator(Loop& control, Loop& worker)
    : control_(control), worker_(worker), presence_(config().port) {
  group::fault_sink = this;
}

Coordinator::~Coordinator() = default;

Binding* Coordinator::find(uint64_t serial) {
  auto it = bindings_.find(serial);
  return it == bindings_.end() ? nullptr : it->second.get();
}

void Coordinator::fault(Group* group, Event event, int member, group::Cause cause) {
  // Only the number travels: the group may be destroyed before the task runs.
  control_.call_soon(
      [this, serial = group->life.serial, event, member, cause, seen = control_.now()] {
        Binding* binding = find(serial);
        if (binding == nullptr) return;
        // What happened on a path that is left already is not news.
        if (member != group::kNoMember && member != binding->group->life.path.member) return;
        feed(*binding, event, cause, seen);
      });
}

// The queue's end waits for the worker, behind this.
void Coordinator::receives_wanted(group::SharedQueue* queue) {
  worker_.call_soon([queue] { queue->recall_some(); });
}

void Coordinator::receives_stuck(group::SharedQueue* queue, int member) {
  control_.call_soon([this, queue, member] {
    for (auto& [serial, binding] : bindings_) {
      if (binding->group->srq != queue || binding->group->srq_member != member) continue;
      fault(binding->group, Event::kPathFault, member,
            {"shared receives cannot be brought back", group::Detector::kNeighbour});
    }
  });
}

void Coordinator::receives_refused(group::SharedQueue* queue, int member) {
  control_.call_soon([this, queue, member] {
    for (auto& [serial, binding] : bindings_) {
      if (binding->group->srq != queue || binding->group->srq_member != member) continue;
      binding->refuse_reason = wire::RefuseReason::kKeyMissing;
      fault(binding->group, Event::kReplayRefused, member,
            "a shared receive's region is not registered on the other NIC");
    }
  });
}

void Coordinator::pump_wanted(Group* group) {
  control_.call_soon([this, serial = group->life.serial] {
    Binding* binding = find(serial);
    if (binding == nullptr || binding->query_pending) return;
    // A round that has begun since leaves the path of these keys, and asks for those of the next.
    if (is_between_paths(binding->group->life.control.state)) return;
    const bool registers = group::waits_for_registration(*binding->group);
    // An answer that was asked for in advance may have come between the post that missed the key
    // and this task: nothing is missing then, and no further answer will set the queue going.
    if (!query_keys(*binding) && !registers) return pump(*binding);
    if (registers && !std::exchange(binding->registering, true)) pump_later(*binding);
    if (binding->key_deadline != 0) return;
    // Nothing waits for ever (C6), though no switch is under way whose deadline would bound it.
    binding->key_deadline =
        later(*binding, milliseconds(config().exchange_ms), [this](Binding& late) {
          late.key_deadline = 0;
          const bool still = group::waits_for_registration(*late.group);
          if (!late.query_pending && !still) return;
          // The application broke the QP meanwhile: what waited is flushed.
          if (late.group->life.control.state == State::kClosed) return pump(late);
          feed(late, Event::kReplayRefused,
               still ? "a region is still being registered with the other NIC"
                     : "the peer does not answer for a memory key");
        });
  });
}

// The worker is registering the region: behind that.
void Coordinator::pump_later(Binding& binding) {
  behind_worker(binding, [this](Binding& b) {
    const bool goes_on = !b.query_pending && !is_between_paths(b.group->life.control.state);
    if (goes_on && group::waits_for_registration(*b.group)) {  // begun since
      (void)later(b, milliseconds(1), [this](Binding& again) { pump_later(again); });
      return;
    }
    b.registering = false;
    if (!goes_on) return;
    control_.timer_cancel(std::exchange(b.key_deadline, 0));
    pump(b);
  });
}

// Posts what waited for a key.
void Coordinator::pump(Binding& binding) {
  Group& group = *binding.group;
  int error = 0;
  {
    std::lock_guard lock(group.send.mutex);
    if (group.send.route != group::Route::kOnPath) return;
    error = group::pump(group);
    group::settle(group);
  }
  if (error != 0) {
    feed(binding, group::post_blames_path(error) ? Event::kPathFault : Event::kReplayRefused,
         {"a request could not be posted", group::Detector::kPost});
  }
}

void Coordinator::feed(Binding& binding, Event event, group::Cause cause, Time seen) {
  Group& group = *binding.group;
  Events events{event};
  while (!events.empty()) {
    const Event next = events.front();
    events.pop_front();
    const fsm::Cell& cell = fsm::step(group.life.control.state, next);
    SHIFT_DEBUG("qp 0x%x epoch %u: %s + %s -> %s", group.qpn(), group.life.control.epoch,
                fsm::to_string(group.life.control.state), fsm::to_string(next),
                fsm::to_string(cell.next));
    if (cell.kind == fsm::Kind::kImpossible) {
      // A bug of ours. This group fails closed; the program goes on.
      SHIFT_EVENT("bug", {{"qp", group.qpn()},
                          {"from", fsm::to_string(group.life.control.state)},
                          {"on", fsm::to_string(next)},
                          {"cause", cell.reason}});
      SHIFT_ERROR("qp 0x%x epoch %u: internal error: %s in state %s (%s)", group.qpn(),
                  group.life.control.epoch, fsm::to_string(next),
                  fsm::to_string(group.life.control.state), cell.reason);
      binding.cause = "internal error";
      group.life.control.state = State::kFailed;
      for (Action action :
           {Action::kLeaveDrain, Action::kCancelDeadline, Action::kFail, Action::kSendRefuse}) {
        (void)run(binding, action, &events);
      }
      continue;
    }
    if (cell.kind == fsm::Kind::kIgnore) continue;
    // A post of our own (unpark) that failed.
    if (next == Event::kPathFault && cause.text[0] == '\0') {
      cause = {"a request could not be posted", group::Detector::kPost};
    }
    const bool leaves =
        carries_traffic(group.life.control.state) && cell.next != group.life.control.state;
    if (cause.text[0] != '\0' && (leaves || cell.next == State::kFailed))
      binding.cause = cause.text;
    if (leaves && cause.detector != group::Detector::kNone) {
      binding.detector = cause.detector;
      binding.evidence = seen == Time{} ? control_.now() : seen;
    }
    cause = {};  // what follows from it has its own
    if (next == Event::kPathFault) binding.by_fault = true;
    SHIFT_EVENT(cell.next != group.life.control.state ? "state" : "stay",
                {{"qp", group.qpn()},
                 {"epoch", group.life.control.epoch},
                 {"from", fsm::to_string(group.life.control.state)},
                 {"to", fsm::to_string(cell.next)},
                 {"on", fsm::to_string(next)},
                 {"cause", binding.cause}});
    group.life.control.state = cell.next;
    for (Action action : cell.actions) {
      if (!run(binding, action, &events)) break;
    }
  }
  tend(binding);
}

void Coordinator::feed_answer(Binding& binding, uint32_t epoch, Event event, group::Cause cause) {
  binding.answered_epoch = epoch;
  feed(binding, event, cause);
  binding.answered_epoch.reset();
}

void Coordinator::group_add(Group* group) {
  // At once: who the peer is takes a while to find out, and a fault may come first.
  group::errors_hold(*group, group::kDefault);
  const bool is_known = control_.call_soon([this, group] {
    auto& slot = bindings_[group->life.serial];
    slot = std::make_unique<Binding>();
    Binding& binding = *slot;
    binding.group = group;
    binding.serial = group->life.serial;
    binding.local = group->life.ends.local;
    binding.is_self = group->life.ends.local == group->life.ends.remote;
    // A group's life begins here, again after each reset; from now on feed() alone moves it.
    group->life.control.state = State::kActive;
    group->life.control.epoch = 0;
    group->life.control.is_leader = group->life.ends.local <= group->life.ends.remote;
    by_name_[binding.local] = slot.get();
    binding.book.init(group->context->member_count, binding.is_self, group->life.serial);
    binding.book.own_up_set(members_up(group->context));
    members_make(binding);
    watch_arm(binding);
    // One end looks, the other is found.
    if (group->life.control.is_leader) return look_for_peer(binding);
    binding.no_peer = later(binding, milliseconds(config().rendezvous_ms), [this](Binding& b) {
      b.no_peer = 0;
      peer_missing(b, "nobody has asked for this QP");
    });
  });
  // Nobody would give what is held back.
  if (!is_known && !group::errors_pass(*group, group::kDefault)) group::fail(*group);
}

void Coordinator::group_sends(Group* group) {
  control_.call_soon([this, serial = group->life.serial] {
    Binding* binding = find(serial);
    if (binding == nullptr) return;
    at_worker(
        *binding,
        [](Group& g) {
          int error = 0;
          for (int member = 0; member < g.context->member_count; member++) {
            if (const int e = group::member_qp_start_sending(g, member)) error = e;
          }
          return error;
        },
        [](Binding& b, int error) {
          if (error == 0) return;
          SHIFT_WARN_LIMITED("qp 0x%x: a spare QP cannot start sending (errno %d)", b.group->qpn(),
                             error);
        });
  });
}

void Coordinator::group_forget(Group* group) {
  control_.call_and_wait([this, group] {
    if (Binding* binding = find(group->life.serial)) binding_forget(*binding);
  });
}

void Coordinator::binding_forget(Binding& binding) {
  const Group* group = binding.group;
  feed(binding, Event::kAppClosed);
  binding.over = true;
  if (binding.attempt) attempt_end(binding, Binding::Attempt::Outcome::kUndecided);
  for (Loop::TimerId timer :
       {binding.deadline, binding.look_again, binding.bind_again, binding.no_peer,
        binding.key_deadline, binding.tend_again, binding.better_again, binding.trade.end,
        binding.probe_poll, binding.drain_poll}) {
    control_.timer_cancel(timer);
  }
  for (auto& [key, link] : links_) {
    if (link.trying == binding.serial) link.trying = 0;
  }
  fence_forget(group);
  channel_set(binding, nullptr);
  by_name_.erase(binding.local);
  bindings_.erase(group->life.serial);
}

bool Coordinator::knows_qp(const wire::QpName& name) {
  return by_name_.contains(name);
}

}  // namespace shift::control
