#include "control/coordinator.h"

#include <algorithm>
#include <cstring>

#include "group/completion.h"
#include "group/path_switch.h"
#include "util/config.h"
#include "util/log.h"

namespace shift::control {

using fsm::Action;
using fsm::Event;
using fsm::State;
using group::Group;
using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

int64_t us_between(Reactor::Clock::time_point from, Reactor::Clock::time_point to) {
  return duration_cast<microseconds>(to - from).count();
}

// Unprotected from here on: the application sees what the default path gives. False when an error
// was held back already: then it cannot see all of it any more.
bool unguard(Group& group) {
  group::CqLock lock(group);
  auto& accept = group.accept[group::kDefault];
  if (accept != group::Accept::kGuard) return true;
  if (group.fault_reported[group::kDefault]) return false;
  accept = group::Accept::kPass;
  return true;
}

}  // namespace

Coordinator::Coordinator(Reactor& control, Reactor& worker) : control_(control), worker_(worker) {
  PeerNetOptions options;
  options.port = config().port;
  net_ = std::make_unique<PeerNet>(control_, *this, options);
  group::fault_sink = this;
}

Coordinator::~Coordinator() = default;

Binding* Coordinator::find(uint64_t serial) {
  auto it = bindings_.find(serial);
  return it == bindings_.end() ? nullptr : it->second.get();
}

void Coordinator::fault(Group* group, Event event, const char* cause) {
  // Only the number travels: the group may be destroyed before the task runs.
  control_.call_soon([this, serial = group->serial, event, cause] {
    if (Binding* binding = find(serial)) feed(*binding, event, cause);
  });
}

void Coordinator::keys_wanted(Group* group) {
  control_.call_soon([this, serial = group->serial] {
    Binding* binding = find(serial);
    if (binding == nullptr || binding->query_pending) return;
    // An answer that was asked for in advance may have come between the post that missed the key
    // and this task: nothing is missing then, and no further answer will set the queue going.
    if (!query_keys(*binding)) return pump(*binding);
    if (binding->key_deadline != 0) return;
    // Nothing waits for ever (C6), though no switch is under way whose deadline would bound it.
    binding->key_deadline =
        control_.timer_start(milliseconds(config().exchange_ms), [this, serial] {
          Binding* late = find(serial);
          if (late == nullptr) return;
          late->key_deadline = 0;
          if (!late->query_pending) return;
          feed(*late, Event::kReplayRefused, "the peer does not answer for a memory key");
        });
  });
}

void Coordinator::feed(Binding& binding, Event event, const char* cause) {
  Group& group = *binding.group;
  std::deque<Event> events{event};
  while (!events.empty()) {
    const Event next = events.front();
    events.pop_front();
    const fsm::Cell& cell = fsm::step(group.state, next);
    SHIFT_DEBUG("qp 0x%x epoch %u: %s + %s -> %s", group.qpn(), group.epoch,
                fsm::to_string(group.state), fsm::to_string(next), fsm::to_string(cell.next));
    if (cell.kind == fsm::Kind::kImpossible) {
      // A bug of ours. This group fails closed; the program goes on.
      SHIFT_ERROR("qp 0x%x epoch %u: internal error: %s in state %s (%s)", group.qpn(), group.epoch,
                  fsm::to_string(next), fsm::to_string(group.state), cell.reason);
      binding.cause = "internal error";
      group.state = State::kFailed;
      for (Action action : {Action::kCancelDeadline, Action::kFail, Action::kSendRefuse}) {
        run(binding, action, &events);
      }
      continue;
    }
    if (cell.kind == fsm::Kind::kIgnore) continue;
    if (cause[0] != '\0' && (group.state == State::kArmed || cell.next == State::kFailed)) {
      binding.cause = cause;
    }
    if (cell.next != group.state) {
      SHIFT_EVENT("state", {{"qp", group.qpn()},
                            {"epoch", group.epoch},
                            {"from", fsm::to_string(group.state)},
                            {"to", fsm::to_string(cell.next)},
                            {"on", fsm::to_string(next)},
                            {"cause", binding.cause}});
    }
    if (group.state == State::kArmed &&
        (cell.next == State::kUnbound || cell.next == State::kClosed) && !unguard(group)) {
      // The fault that is on its way here finds no protection any more.
      group::fail(group);
      events.push_back(Event::kAppError);
    }
    group.state = cell.next;
    for (Action action : cell.actions) {
      if (action != Action::kNone) run(binding, action, &events);
    }
  }
}

