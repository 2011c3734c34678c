// What the actions of the table do.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "control/coordinator.h"
#include "group/completion.h"
#include "group/peer_gone.h"
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

int64_t us_between(Time from, Time to) {
  return duration_cast<microseconds>(to - from).count();
}

// As in the event records: CLOCK_MONOTONIC, which steady_clock is.
int64_t ns_of(Time time) {
  return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

const char* name_of(const Group& group, int member) {
  return group.context->device->real[static_cast<size_t>(member)]->name;
}

// Our member of a path.
int own_member(const Group& group, PathName path) {
  return group.is_leader ? path.leader : path.follower;
}
int peer_member(const Group& group, PathName path) {
  return group.is_leader ? path.follower : path.leader;
}

}  // namespace

bool Coordinator::run(Binding& binding, Action action, Events* follow_up) {
  Group& group = *binding.group;
  switch (action) {
    case Action::kNone:
    case Action::kCount:
      break;
    case Action::kProtect:
      group::errors_hold(group, group.member);
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
        follow_up->push_back(error == ENOKEY ? Event::kReplayRefused : Event::kPathFault);
      }
      break;
    case Action::kWatchDrain:
      binding.own_drained = binding.peer_drained = false;
      binding.drain_give_up =
          control_.now() + milliseconds(config().drain_ms) * (group.is_leader ? 1 : 4);
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
                 group.is_leader && ready != nullptr) {
        binding.target = ready->path;
        binding.target_generation = ready->generation;
        follow_up->push_back(Event::kPathReady);
      }
      break;  // else tend() looks for one
    case Action::kKeepProgress:
      if (!binding.heard) break;
      group.peer_received = binding.heard->notifications_received;
      group.peer_responder.reset();
      for (const wire::ResponderPsn& responder : binding.heard->responders) {
        if (responder.path == binding.sent_path &&
            responder.generation == binding.sent_generation) {
          group.peer_responder = responder.psn;
        }
      }
      if (group.is_leader) break;
      binding.target = binding.heard->target;
      binding.target_generation = binding.heard->generation;
      break;
    case Action::kCommit:
      return commit(binding, follow_up);
    case Action::kSendProgress: {
      wire::Progress progress;
      progress.from = group.local;
      progress.to = group.remote;
      progress.epoch = group.epoch;
      progress.seq = ++group.sequence;
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
  return true;
}

