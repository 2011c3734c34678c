// The paths that are being shut, in batches: one for all groups that leave them together.
#include <algorithm>
#include <utility>

#include "control/coordinator.h"
#include "group/keys.h"
#include "util/config.h"

namespace shift::control {

using fsm::Action;
using fsm::Event;
using fsm::State;
using group::Group;
using std::chrono::microseconds;
using std::chrono::milliseconds;

void Coordinator::fences_run() {
  fences_scheduled_ = false;
  std::vector<uint64_t> serials;
  std::vector<Group*> groups;
  for (uint64_t serial : std::exchange(fences_due_, {})) {
    Binding* binding = find(serial);
    if (binding == nullptr) continue;
    const State state = binding->group->life.control.state;
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
    const bool is_over = fences_[i]->fence.step(control_.now());
    fence_results(*fences_[i]);
    if (is_over) {
      fences_.erase(fences_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      i++;
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

// Each group goes on as soon as its own path is shut: one whose NIC takes its time must not hold up
// the others.
void Coordinator::fence_results(RunningFence& running) {
  for (size_t k = 0; k < running.serials.size(); k++) {
    const auto& entry = running.fence.entries()[k];
    if (entry.result == group::Fence::Result::kOpen || entry.group == nullptr) continue;
    Binding* binding = find(std::exchange(running.serials[k], 0));
    if (binding == nullptr) continue;
    if (entry.member != group::kNoMember) {
      auto& qp = binding->qps[entry.member];
      qp.connected = false;
      if (entry.responder) {
        binding->responders.push_back({qp.path, qp.generation, *entry.responder});
        if (binding->responders.size() > Binding::kRespondersMax) binding->responders.pop_front();
      }
    }
    fence_finished(*binding, entry.result);
  }
}

void Coordinator::fence_finished(Binding& binding, group::Fence::Result result) {
  binding.fenced = control_.now();
  const State state = binding.group->life.control.state;
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
  uint64_t receives_end;
  {
    std::lock_guard lock(binding.group->recv.mutex);
    receives_end = binding.group->recv.journal.head();
  }
  fence_over(binding, receives_end);
}

// Behind registrations under way, for which commit() and replay() would wait here, and all other
// QPs with them (C7). Not behind those of receives that are posted meanwhile: whoever registers all
// the time would never get there.
void Coordinator::fence_over(Binding& binding, uint64_t receives_end) {
  if (!group::round_awaits_registration(*binding.group, receives_end)) {
    return feed(binding, Event::kFenceDone);
  }
  const auto again = [this, receives_end, fenced = binding.fenced](Binding& b) {
    const State state = b.group->life.control.state;
    if (state != State::kFencing && state != State::kFencingTargeted) return;
    if (b.fenced == fenced) fence_over(b, receives_end);
  };
  behind_worker(binding, [this, again](Binding& b) { (void)later(b, microseconds(100), again); });
}

// A path may pass the probe, which is empty, and carry no data, as behind a switch that takes
// smaller packets only; or its NIC refuses what is posted. Each round finds such a path again and
// cancels the deadline (C6).
bool Coordinator::is_in_vain(Binding& binding) {
  constexpr int kRoundsMin = 4;  // bad luck may come more than once
  // Only what the NIC could not deliver, or did not take, tells that: ports, and peers, may come
  // and go for long.
  const bool by_post = binding.detector == group::Detector::kPost;
  if (!by_post && binding.detector != group::Detector::kCompletion) return false;
  const milliseconds bound(config().exchange_ms);
  Group& group = *binding.group;
  Binding::Trouble& trouble = binding.trouble;
  // The queues of the path that was shut are drained: all that completed on it is counted. What has
  // no signal completes nothing here; the peer's word is that of the round before.
  const uint64_t done =
      group.counters.done[0] + group.counters.done[1] + group.life.control.peer_received;
  bool outstanding;
  {
    std::lock_guard lock(group.send.mutex);
    const auto& journal = group.send.journal;
    const auto first = journal.first_incomplete(static_cast<uint32_t>(group.counters.done[0]));
    const uint64_t end = by_post ? journal.head() : group.send.posted;
    outstanding = std::max(first, group.send.drained_to) < end;
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

}  // namespace shift::control