void Coordinator::feed_answer(Binding& binding, uint32_t epoch, Event event, const char* cause) {
  binding.answered_epoch = epoch;
  feed(binding, event, cause);
  binding.answered_epoch.reset();
}

void Coordinator::run(Binding& binding, Action action, std::deque<Event>* follow_up) {
  Group& group = *binding.group;
  switch (action) {
    case Action::kNone:
      break;
    case Action::kEnterEpoch:
      group.epoch++;
      binding.detected = Reactor::Clock::now();
      binding.give_up = binding.detected + milliseconds(config().exchange_ms);
      binding.query_pending = false;
      break;
    case Action::kStopPosting:
      break;  // done for the whole batch in fences_run()
    case Action::kSendSwitch:
      if (binding.channel != nullptr) {
        binding.channel->send(
            wire::Switch{group.local, group.remote, group.epoch, ++group.sequence, 0});
      }
      break;
    case Action::kStartFence:
      fences_due_.push_back(binding.serial);
      if (!std::exchange(fences_scheduled_, true)) {
        // After everything that is known by now: one batch for all QPs that go together.
        control_.call_soon([this] { fences_run(); });
      }
      break;
    case Action::kArmDeadline:
      binding.deadline = control_.timer_start(binding.give_up, [this, serial = binding.serial] {
        Binding* late = find(serial);
        if (late == nullptr) return;
        late->deadline = 0;
        feed(*late, Event::kDeadline, "the switch took longer than SHIFT_EXCHANGE_MS");
      });
      break;
    case Action::kCancelDeadline:
      control_.timer_cancel(std::exchange(binding.deadline, 0));
      break;
    case Action::kKeepProgress:
      break;  // on_progress() stored it before the event
    case Action::kRepostReceives:
      // The backup adds to the counter from here on.
      binding.sent_progress = group::notifications_received(group);
      if (!group::repost_receives(group, binding.give_up)) {
        binding.refuse_reason = wire::RefuseReason::kKeyMissing;
        follow_up->push_back(Event::kReplayRefused);
      }
      break;
    case Action::kSendProgress:
      if (binding.channel != nullptr) {
        wire::Progress progress;
        progress.from = group.local;
        progress.to = group.remote;
        progress.epoch = group.epoch;
        progress.seq = ++group.sequence;
        progress.notifications_received = binding.sent_progress;
        binding.channel->send(progress);
      }
      break;
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
      refuse(binding.channel, group.local, group.remote,
             binding.answered_epoch.value_or(group.epoch),
             group.state == State::kClosed ? wire::RefuseReason::kGone : binding.refuse_reason);
      break;
    case Action::kSendClose:
      if (binding.channel != nullptr) {
        binding.channel->send(wire::Close{group.local, group.remote});
      }
      break;
    case Action::kRebind:
      look_later(binding, milliseconds(200));
      break;
  }
}

void Coordinator::fences_run() {
  fences_scheduled_ = false;
  std::vector<Binding*> bindings;
  std::vector<Group*> groups;
  for (uint64_t serial : std::exchange(fences_due_, {})) {
    Binding* binding = find(serial);
    if (binding == nullptr) continue;
    const State state = binding->group->state;
    if (state != State::kFencing && state != State::kFencingPeerReady) continue;
    bindings.push_back(binding);
    groups.push_back(binding->group);
  }
  if (groups.empty()) return;
  group::stop_posting(groups);
  const auto proven = group::fence(groups, Reactor::Clock::now() + milliseconds(config().fence_ms));
  const auto now = Reactor::Clock::now();
  for (size_t i = 0; i < bindings.size(); i++) {
    bindings[i]->fenced = now;
    if (!proven[i]) bindings[i]->refuse_reason = wire::RefuseReason::kFenceFailed;
    feed(*bindings[i], proven[i] ? Event::kFenceDone : Event::kFenceFailed,
         proven[i] ? "" : "the old path could not be proven shut");
  }
}