// The only place where an epoch is assigned.
void Coordinator::enter_epoch(Binding& binding) {
  Group& group = *binding.group;
  const bool peer_is_ahead =
      binding.answered_epoch &&
      fsm::compare_epoch(*binding.answered_epoch, group.epoch) == fsm::EpochIs::kNext;
  group.epoch = peer_is_ahead ? *binding.answered_epoch : group.epoch + 1;
  binding.query_pending = false;
  control_.timer_cancel(std::exchange(binding.key_deadline, 0));  // the round has its own
  binding.told.reset();
  // A target that a further round leaves has not worked.
  if (group.is_leader && (group.member != group::kNoMember) && !binding.book.current()) {
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

void Coordinator::fences_run() {
  fences_scheduled_ = false;
  std::vector<uint64_t> serials;
  std::vector<Group*> groups;
  for (uint64_t serial : std::exchange(fences_due_, {})) {
    Binding* binding = find(serial);
    if (binding == nullptr) continue;
    const State state = binding->group->state;
    if (state != State::kFencing && state != State::kFencingTargeted) continue;
    serials.push_back(serial);
    groups.push_back(binding->group);
  }
  if (groups.empty()) return;
  group::park(groups);
  group::Fence fence(std::move(groups), milliseconds(config().fence_ms));
  fences_.push_back(std::make_unique<RunningFence>(
      RunningFence{std::move(fence), std::move(serials), control_.now()}));
  fences_step();
}

void Coordinator::fences_step() {
  for (size_t i = 0; i < fences_.size();) {
    if (!fences_[i]->fence.step(control_.now())) {
      i++;
      continue;
    }
    const auto done = std::move(fences_[i]);
    fences_.erase(fences_.begin() + static_cast<std::ptrdiff_t>(i));
    for (size_t k = 0; k < done->serials.size(); k++) {
      Binding* binding = find(done->serials[k]);
      const auto& entry = done->fence.entries()[k];
      if (binding == nullptr || entry.group == nullptr) continue;
      if (entry.member != group::kNoMember) {
        auto& qp = binding->qps[static_cast<size_t>(entry.member)];
        qp.connected = false;
        if (entry.responder) {
          binding->responders.push_back({qp.path, qp.generation, *entry.responder});
          if (binding->responders.size() > Binding::kRespondersMax) binding->responders.pop_front();
        }
      }
      fence_finished(*binding, entry.result);
    }
  }
  if (fences_.empty() || fences_polling_) return;
  fences_polling_ = true;
  // Most fences take as long as the NIC needs to flush: look again at once for a while.
  const Time now = control_.now();
  const bool fresh = std::ranges::any_of(
      fences_, [&](const auto& fence) { return now - fence->begun < milliseconds(2); });
  const auto again = [this] {
    fences_polling_ = false;
    fences_step();
  };
  if (fresh) {
    control_.timer_start(microseconds(5), again);
  } else {
    control_.timer_start(microseconds(500), again);
  }
}

void Coordinator::fence_finished(Binding& binding, group::Fence::Result result) {
  binding.fenced = control_.now();
  const State state = binding.group->state;
  if (state != State::kFencing && state != State::kFencingTargeted) return;
  if (result != group::Fence::Result::kProven) {
    binding.refuse_reason = wire::RefuseReason::kFenceFailed;
    return feed(binding, Event::kFenceFailed, "the old path could not be proven shut");
  }
  if (is_in_vain(binding)) {
    Events none;
    (void)run(binding, Action::kCancelDeadline, &none);
    return feed(binding, Event::kDeadline,
                "paths are found, but none of them carries the requests");
  }
  feed(binding, Event::kFenceDone);
}

// A path may pass the probe, which is empty, and carry no data, as behind a switch that takes
// smaller packets only. Each round finds such a path again and cancels the deadline (C6).
bool Coordinator::is_in_vain(Binding& binding) {
  constexpr int kRoundsMin = 4;  // bad luck may come more than once
  const milliseconds bound(config().exchange_ms);
  Group& group = *binding.group;
  Binding::Trouble& trouble = binding.trouble;
  // The queues of the path that was shut are drained: all that completed on it is counted.
  const uint64_t done = group.counters.done[0] + group.counters.done[1];
  bool outstanding;
  {
    std::lock_guard lock(group.send.mutex);
    const auto& journal = group.send.journal;
    const auto first = journal.first_incomplete(static_cast<uint32_t>(group.counters.done[0]));
    outstanding = std::max(first, group.send.drained_to) < group.send.posted;
  }
  // A path that went on for longer was good, though its receiver may have been slow.
  const bool goes_on =
      outstanding && done == trouble.done && binding.fenced - trouble.fenced < bound;
  if (!goes_on) trouble = {binding.detected, {}, done, 0};
  trouble.fenced = binding.fenced;
  trouble.rounds++;
  return trouble.rounds >= kRoundsMin && binding.fenced - trouble.since > bound;
}

void Coordinator::fence_forget(const Group* group) {
  for (auto& running : fences_) running->fence.forget(group);
}

// Both ends put their receives on the target before they tell anything: else the peer's first
// message would meet an empty queue.
bool Coordinator::commit(Binding& binding, Events* follow_up) {
  Group& group = *binding.group;
  const int member = own_member(group, binding.target);
  const auto& qp = binding.qps[static_cast<size_t>(member)];
  const bool usable = member < group.context->members && qp.connected && !qp.busy &&
                      qp.generation == binding.target_generation && qp.path == binding.target &&
                      (members_up(group.context) >> member & 1) != 0;
  // Used up, or of no use: the next round must not choose it again.
  binding.book.ready_drop(binding.target);
  if (!usable) {
    follow_up->push_back(Event::kTargetUnusable);
    return false;
  }
  binding.told.emplace();
  binding.told->notifications_received = group::notifications_received(group);
  const auto result =
      group::commit(group, member, peer_member(group, binding.target), binding.give_up);
  switch (result) {
    case group::Commit::kDone:
      return true;
    case group::Commit::kKeyMissing:
      binding.refuse_reason = wire::RefuseReason::kKeyMissing;
      binding.cause = "a receive's region is not registered on the other NIC";
      follow_up->push_back(Event::kReplayRefused);
      return false;
    case group::Commit::kUnusable:
      follow_up->push_back(Event::kTargetUnusable);
      return false;
  }
  return false;
}

void Coordinator::request_keys(Binding& binding, Events* follow_up) {
  if (!query_keys(binding)) follow_up->push_back(Event::kKeysReady);
}

// Asks for all keys of use, and returns whether any of them is needed now.
bool Coordinator::query_keys(Binding& binding) {
  Group& group = *binding.group;
  const auto missing = group::rkeys_missing(group);
  auto keys = missing;
  for (uint32_t recent : group::rkeys_recent(group)) {
    if (std::ranges::find(missing, recent) == missing.end()) keys.push_back(recent);
  }
  binding.query_pending = !missing.empty();
  if (!keys.empty() && binding.channel != nullptr) {
    binding.query_id = next_query_++;
    binding.channel->send(wire::KeyQuery{group.local, group.remote, group.epoch, binding.query_id,
                                         static_cast<uint8_t>(group.peer_member), std::move(keys)});
  }
  return binding.query_pending;
}

namespace {

// It has just failed: to try it at once would keep hundreds of QPs busy with what does not work.
// One of them finds out later.
void left_rests(Link& link, Loop::Clock::time_point now) {
  constexpr milliseconds kRest{100};
  link.failures = std::max(link.failures, 1);
  link.not_before = std::max(link.not_before, now + kRest);
}

}  // namespace

void Coordinator::replay(Binding& binding, Events* follow_up) {
  Group& group = *binding.group;
  const auto result = group::replay(group, group.peer_received, binding.give_up);
  binding.sent_path = binding.target;
  binding.sent_generation = binding.target_generation;
  if (result.refusal != nullptr) {
    binding.cause = result.refusal;
    binding.refuse_reason = wire::RefuseReason::kInError;
    follow_up->push_back(Event::kReplayRefused);
    return;
  }
  if (result.path_broken) {
    follow_up->push_back(Event::kPathFault);
    return;
  }
  const Time now = control_.now();
  if (binding.by_fault && binding.left && *binding.left != binding.target) {
    left_rests(link_of(binding, *binding.left), now);
  }
  binding.book.current_set(binding.target);
  binding.active_since = now;
  binding.drain_failures = 0;
  binding.by_fault = false;
  {
    group::CqLock lock(group);
    group.original_error = {};
  }
  watch_arm(binding);
  SHIFT_INFO(
      "qp 0x%x goes on over %s after %lld us (%s, %s; noticed in %lld us; fence %lld us): %u "
      "completed by the peer's word, %u posted again (without %u packets)",
      group.qpn(), name_of(group, group.member),
      static_cast<long long>(us_between(binding.detected, now)), to_string(binding.detector),
      binding.cause, static_cast<long long>(us_between(binding.evidence, binding.detected)),
      static_cast<long long>(us_between(binding.detected, binding.fenced)), result.completed,
      result.posted, result.skipped);
  SHIFT_EVENT("switched", {{"qp", group.qpn()},
                           {"epoch", group.epoch},
                           {"member", name_of(group, group.member)},
                           {"peer_member", group.peer_member},
                           {"detector", to_string(binding.detector)},
                           {"evidence_ns", ns_of(binding.evidence)},
                           {"end_ns", ns_of(now)},
                           {"notice_us", us_between(binding.evidence, binding.detected)},
                           {"us", us_between(binding.detected, now)},
                           {"fence_us", us_between(binding.detected, binding.fenced)},
                           {"completed", result.completed},
                           {"replayed", result.posted},
                           {"skipped_packets", result.skipped},
                           {"cause", binding.cause}});
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
                         {"epoch", group.epoch},
                         {"detector", to_string(binding.detector)},
                         {"cause", binding.cause}});
  if (group.context->dead[group::kDefault]) {
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
      tell != nullptr && binding.over && group.departures != 0) {
    tell(group.handle());
  }
  if (group::errors_pass(group, group.member)) return;
  // An error that was held back already is on its way here: it finds no protection any more, and
  // the application cannot see all of it by itself.
  group::fail(group);
  follow_up->push_back(Event::kAppError);
}

