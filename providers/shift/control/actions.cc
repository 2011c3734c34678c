// What the actions of the table do.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "control/coordinator.h"
#include "group/completion.h"
#include "group/keys.h"
#include "group/peer_gone.h"
#include "util/config.h"
#include "util/log.h"

namespace shift::control {

using fsm::Action;
using fsm::Event;
using fsm::State;
using group::Group;
using std::chrono::microseconds;
using std::chrono::milliseconds;

bool Coordinator::run(Binding& binding, Action action, Events* follow_up) {
  Group& group = *binding.group;
  switch (action) {
    case Action::kNone:
    case Action::kCount:
      break;
    case Action::kProtect:
      group::errors_hold(group, group.life.path.member);
      break;
    case Action::kUnprotect:
      unprotect(binding, follow_up);
      break;
    case Action::kPark:
      group::park_sends(group);
      break;
    case Action::kUnpark:
      trade_end(binding);
      if (const int error = group::unpark(group); error != 0) {
        follow_up->push_back(group::post_blames_path(error) ? Event::kPathFault
                                                            : Event::kReplayRefused);
      }
      break;
    case Action::kWatchDrain:
      binding.own_drained = binding.peer_drained = false;
      binding.drain_give_up =
          control_.now() + milliseconds(config().drain_ms) * (group.life.control.is_leader ? 1 : 4);
      binding.drain_poll = later(binding, {}, [this](Binding& b) { watch_drain(b); });
      break;
    case Action::kLeaveDrain:
      control_.timer_cancel(std::exchange(binding.drain_poll, 0));
      break;
    case Action::kSendDrain:
      binding.drain_attempt++;
      send_drain(binding, wire::Drain::Kind::kAsk);
      break;
    case Action::kSendDrained:
      send_drain(binding, wire::Drain::Kind::kDone);
      break;
    case Action::kSendDrainCancel: {
      send_drain(binding, wire::Drain::Kind::kCancel);
      // Not at once again: whoever does not drain now has a reason that lasts.
      const int shift = std::min(binding.drain_failures++, 8);
      const Time again = control_.now() + milliseconds(100) * (1 << shift);
      binding.trade.not_before = again;
      if (PathBook::Ready* better = binding.book.better_ready()) better->since = again;
      break;
    }
    case Action::kEnterEpoch:
      enter_epoch(binding);
      break;
    case Action::kSendSwitch:
      send_switch(binding);
      break;
    case Action::kStartFence:
      fences_due_.insert(binding.serial);
      if (!std::exchange(fences_scheduled_, true)) {
        // After everything that is known by now: one batch for all QPs that go together.
        control_.call_soon([this] { fences_run(); });
      }
      break;
    case Action::kArmDeadline:
      if (binding.deadline != 0) break;
      binding.detected = control_.now();
      binding.give_up = binding.detected + milliseconds(config().exchange_ms);
      binding.deadline = control_.timer_start(binding.give_up, [this, serial = binding.serial] {
        Binding* late = find(serial);
        if (late == nullptr) return;
        late->deadline = 0;
        feed(*late, Event::kDeadline, "no path was found in SHIFT_EXCHANGE_MS");
      });
      break;
    case Action::kCancelDeadline:
      control_.timer_cancel(std::exchange(binding.deadline, 0));
      break;
    case Action::kSeekPath:
      // What is ready is not what the path was given up for.
      if (binding.trade.wanted) {
        trade_seek(binding);
      } else if (const auto* ready = binding.book.best_ready();
                 group.life.control.is_leader && ready != nullptr) {
        binding.target = ready->path;
        binding.target_generation = ready->generation;
        follow_up->push_back(Event::kPathReady);
      }
      break;  // else tend() looks for one
    case Action::kKeepProgress:
      if (!binding.heard) break;
      group.life.control.peer_received = binding.heard->notifications_received;
      group.life.control.peer_responder.reset();
      for (const wire::ResponderPsn& responder : binding.heard->responders) {
        if (responder.path == binding.sent_path &&
            responder.generation == binding.sent_generation) {
          group.life.control.peer_responder = responder.psn;
        }
      }
      if (group.life.control.is_leader) break;
      binding.target = binding.heard->target;
      binding.target_generation = binding.heard->generation;
      break;
    case Action::kCommit:
      return commit(binding, follow_up);
    case Action::kSendProgress: {
      wire::Progress progress;
      progress.from = group.life.ends.local;
      progress.to = group.life.ends.remote;
      progress.epoch = group.life.control.epoch;
      progress.seq = ++group.life.control.sequence;
      // Taken by commit(): the new path adds to the counter from there on.
      progress.notifications_received = binding.told->notifications_received;
      progress.target = binding.target;
      progress.generation = binding.target_generation;
      progress.responders.assign(binding.responders.begin(), binding.responders.end());
      binding.told = progress;
      if (binding.channel != nullptr) binding.channel->send(progress);
      break;
    }
    case Action::kRequestKeys:
      request_keys(binding, follow_up);
      spread(binding);
      break;
    case Action::kReplay:
      replay(binding, follow_up);
      break;
    case Action::kFail:
      give_up(binding);
      break;
    case Action::kSendRefuse:
      refuse(binding.channel, group.life.ends.local, group.life.ends.remote,
             binding.answered_epoch.value_or(group.life.control.epoch),
             group.life.control.state == State::kClosed ? wire::RefuseReason::kGone
                                                        : binding.refuse_reason);
      break;
    case Action::kSendClose:
      if (binding.channel != nullptr) {
        binding.channel->send(wire::Close{group.life.ends.local, group.life.ends.remote});
      }
      break;
    case Action::kRebind:
      look_later(binding, milliseconds(200));
      break;
  }
  return true;
}

// The only place where an epoch is assigned.
void Coordinator::enter_epoch(Binding& binding) {
  Group& group = *binding.group;
  const bool peer_is_ahead =
      binding.answered_epoch &&
      fsm::compare_epoch(*binding.answered_epoch, group.life.control.epoch) == fsm::EpochIs::kNext;
  group.life.control.epoch = peer_is_ahead ? *binding.answered_epoch : group.life.control.epoch + 1;
  binding.query_pending = false;
  control_.timer_cancel(std::exchange(binding.key_deadline, 0));  // the round has its own
  binding.told.reset();
  // A target that a further round leaves has not worked.
  if (group.life.control.is_leader && (group.life.path.member != group::kNoMember) &&
      !binding.book.current()) {
    Link& link = link_of(binding, binding.target);
    link.failures++;
    link.not_before = control_.now() + milliseconds(20);
  }
  if (binding.book.current()) binding.left = binding.book.current();
  binding.book.current_set(std::nullopt);
  binding.trade.candidate.reset();
  // Now any path is better than the one that is broken.
  if (binding.by_fault) trade_end(binding);
}

void Coordinator::give_up(Binding& binding) {
  Group& group = *binding.group;
  group::fail(group);
  binding.over = true;
  trade_end(binding);
  if (binding.attempt) attempt_end(binding, Binding::Attempt::Outcome::kUndecided);
  // What the kernel said of the connection may have been hidden, and will not be said again.
  if (const auto tell = group::peer_gone.load(); tell != nullptr) tell(group.handle());
  SHIFT_ERROR("qp 0x%x on %s: %s: the application gets the original error", group.qpn(),
              group.context->device->dev.name, binding.cause);
  SHIFT_EVENT("failed", {{"qp", group.qpn()},
                         {"epoch", group.life.control.epoch},
                         {"detector", to_string(binding.detector)},
                         {"cause", binding.cause}});
  if (group.context->members[group::kDefault].dead) {
    ibv_async_event event{};
    event.event_type = IBV_EVENT_DEVICE_FATAL;
    event.element.port_num = 1;
    forward(group.context, event, false);
  }
}

// Unprotected from here on: the application sees what the path gives.
void Coordinator::unprotect(Binding& binding, Events* follow_up) {
  Group& group = *binding.group;
  // A peer that was never found may still come.
  binding.over = binding.peer_proven;
  if (const auto tell = group::peer_gone.load();
      tell != nullptr && binding.over && group.life.path.departures != 0) {
    tell(group.handle());
  }
  if (group::errors_pass(group, group.life.path.member)) return;
  // An error that was held back already is on its way here: it finds no protection any more, and
  // the application cannot see all of it by itself.
  group::fail(group);
  follow_up->push_back(Event::kAppError);
}

void Coordinator::watch_drain(Binding& binding) {
  Group& group = *binding.group;
  binding.drain_poll = 0;
  if (group.life.control.state != State::kDraining && group.life.control.state != State::kHeld)
    return;
  const bool was_drained = binding.own_drained;
  // The round that follows would wait for registrations under way: it shall not begin then.
  binding.own_drained =
      was_drained || (group::is_drained(group) && !group::round_awaits_registration(group));
  if (binding.is_self) binding.peer_drained = binding.own_drained;
  const bool leader_done =
      group.life.control.is_leader && binding.own_drained && binding.peer_drained;
  const bool follower_done = !group.life.control.is_leader && binding.own_drained && !was_drained;
  if (leader_done) return feed(binding, Event::kDrained);
  if (control_.now() >= binding.drain_give_up) return feed(binding, Event::kDrainTimeout);
  binding.drain_poll = later(binding, microseconds(200), [this](Binding& b) { watch_drain(b); });
  if (follower_done) feed(binding, Event::kDrained);
}

void Coordinator::send_switch(Binding& binding) {
  if (binding.channel == nullptr) return;
  Group& group = *binding.group;
  binding.channel->send(
      wire::Switch{group.life.ends.local, group.life.ends.remote, group.life.control.epoch,
                   ++group.life.control.sequence,
                   binding.by_fault ? wire::Switch::kFault : wire::Switch::kReturn});
}

void Coordinator::send_drain(Binding& binding, wire::Drain::Kind kind) {
  if (binding.channel == nullptr || binding.is_self) return;
  Group& group = *binding.group;
  binding.channel->send(wire::Drain{group.life.ends.local, group.life.ends.remote,
                                    group.life.control.epoch, binding.drain_attempt, kind});
}

void Coordinator::refuse(PeerChannel* channel, const wire::QpName& from, const wire::QpName& to,
                         uint32_t epoch, wire::RefuseReason reason) {
  if (channel != nullptr) channel->send(wire::Refuse{from, to, epoch, reason});
}

}  // namespace shift::control
