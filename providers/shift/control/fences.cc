#include "control/fences.h"

#include <algorithm>
#include <utility>

#include "control/session.h"
#include "control/sessions.h"
#include "util/config.h"

namespace shift::control {

using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

// Most fences take only as long as the NIC needs to flush, so a new fence is polled with short
// pauses for a while.
constexpr milliseconds kFresh{2};
constexpr microseconds kPollFresh{5}, kPoll{500};

}  // namespace

void Fences::start(const Session& session) {
  due_.push_back(session.serial);
  // The batch begins after all tasks that the loop has by now, so that it holds all QPs that go
  // together.
  if (!std::exchange(scheduled_, true)) loop_.call_soon([this] { begin(); });
}

void Fences::begin() {
  scheduled_ = false;
  std::vector<Session*> leaving;
  std::vector<uint64_t> due = std::exchange(due_, {});
  std::ranges::sort(due);
  due.erase(std::unique(due.begin(), due.end()), due.end());
  for (uint64_t serial : due) {
    Session* session = sessions_.find(serial);
    if (session != nullptr && fsm::kFence.has(session->control.state)) leaving.push_back(session);
  }
  if (!leaving.empty()) parking_.park(leaving);
}

void Fences::shut(const std::vector<Session*>& parked) {
  std::vector<uint64_t> serials;
  std::vector<group::Group*> groups;
  for (Session* session : parked) {
    // A session may have failed while it waited.
    if (!fsm::kFence.has(session->control.state)) continue;
    serials.push_back(session->serial);
    groups.push_back(&session->group);
  }
  if (groups.empty()) return;
  late_.expect();
  group::Fence fence(std::move(groups), milliseconds(config().fence_ms));
  running_.push_back(
      std::make_unique<Running>(Running{std::move(fence), std::move(serials), loop_.now()}));
  step();
}

void Fences::step() {
  for (size_t i = 0; i < running_.size();) {
    const bool is_over = running_[i]->fence.step(loop_.now());
    tell(*running_[i]);
    if (is_over) {
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      i++;
    }
  }
  if (running_.empty() || poll_again_.is_running()) return;
  const Time now = loop_.now();
  const bool fresh = std::ranges::any_of(
      running_, [&](const auto& running) { return now - running->begun < kFresh; });
  poll_again_.start(fresh ? kPollFresh : kPoll, [this] { step(); });
}

// Each session goes on as soon as its own path is shut: a session whose NIC is slow must not hold
// up the others.
void Fences::tell(Running& running) {
  for (size_t k = 0; k < running.serials.size(); k++) {
    const auto& entry = running.fence.entries()[k];
    if (entry.result == group::Fence::Result::kOpen || entry.group == nullptr) continue;
    if (Session* session = sessions_.find(std::exchange(running.serials[k], 0))) {
      done_(*session, entry);
    }
  }
}

void Fences::forget(const group::Group* group) {
  for (auto& running : running_) running->fence.forget(group);
}

}  // namespace shift::control