// The peer agrees that this path is broken: take the other QPs of the same NIC pair along now
// instead of waiting for each one's own retry time.
void Coordinator::spread(Binding& origin) {
  if (!origin.by_fault || !origin.left) return;
  // Once for all that left it together.
  Link& link = link_of(origin, *origin.left);
  if (link.spread >= origin.detected) return;
  link.spread = control_.now();
  for (auto& [serial, other] : bindings_) {
    if (other.get() == &origin || other->group->state != State::kActive) continue;
    if (other->channel != origin.channel || other->group->context != origin.group->context ||
        other->group->remote.gid != origin.group->remote.gid ||
        other->book.current() != origin.left || other->active_since > origin.detected) {
      continue;  // not on that connection of the path, or not any more
    }
    fault(other->group, Event::kPathFault, group::kNoMember,
          {"another QP of the same path failed", group::Detector::kNeighbour});
  }
}

void Coordinator::watch_drain(Binding& binding) {
  Group& group = *binding.group;
  binding.drain_poll = 0;
  if (group.state != State::kDraining && group.state != State::kHeld) return;
  const bool was_drained = binding.own_drained;
  binding.own_drained = was_drained || group::is_drained(group);
  if (binding.is_self) binding.peer_drained = binding.own_drained;
  const bool leader_done = group.is_leader && binding.own_drained && binding.peer_drained;
  const bool follower_done = !group.is_leader && binding.own_drained && !was_drained;
  if (leader_done) return feed(binding, Event::kDrained);
  if (control_.now() >= binding.drain_give_up) return feed(binding, Event::kDrainTimeout);
  binding.drain_poll = later(binding, microseconds(200), [this](Binding& b) { watch_drain(b); });
  if (follower_done) feed(binding, Event::kDrained);
}

void Coordinator::send_switch(Binding& binding) {
  if (binding.channel == nullptr) return;
  Group& group = *binding.group;
  binding.channel->send(
      wire::Switch{group.local, group.remote, group.epoch, ++group.sequence,
                   binding.by_fault ? wire::Switch::kFault : wire::Switch::kReturn});
}

void Coordinator::send_drain(Binding& binding, wire::Drain::Kind kind) {
  if (binding.channel == nullptr || binding.is_self) return;
  Group& group = *binding.group;
  binding.channel->send(
      wire::Drain{group.local, group.remote, group.epoch, binding.drain_attempt, kind});
}

void Coordinator::refuse(PeerChannel* channel, const wire::QpName& from, const wire::QpName& to,
                         uint32_t epoch, wire::RefuseReason reason) {
  if (channel != nullptr) channel->send(wire::Refuse{from, to, epoch, reason});
}

}  // namespace shift::control
