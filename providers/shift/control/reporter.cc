#include "control/reporter.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "control/locator.h"
#include "control/nic_watch.h"
#include "control/orders.h"
#include "control/sessions.h"
#include "group/context.h"
#include "state/board.h"

namespace shift::control {

using fsm::State;
using state::Counters;
using state::DeviceRecord;
using state::FaultRecord;
using state::GroupRecord;

namespace {

// How long changes are collected. An operator does not notice it, and a switch of path takes less.
constexpr std::chrono::milliseconds kBundle{20};
// So many sessions are written at once, and the others after a pause: the loop has other work.
constexpr size_t kWrittenAtOnce = 128;
constexpr std::chrono::milliseconds kRest{1};

uint64_t owner_of(const group::Context* context) {
  return reinterpret_cast<uintptr_t>(context);
}

int64_t wall_ns() {
  return std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

size_t bucket_of(uint32_t us) {
  const auto& bounds = Counters::kPauseBounds;
  return static_cast<size_t>(std::ranges::lower_bound(bounds, us) - bounds.begin());
}

// Bit n: a path beside the current one is ready over this end's NIC n.
uint8_t ready_members(const Session& session) {
  uint8_t members = 0;
  const auto add = [&members](int member) { members |= static_cast<uint8_t>(1u << member); };
  for (const PathBook::Ready& ready : session.book.all_ready()) add(ready.path.leader);
  if (session.control.is_leader) return members;
  for (int m = 0; m < session.group.context->member_count; m++) {
    if (m != session.group.life.path.member && session.offers.is_ready(m)) add(m);
  }
  return members;
}

// Why the QP has no second path, or no protection at all; empty: it has both.
std::string problem_of(const Session& session) {
  switch (session.control.state) {
    case State::kUnbound:
    case State::kFailed:
      return session.round.cause();
    case State::kActive:
      if (!session.search.is_proven()) return "its peer is being looked for";
      return ready_members(session) == 0 ? session.spare.reasons() : "";
    default:
      return "";
  }
}

}  // namespace

void Reporter::context_changed(const group::Context* context) {
  if (board_ == nullptr) return;
  DeviceRecord record;
  record.members = static_cast<uint8_t>(context->member_count);
  record.up = nics_.up(context);
  record.drained = orders_.drained(context);
  record.late = nics_.late(context);
  record.stock_qps = context->stock_qps.load(std::memory_order_relaxed);
  for (size_t m = 0; m < record.members; m++)
    record.name_set(m, context->name(static_cast<int>(m)));
  board_->device_set(owner_of(context), record);
}

void Reporter::context_forget(const group::Context* context) {
  if (board_ != nullptr) board_->device_gone(owner_of(context));
}

void Reporter::touch(Session& session) {
  if (board_ == nullptr || session.is_touched) return;
  session.is_touched = true;
  touched_.push_back(session.serial);
  write_soon();
}

void Reporter::write_soon() {
  if (board_ != nullptr && !write_.is_running()) write_.start(kBundle, [this] { write(); });
}

void Reporter::write() {
  board_->faults_add(std::exchange(faults_, {}));
  const size_t count = std::min(touched_.size(), kWrittenAtOnce);
  std::vector<uint64_t> serials(touched_.begin(),
                                touched_.begin() + static_cast<std::ptrdiff_t>(count));
  touched_.erase(touched_.begin(), touched_.begin() + static_cast<std::ptrdiff_t>(count));
  std::vector<state::Board::GroupNotice> notices;
  for (const uint64_t serial : serials) {
    Session* session = sessions_.find(serial);
    if (session == nullptr) continue;
    session->is_touched = false;
    Told& told = told_[serial];
    const GroupRecord record = record_of(*session, told);
    if (std::memcmp(&record, &told.record, sizeof record) == 0) continue;
    told.record = record;
    notices.push_back({serial, record});
  }
  board_->groups_set(notices);
  if (!touched_.empty()) return write_.start(kRest, [this] { write(); });
  board_->flush();
}

void Reporter::fault_add(FaultRecord record) {
  record.time_ns = wall_ns();
  faults_.push_back(record);
  write_soon();
}

GroupRecord Reporter::record_of(const Session& session, const Told& told) const {
  const group::Group& group = session.group;
  const PathBook& book = session.book;
  const auto place = [](int member) {
    return member < group::kDefault ? GroupRecord::kNoPath : static_cast<uint8_t>(member);
  };
  GroupRecord record;
  record.qpn = group.qpn();
  record.peer_qpn = session.ends.remote.qpn;
  state::text_set(record.device, group.context->device->dev.name);
  record.member = place(group.life.path.member);
  record.peer_member = record.member == GroupRecord::kNoPath ? GroupRecord::kNoPath
                                                             : place(group.life.path.peer_member);
  const State state = session.control.state;
  record.state = static_cast<uint8_t>(state);
  record.is_leader = session.control.is_leader;
  record.is_self = session.is_self;
  record.ready_members = ready_members(session);
  record.peer_members = static_cast<uint8_t>(book.peer_members());
  record.peer_up = book.peer_up();
  record.avoided = book.own_avoided();
  record.peer_avoided = book.peer_avoided();
  record.epoch = session.control.epoch;
  record.pause_us = told.pause_us;
  record.since_ns = record.state == told.record.state && told.record.since_ns != 0
                        ? told.record.since_ns
                        : wall_ns();
  std::memcpy(record.gid.data(), session.ends.local.gid.raw.data(), record.gid.size());
  std::memcpy(record.peer_gid.data(), session.ends.remote.gid.raw.data(), record.peer_gid.size());
  state::text_set(record.problem, problem_of(session));
  return record;
}

void Reporter::session_forget(const Session& session) {
  if (board_ == nullptr) return;
  told_.erase(session.serial);
  board_->group_gone(session.serial);
}

void Reporter::switched(const Session& session, const Switched& change) {
  if (board_ == nullptr) return;
  FaultRecord record;
  record.qpn = session.group.qpn();
  record.epoch = session.control.epoch;
  const group::Context* context = session.group.context;
  if (change.from >= group::kDefault) state::text_set(record.from, context->name(change.from));
  if (change.to >= group::kDefault) state::text_set(record.to, context->name(change.to));
  record.detector = static_cast<uint8_t>(change.detector);
  record.pause_us = change.us;
  record.fence_us = change.fence_us;
  record.notice_us = change.notice_us;
  record.replayed = change.result.posted;
  record.completed = change.result.completed;
  state::text_set(record.cause, change.cause);
  told_[session.serial].pause_us = change.us;
  fault_add(record);
  board_->count([&](Counters& counters) {
    counters.switches[static_cast<size_t>(change.detector)]++;
    counters.pauses[bucket_of(change.us)]++;
    counters.pause_us += change.us;
    counters.replayed += change.result.posted;
    counters.completed += change.result.completed;
  });
}

void Reporter::failed(const Session& session, wire::RefuseReason refusal, group::Cause cause) {
  if (board_ == nullptr) return;
  FaultRecord record;
  record.qpn = session.group.qpn();
  record.epoch = session.control.epoch;
  state::text_set(record.from, session.group.context->device->dev.name);
  record.detector = static_cast<uint8_t>(cause.detector);
  record.failed = 1;
  record.refusal = static_cast<uint8_t>(refusal);
  state::text_set(record.cause, cause.text);
  fault_add(record);
  board_->count([&](Counters& counters) {
    counters.failed[std::min<size_t>(record.refusal, Counters::kRefusals - 1)]++;
  });
}

void Reporter::incident(const Incident& incident) {
  if (board_ == nullptr) return;
  FaultRecord record;
  record.place =
      static_cast<uint8_t>(FaultRecord::kIncident | static_cast<uint8_t>(incident.place));
  record.epoch = incident.qps;
  record.pause_us = incident.us;
  record.detector = static_cast<uint8_t>(incident.detector);
  state::text_set(record.from, incident.device);
  state::text_set(record.to, incident.peer);
  state::text_set(record.cause, incident.evidence);
  fault_add(record);
}

void Reporter::peer_found() {
  if (board_ != nullptr) board_->count([](Counters& counters) { counters.protected_qps++; });
}

void Reporter::peer_missing() {
  if (board_ != nullptr) board_->count([](Counters& counters) { counters.unprotected_qps++; });
}

void Reporter::drain_called_off() {
  if (board_ != nullptr) board_->count([](Counters& counters) { counters.drains_called_off++; });
}

}  // namespace shift::control
