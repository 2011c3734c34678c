#include "control/round.h"

#include <algorithm>
#include <utility>

#include "control/jobs.h"
#include "control/reporter.h"
#include "control/ways.h"
#include "group/commit.h"
#include "group/context.h"
#include "group/keys.h"
#include "group/locked.h"
#include "group/member_qp.h"
#include "util/config.h"
#include "util/log.h"
#include "util/planted.h"

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

// Event records hold times of CLOCK_MONOTONIC, which steady_clock is.
int64_t ns_of(Time time) {
  return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

}  // namespace

int Round::own_member() const {
  return session_.control.is_leader ? target_.path.leader : target_.path.follower;
}

int Round::peer_member() const {
  return session_.control.is_leader ? target_.path.follower : target_.path.leader;
}

// ---- how it begins

void Round::note_cause(group::Cause cause, bool leaves) {
  if (cause.text[0] != '\0' && leaves) cause_ = cause.text;
}

void Round::note_evidence(group::Detector detector, Time seen) {
  if (detector == group::Detector::kNone) return;
  detector_ = detector;
  evidence_ = seen;
}

// No other function assigns an epoch.
void Round::enter_epoch(std::optional<uint32_t> peer_epoch) {
  Group& group = session_.group;
  const bool peer_is_ahead =
      peer_epoch && fsm::compare_epoch(*peer_epoch, session_.control.epoch) == fsm::EpochIs::kNext;
  session_.control.epoch = peer_is_ahead ? *peer_epoch : session_.control.epoch + 1;
  session_.keys.forget();
  session_.qps.want_memory();
  own_progress_.reset();
  answers_.cancel();
  PathBook& book = session_.book;
  // The target has not worked if a further round leaves it before its own round is over.
  if (session_.control.is_leader && (group.life.path.member != group::kNoMember) &&
      !book.current()) {
    NicPair& pair = session_.paths.pair_of(target_.path);
    pair.failed(loop_.now(), session_.book.works(target_.path));
    pair.pause(loop_.now(), milliseconds(20));
  }
  if (book.current()) {
    left_ = book.current();
    const PathName left = own_first(session_, *left_);
    if (is_by_fault_ && !SHIFT_PLANT(left_undoubted))
      session_.paths.pair_of(left).doubt(loop_.now(), book.works(left));
  }
  book.current_set(std::nullopt);
  session_.way_back.forget_candidate();
  // Any path is better now than the broken one.
  if (is_by_fault_) session_.way_back.end_trade();
}

void Round::send_switch() {
  if (session_.search.channel() == nullptr) return;
  session_.search.send(wire::Switch{session_.ends.local, session_.ends.remote,
                                    session_.control.epoch, ++session_.control.sequence,
                                    is_by_fault_ ? wire::Switch::kFault : wire::Switch::kReturn});
}

void Round::arm_deadline() {
  if (deadline_.is_running()) return;
  detected_ = waiting_since_ = loop_.now();
  give_up_at_ = detected_ + milliseconds(config().exchange_ms);
  waiting_to_ = 0;
  look_at_ = detected_;
  deadline_look();
}

// No program has its error earlier than on the stock library: there a request gets an error when
// the NIC has repeated it for as long as the application asked, and a program with no request under
// way gets none. If it shows meanwhile that waiting is of no use, the bound counts from the
// beginning of the round. A time in which this process did not run at all, since it or its whole
// machine was stopped, does not count: nothing could be tried in it.
void Round::deadline_look() {
  constexpr milliseconds kLookPause{250}, kStopped{100}, kLong{400};
  const Time now = loop_.now();
  if (const auto late = now - look_at_; late > kStopped && !SHIFT_PLANT(stops_count)) {
    give_up_at_ += late;
    waiting_since_ += late;
  }
  const group::Waiting sends = group::sends_waiting(session_.group);
  if (sends.first >= waiting_to_) {  // no request waited, or those that waited are gone
    waiting_to_ = sends.end;
    waiting_since_ = now;
  }
  const Time give_up_at =
      session_.may_come_back() ? waiting_since_ + session_.patience() : give_up_at_;
  if (now >= give_up_at) {
    return machine_.feed(session_,
                         {.event = Event::kDeadline, .cause = "no path was found in time"});
  }
  if (now - detected_ >= kLong) session_.redial_soon();
  look_at_ = std::min(give_up_at, now + kLookPause);
  deadline_.start_at(look_at_, [this] { deadline_look(); });
}

// ---- the fence