void Coordinator::request_keys(Binding& binding, std::deque<Event>* follow_up) {
  if (!query_keys(binding)) follow_up->push_back(Event::kKeysReady);
}

// Asks for all keys of use, and returns whether any of them is needed now.
bool Coordinator::query_keys(Binding& binding) {
  Group& group = *binding.group;
  const auto missing = group::rkeys_missing(group);
  auto keys = missing;
  for (uint32_t recent : group::rkeys_recent(group)) {
    if (std::find(missing.begin(), missing.end(), recent) == missing.end()) keys.push_back(recent);
  }
  binding.query_pending = !missing.empty();
  if (!keys.empty() && binding.channel != nullptr) {
    binding.query_id = next_query_++;
    binding.channel->send(
        wire::KeyQuery{group.local, group.remote, group.epoch, binding.query_id, std::move(keys)});
  }
  return binding.query_pending;
}

void Coordinator::replay(Binding& binding, std::deque<Event>* follow_up) {
  Group& group = *binding.group;
  const auto result = group::replay(group, group.peer_received, binding.give_up);
  if (result.refusal != nullptr) {
    binding.cause = result.refusal;
    binding.refuse_reason = wire::RefuseReason::kInError;
    follow_up->push_back(Event::kReplayRefused);
    return;
  }
  const auto now = Reactor::Clock::now();
  watch_arm(binding);
  SHIFT_INFO(
      "qp 0x%x moved from %s to %s in %lld us (%s; fence %lld us): %u completed by the "
      "peer's counter, %u posted again",
      group.qpn(), group.context->device->dev.name,
      group.context->device->real[group::kBackup]->name,
      static_cast<long long>(us_between(binding.detected, now)), binding.cause,
      static_cast<long long>(us_between(binding.detected, binding.fenced)), result.completed,
      result.posted);
  SHIFT_EVENT("switched", {{"qp", group.qpn()},
                           {"epoch", group.epoch},
                           {"us", us_between(binding.detected, now)},
                           {"fence_us", us_between(binding.detected, binding.fenced)},
                           {"completed", result.completed},
                           {"replayed", result.posted},
                           {"cause", binding.cause}});
}

void Coordinator::give_up(Binding& binding) {
  Group& group = *binding.group;
  group::fail(group);
  SHIFT_ERROR("qp 0x%x on %s: cannot move to %s (%s): the application gets the original error",
              group.qpn(), group.context->device->dev.name,
              group.context->device->real[group::kBackup]->name, binding.cause);
  SHIFT_EVENT("failed", {{"qp", group.qpn()}, {"epoch", group.epoch}, {"cause", binding.cause}});
  if (group.context->dead[group::kDefault]) {
    ibv_async_event event{};
    event.event_type = IBV_EVENT_DEVICE_FATAL;
    event.element.port_num = 1;
    forward(group.context, event);
  }
}

// The peer agrees that this path is broken: take the other QPs of the same NIC pair along now
// instead of waiting for each one's own retry time.
void Coordinator::spread(Binding& origin) {
  for (auto& [serial, other] : bindings_) {
    if (other.get() == &origin || other->group->state != State::kArmed) continue;
    if (other->channel != origin.channel || other->group->context != origin.group->context ||
        other->group->remote.gid != origin.group->remote.gid) {
      continue;
    }
    fault(other->group, Event::kLocalFault, "another QP of the same path failed");
  }
}

Runtime* runtime() {
  // Never destroyed: threads of the program may use verbs until the very end.
  static Runtime* const instance = []() -> Runtime* {
    auto* made = new (std::nothrow) Runtime;
    if (made == nullptr || !made->control.start() || !made->worker.start()) return nullptr;
    made->control.call_and_wait(
        [&] { made->coordinator = std::make_unique<Coordinator>(made->control, made->worker); });
    return made->coordinator != nullptr ? made : nullptr;
  }();
  return instance;
}

}  // namespace shift::control
