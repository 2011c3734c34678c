// The second half of a round: both ends commit to the target, keys are asked for, and what is left
// runs again.
#include <algorithm>
#include <utility>

#include "control/coordinator.h"
#include "group/completion.h"
#include "util/log.h"

namespace shift::control {

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

// Our member of a path.
int own_member(const Group& group, PathName path) {
  return group.life.control.is_leader ? path.leader : path.follower;
}
int peer_member(const Group& group, PathName path) {
  return group.life.control.is_leader ? path.follower : path.leader;
}

}  // namespace

// Both ends put their receives on the target before they tell anything: else the peer's first
// message would meet an empty queue.
bool Coordinator::commit(Binding& binding, Events* follow_up) {
  Group& group = *binding.group;
  const int member = own_member(group, binding.target);
  const auto& qp = binding.qps[member];
  const bool usable = member < group.context->member_count && qp.connected && !qp.busy &&
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
    binding.channel->send(wire::KeyQuery{
        group.life.ends.local, group.life.ends.remote, group.life.control.epoch, binding.query_id,
        static_cast<uint8_t>(group.life.path.peer_member), std::move(keys)});
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
  const auto result = group::replay(group, group.life.control.peer_received, binding.give_up);
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
    group.life.errors.original = {};
  }
  watch_arm(binding);
  SHIFT_INFO(
      "qp 0x%x goes on over %s after %lld us (%s, %s; noticed in %lld us; fence %lld us): %u "
      "completed by the peer's word, %u posted again (without %u packets)",
      group.qpn(), group.context->name(group.life.path.member),
      static_cast<long long>(us_between(binding.detected, now)), to_string(binding.detector),
      binding.cause, static_cast<long long>(us_between(binding.evidence, binding.detected)),
      static_cast<long long>(us_between(binding.detected, binding.fenced)), result.completed,
      result.posted, result.skipped);
  SHIFT_EVENT("switched", {{"qp", group.qpn()},
                           {"epoch", group.life.control.epoch},
                           {"member", group.context->name(group.life.path.member)},
                           {"peer_member", group.life.path.peer_member},
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

// The peer agrees that this path is broken: take the other QPs of the same NIC pair along now
// instead of waiting for each one's own retry time.
void Coordinator::spread(Binding& origin) {
  if (!origin.by_fault || !origin.left) return;
  // Once for all that left it together.
  Link& link = link_of(origin, *origin.left);
  if (link.spread >= origin.detected) return;
  link.spread = control_.now();
  for (auto& [serial, other] : bindings_) {
    if (other.get() == &origin || other->group->life.control.state != State::kActive) continue;
    if (other->channel != origin.channel || other->group->context != origin.group->context ||
        other->group->life.ends.remote.gid != origin.group->life.ends.remote.gid ||
        other->book.current() != origin.left || other->active_since > origin.detected) {
      continue;  // not on that connection of the path, or not any more
    }
    fault(other->group, Event::kPathFault, group::kNoMember,
          {"another QP of the same path failed", group::Detector::kNeighbour});
  }
}

}  // namespace shift::control