void Round::fenced(const group::Fence::Entry& entry) {
  if (entry.member != group::kNoMember) {
    MemberQp& qp = session_.qps[entry.member];
    qp.connected = false;
    if (entry.responder) {
      responders_.push_back({qp.connection.path, qp.connection.generation, *entry.responder});
      if (responders_.size() > kRespondersMax) responders_.pop_front();
    }
  }
  fenced_ = loop_.now();
  if (!fsm::kFence.has(session_.control.state)) return;
  if (entry.result != group::Fence::Result::kProven) {
    return machine_.feed(session_, {.event = Event::kFenceFailed,
                                    .cause = "the old path could not be proven shut",
                                    .refusal = wire::RefuseReason::kFenceFailed});
  }
  session_.gone.over();
  if (is_in_vain()) {
    cancel_deadline();
    return machine_.feed(session_,
                         {.event = Event::kDeadline,
                          .cause = "paths are found, but none of them carries the requests"});
  }
  await_registrations(group::receives_end(session_.group));
}

// Whether the rounds find only paths that do not carry the requests. A path may pass the probe,
// which is empty, and carry no data, as with a switch that takes only smaller packets; or its NIC
// refuses what is posted. Each round finds such a path again and cancels the deadline (C6).
bool Round::is_in_vain() {
  constexpr int kRoundsMin = 4;  // bad luck may come more than once
  // Only requests that the NIC could not deliver, or did not take, show such paths: ports, and
  // peers, may come and go for long.
  const bool by_post = detector_ == group::Detector::kPost;
  if (!by_post && detector_ != group::Detector::kCompletion) return false;
  const std::chrono::nanoseconds bound = session_.patience();
  Group& group = session_.group;
  // The queues of the path that was shut are drained, so all that completed on it is counted. A
  // request without a signal completes nothing here; the peer's counter is that of the round
  // before.
  const uint64_t done =
      group.counters.done[0] + group.counters.done[1] + session_.control.peer_received;
  // A path that held for longer than the bound was good, though its receiver may have been slow.
  const bool goes_on = group::sends_outstanding(group, by_post) && done == trouble_.done &&
                       fenced_ - trouble_.fenced < bound;
  if (!goes_on) trouble_ = {detected_, {}, done, 0};
  trouble_.fenced = fenced_;
  trouble_.rounds++;
  return trouble_.rounds >= kRoundsMin && fenced_ - trouble_.since > bound;
}

// Ends the trouble if the path answers. A NIC whose requests are not answered gives up within its
// patience. If it has not, the path answers, and a request that does not complete waits for the
// peer's application, which has posted no receive for it; or the request has no signal, so that it
// completes nothing here (C7).
void Round::watch_answers() {
  if (trouble_.rounds == 0 || !group::sends_outstanding(session_.group, false)) return;
  ask_health([](Round& round, const group::QpHealth& health) {
    if (health.patience == std::chrono::nanoseconds::zero()) return;
    round.answers_.start(health.patience, [&round] {
      round.ask_health([](Round& asked, const group::QpHealth& now) {
        if (!now.is_broken) asked.trouble_ = {};
      });
    });
  });
}

// Asks the NIC about the QP of the committed path. `then` is called if it says anything, and the
// group is on that path still.
void Round::ask_health(void (*then)(Round& round, const group::QpHealth& health)) {
  const int member = session_.group.life.path.member;
  if (member == group::kNoMember) return;
  jobs_.run(
      session_, member, [member](Group& g) { return group::member_qp_health(g, member); },
      [then, epoch = session_.control.epoch](Session& asked,
                                             const std::optional<group::QpHealth>& health) {
        if (health && asked.control.epoch == epoch) then(asked.round, *health);
      });
}

// The round waits for registrations of memory that it posts itself, because the peer will be told
// that receives stand. It does not wait for those of receives that are posted meanwhile: with a
// program that registers all the time, the round would never go on.
void Round::await_registrations(uint64_t receives_end) {
  if (!group::round_awaits_registration(session_.group, receives_end)) {
    return machine_.feed(session_, {.event = Event::kFenceDone});
  }
  look_again_.start(microseconds(500), [this, receives_end, fenced = fenced_] {
    if (!fsm::kFence.has(session_.control.state)) return;
    if (fenced_ == fenced) await_registrations(receives_end);
  });
}

// ---- the target

void Round::keep(const wire::Progress& progress) {
  session_.control.peer_received = progress.notifications_received;
  session_.control.peer_responder.reset();
  for (const wire::ResponderPsn& responder : progress.responders) {
    if (Connection{responder.path, responder.generation} == sent_) {
      session_.control.peer_responder = responder.psn;
    }
  }
  if (!session_.control.is_leader) target_ = {progress.target, progress.generation};
}

// Both ends put their receives on the target before they send Progress: else the peer's first
// message would meet an empty queue.
std::optional<Input> Round::commit(const Input& input) {
  Group& group = session_.group;
  const int member = own_member();
  const bool is_usable = member < group.context->member_count &&
                         session_.qps.carries(member, target_) &&
                         nics_.is_up(group.context, member);
  // The ready path is used up, or of no use: the next round must not choose it again.
  session_.book.ready_drop(target_.path);
  if (!is_usable) return input.then(Event::kTargetUnusable);
  session_.read_backs_begin(member);
  own_progress_.emplace();
  own_progress_->notifications_received = group::notifications_received(group);
  switch (group::commit(group, member, peer_member())) {
    case group::Commit::kDone:
      break;
    case group::Commit::kKeyMissing: {
      Input refused = input.then(Event::kReplayRefused,
                                 "a receive's region is not registered on the other NIC");
      refused.refusal = wire::RefuseReason::kKeyMissing;
      return refused;
    }
    case group::Commit::kUnusable:
      return input.then(Event::kTargetUnusable);
  }
  return std::nullopt;
}

void Round::send_progress() {
  wire::Progress& progress = *own_progress_;
  progress.from = session_.ends.local;
  progress.to = session_.ends.remote;
  progress.epoch = session_.control.epoch;
  progress.seq = ++session_.control.sequence;
  progress.target = target_.path;
  progress.generation = target_.generation;
  progress.responders.assign(responders_.begin(), responders_.end());
  session_.search.send(progress);
}

void Round::say_again() {
  switch (session_.control.state) {
    case State::kFencing:
    case State::kFencingTargeted:
    case State::kSeeking:
      return send_switch();
    case State::kActive:
    case State::kExchanging:
    case State::kResuming:
      if (own_progress_) session_.search.send(*own_progress_);
      return;
    default:
      return;
  }
}

// ---- the replay

std::optional<Input> Round::replay(const Input& input) {
  Group& group = session_.group;
  const auto result = group::replay(group, session_.control.peer_received);
  sent_ = target_;
  if (result.refusal != nullptr) {
    Input refused = input.then(Event::kReplayRefused, result.refusal);
    refused.refusal = wire::RefuseReason::kInError;
    return refused;
  }
  if (result.path_broken) {
    return input.then(Event::kPathFault, {"a request could not be posted", group::Detector::kPost});
  }
  const Time now = loop_.now();
  if (is_by_fault_ && left_ && *left_ != target_.path) {
    const PathName left = own_first(session_, *left_);
    session_.paths.pair_of(left).rest(now, session_.book.works(left));
  }
  session_.book.current_set(target_.path);
  active_since_ = now;
  session_.way_back.switched();
  is_by_fault_ = false;
  group::original_error_forget(group);
  session_.watch_errors();
  watch_answers();
  tell_switched(result, now);
  return std::nullopt;
}

void Round::tell_switched(const group::ReplayResult& result, Time now) const {
  const Group& group = session_.group;
  if (log_enabled(LogLevel::kInfo) && lines_.switched.allow()) {
    SHIFT_INFO(
        "qp 0x%x goes on over %s after %lld us (%s, %s; noticed in %lld us; fence %lld us): %u "
        "completed by the peer's word, %u posted again (without %u packets), %u parked",
        group.qpn(), group.context->name(group.life.path.member),
        static_cast<long long>(us_between(detected_, now)), to_string(detector_), cause_,
        static_cast<long long>(us_between(evidence_, detected_)),
        static_cast<long long>(us_between(detected_, fenced_)), result.completed, result.posted,
        result.skipped, result.parked);
  }
  SHIFT_EVENT("switched", {{"qp", group.qpn()},
                           {"epoch", session_.control.epoch},
                           {"member", group.context->name(group.life.path.member)},
                           {"peer_member", group.life.path.peer_member},
                           {"detector", to_string(detector_)},
                           {"evidence_ns", ns_of(evidence_)},
                           {"end_ns", ns_of(now)},
                           {"notice_us", us_between(evidence_, detected_)},
                           {"us", us_between(detected_, now)},
                           {"fence_us", us_between(detected_, fenced_)},
                           {"completed", result.completed},
                           {"replayed", result.posted},
                           {"parked", result.parked},
                           {"skipped_packets", result.skipped},
                           {"cause", cause_}});
  const bool is_leader = session_.control.is_leader;
  session_.reporter().switched(
      session_, {.from = !left_      ? group::kNoMember
                         : is_leader ? left_->leader
                                     : left_->follower,
                 .to = group.life.path.member,
                 .detector = detector_,
                 .cause = cause_,
                 .us = static_cast<uint32_t>(us_between(detected_, now)),
                 .fence_us = static_cast<uint32_t>(us_between(detected_, fenced_)),
                 .notice_us = static_cast<uint32_t>(us_between(evidence_, detected_)),
                 .result = result});
}

}  // namespace shift::control
