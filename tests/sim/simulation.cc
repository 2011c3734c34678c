#include "sim/simulation.h"

#include <algorithm>
#include <cstdarg>
#include <cstring>

#include "group/member_modify.h"
#include "ops/entry.h"
#include "ops/tables.h"
#include "sim/message_text.h"
#include "util/config.h"
#include "util/test/event_sink.h"

namespace shift::sim {

using control::Host;
using fsm::State;
using group::kDefault;
using net::Delegate;
using std::chrono::seconds;

namespace {

// This is longer than any pause of the layer between two tries.
constexpr seconds kConvergence{120};
constexpr milliseconds kBindLimit{500};
// Requests that wait for a failback are posted after this time if none comes.
constexpr milliseconds kWayBackPatience{2500};
// C6: what comes before and after an end's patience: the NIC's own repeats, a drain, a late poll.
constexpr milliseconds kFailMore{1500};

// Within one second of the schedule: many times what NICs take that repeat requests all the time
// for want of receives. What goes on for long is bounded by kConvergence.
constexpr uint64_t kStepsMax = 300'000;

constexpr char kNames[] = "ab";

}  // namespace

Simulation::Simulation(const Schedule& schedule, std::FILE* out, int more_groups)
    : schedule_(schedule),
      out_(out),
      dice_(schedule.seed ^ 0x5eed),
      stranger_(
          schedule.forged,
          [this](int host, net::PeerChannel* channel, const wire::Message& message) {
            if (gone_[static_cast<size_t>(host)]) return;
            if (out_) say("%c <~ %s, of a stranger", kNames[host], message_text(message).c_str());
            Delegate& end = hosts_[static_cast<size_t>(host)]->coordinator;
            end.on_message(channel, message);
          },
          [this](std::string what) { fail(std::move(what)); }) {
  (void)config();  // before log_set_level(), because reading the settings sets a level
  log_set_level(static_cast<LogLevel>(-1));
  test::event_sink_set([this](const char* name, std::initializer_list<EventField> fields) {
    on_record(name, fields);
  });
  network_.delay = [this] {
    return microseconds(5 + dice_.below(static_cast<uint32_t>(schedule_.message_max.count())));
  };
  network_.in_order = true;
  network_.copy_delay = [this] {
    return microseconds(5 + dice_.below(static_cast<uint32_t>(schedule_.copy_max.count())));
  };
  network_.copies = [this](const wire::Message&) {
    return dice_.chance(schedule_.copies_percent) ? 2 : 1;
  };
  network_.before = [this](const Delegate& to, const wire::Message& m) { on_message(to, m, true); };
  network_.after = [this](const Delegate& to, const wire::Message& m) { on_message(to, m, false); };
  for (size_t h = 0; h < 2; h++) {
    hosts_[h] = std::make_unique<Host>(
        time_, network_, sinks_, static_cast<uint8_t>(h + 1), schedule_.apps[h].members,
        static_cast<int>(1 + schedule_.more.size()) + more_groups, schedule_.one_cq);
  }
  group::fault_sink = &sinks_;
  for (auto& host : hosts_) host->world.context.psn_draws = dice_.next();
  pair_add(0, schedule_.apps);
  for (size_t i = 0; i < schedule_.more.size(); i++) pair_add(1 + i, schedule_.more[i]);
}

void Simulation::pair_add(size_t number, const std::array<AppPlan, 2>& plans) {
  Pair& pair = pairs_.emplace_back(time_, number, plans);
  pair.fabric.delay = [this]() -> Duration {
    if (slow_ == Duration{}) return microseconds(2 + dice_.below(4));
    return microseconds(2 + dice_.below(static_cast<uint32_t>(slow_ / microseconds(1))));
  };
  for (size_t h = 0; h < 2; h++) {
    group::Group& group = *hosts_[h]->groups[number];
    pair.groups[h] = &group;
    pair.fabric.end_set(static_cast<int>(h), hosts_[h]->world, group);
    pair.judge.group_set(static_cast<int>(h), group);
    group.mode = plans[h].mode;
    hosts_[h]->connect(*hosts_[1 - h], plans[h].first_psn, plans[1 - h].first_psn, number);
    group::count_packets(group);
    if (plans[h].only_receives) hosts_[h]->stay_in_rtr(&group);
    // One process, one way to ask.
    group.life.asked.attr.timeout = schedule_.apps[h].timeout;
    pair.rounds.patience_set(static_cast<int>(h), schedule_.apps[h].patience());
  }
  pair.rounds.leader_set(pair.groups[0]->life.ends.local < pair.groups[1]->life.ends.local ? 0 : 1);
}

std::pair<Simulation::Pair*, int> Simulation::pair_of(uint64_t qpn) {
  for (Pair& pair : pairs_) {
    for (int h = 0; h < 2; h++) {
      if (pair.groups[static_cast<size_t>(h)]->qpn() == qpn) return {&pair, h};
    }
  }
  return {nullptr, 0};
}

// Two ends that are both in RTR have no start PSN to prove themselves with. Faults meet two
// strangers, and the applications reach RTS only when all is well again.
void Simulation::reach_rts() {
  for (Pair& pair : pairs_) {
    if (!pair.only_receives()) continue;
    for (size_t h = 0; h < 2; h++) {
      if (pair.armed_ends != 0) pair.judge.fail("C11: an end is believed that proved nothing");
      if (!gone_[h]) hosts_[h]->reach_rts(pair.groups[h]);
    }
  }
}

bool Simulation::is_broken() const {
  return std::ranges::any_of(pairs_, [](const Pair& pair) { return pair.judge.is_broken(); });
}

void Simulation::poll(int host) {
  const auto h = static_cast<size_t>(host);
  group::CompletionQueue* last = nullptr;
  for (group::CompletionQueue* cq : hosts_[h]->cqs) {
    if (cq == std::exchange(last, cq)) continue;
    ibv_wc wc[8];
    for (int got; !gone_[h] && (got = ops::poll_cq(&cq->cq, 8, wc)) > 0;) {
      for (int i = 0; i < got; i++) {
        if (is_unjudged(wc[i].qp_num)) continue;
        const auto [pair, of] = pair_of(wc[i].qp_num);
        if (pair == nullptr || of != host) return fail("C9: a completion of another QP");
        pair->judge.take(host, wc[i]);
      }
    }
  }
}

Simulation::~Simulation() {
  network_.before = network_.after = nullptr;
  for (size_t h = 0; h < 2; h++) {
    if (!gone_[h]) hosts_[h]->forget();
  }
  time_.drop_all();
  test::event_sink_set(nullptr);
  group::fault_sink = nullptr;
}

const std::string& Simulation::run() {
  if (out_) std::fprintf(out_, "%s\n", to_string(schedule_).c_str());
  for (auto& host : hosts_) {
    for (size_t i = 0; i < pairs_.size(); i++) host->coordinator.group_add(host->groups[i]);
  }
  begun();
  const auto is_armed = [this] {
    return std::ranges::all_of(
        pairs_, [](const Pair& pair) { return pair.armed_ends == (pair.only_receives() ? 0 : 3); });
  };
  if (!schedule_.early && !run_until(is_armed, kBindLimit)) {
    fail("C7: the two ends do not find each other");
  }
  traffic_plan();
  fault_arm();
  run_until([this] { return next_fault_ == schedule_.faults.size(); }, seconds(60));
  run_for(schedule_.heal_after);
  heal();
  reach_rts();
  finish();
  for (const Pair& pair : pairs_) {
    if (pair.judge.is_broken()) return pair.judge.verdict();
  }
  return pairs_.front().judge.verdict();
}

bool Simulation::step() {
  if (is_broken() || !time_.step()) return false;
  if (time_.now() >= second_.end) second_ = {time_.now() + seconds(1), steps_};
  if (++steps_ - second_.steps_before > kStepsMax) fail("livelock: steps without an end");
  settle();
  count(When::kSteps);
  return !is_broken();
}

// Does what a step has made possible, before the next step.
void Simulation::settle() {
  for (Pair& pair : pairs_) pair.fabric.look();
  stepped();
  for (int h = 0; h < 2; h++) {
    const auto i = static_cast<size_t>(h);
    const auto has_some = [h](const Pair& pair) { return pair.judge.has_completions(h); };
    if (polling_[i] || std::ranges::none_of(pairs_, has_some)) continue;
    polling_[i] = true;
    time_.in(schedule_.apps[i].poll_after, [this, h, i] {
      polling_[i] = false;
      poll(h);
    });
  }
}

template <typename Condition>
bool Simulation::run_until(Condition condition, Duration limit) {
  settle();  // the caller may have done something since the last step
  const Time end = time_.now() + limit;
  while (!condition()) {
    if (is_broken()) return false;
    if (time_.next() > end) {
      time_.advance_to(end);
      return false;
    }
    if (!step()) return condition();
  }
  return true;
}

void Simulation::run_for(Duration span) {
  run_until([] { return false; }, span);
}

void Simulation::heal() {
  if (is_broken()) return;
  say("all heals");
  for (Pair& pair : pairs_) pair.rounds.healed(time_.now());
  healed_ = true;
  slow_ = {};
  for (int h = 0; h < 2; h++) {
    const auto i = static_cast<size_t>(h);
    for (int m = 0; m < hosts_[i]->world.context.member_count; m++) {
      port_restore(h, m);
      drained(h, m, false);
      hosts_[i]->world.nic(m).refuses = false;
      for (int n = 0; n < hosts_[1 - i]->world.context.member_count; n++)
        nic_blocked(h, m, n, false);
    }
    for (Pair& pair : pairs_) {
      for (; pair.late_receives[i] > 0; pair.late_receives[i]--) traffic_post(pair, h, nullptr);
    }
  }
  time_.in(kWayBackPatience, [this] { traffic_rest(); });
  if (network_.is_cut()) network_.restore();
}

bool Simulation::is_converged() const {
  return std::ranges::all_of(pairs_, [this](const Pair& pair) { return is_converged(pair); });
}

bool Simulation::is_converged(const Pair& pair) const {
  const Judge& judge = pair.judge;
  for (int h = 0; h < 2; h++) {
    const group::Group& group = *pair.groups[static_cast<size_t>(h)];
    const bool home = group.life.path.member == kDefault && group.life.path.peer_member == kDefault;
    if (group.life.control.state != State::kActive || !judge.is_done(h)) return false;
    if (!schedule_.default_dies && !home) return false;
    if (judge.receives_posted(h) < judge.notifications_posted(1 - h)) return false;
    if (pair.plans[static_cast<size_t>(h)].sends.size() > judge.sends_posted(h)) return false;
  }
  return pair.groups[0]->life.control.epoch == pair.groups[1]->life.control.epoch;
}

void Simulation::check_converged() {
  const auto tell = [this](const char* rule) {
    std::string text = rule;
    for (const Pair& pair : pairs_) {
      for (int h = 0; h < 2; h++) {
        const group::Group& group = *pair.groups[static_cast<size_t>(h)];
        text += std::string(h == 0 ? ": a " : ", b ") + fsm::to_string(group.life.control.state) +
                " in epoch " + std::to_string(group.life.control.epoch) + " on member " +
                std::to_string(group.life.path.member) +
                (pair.judge.is_done(h) ? "" : ", not done") +
                (group.send.route == group::Route::kOnDefault ? "" : ", not on the hot path");
      }
    }
    fail(text);
  };
  if (!run_until([this] { return is_converged(); }, kConvergence)) {
    return tell("C7: the two ends do not converge");
  }
  // The paths that the ends have converged to must carry traffic.
  for (Pair& pair : pairs_) {
    for (int h = 0; h < 2; h++) {
      if (pair.plans[static_cast<size_t>(h)].only_receives) continue;
      pair.judge.receive(1 - h);
      pair.judge.send(h, {IBV_WR_SEND, true, 0, 8, {}});
    }
  }
  const auto done = [this] {
    return std::ranges::all_of(
        pairs_, [](const Pair& pair) { return pair.judge.is_done(0) && pair.judge.is_done(1); });
  };
  // An end may find out only now that the answer to an atomic was lost.
  const auto fails_lawfully = [this] {
    return schedule_.outcome == Outcome::kUnproven && has_failed();
  };
  if (!run_until([&] { return done() || fails_lawfully(); }, seconds(1))) {
    return tell("C7: nothing passes at the end");
  }
  if (fails_lawfully()) check_failed();
}

bool Simulation::is_over(const Pair& pair) const {
  for (int h = 0; h < 2; h++) {
    const auto i = static_cast<size_t>(h);
    const bool all_posted = pair.plans[i].sends.size() <= pair.judge.sends_posted(h);
    if (!gone_[i] && (!all_posted || !pair.judge.is_over(h))) return false;
  }
  return true;
}

// An end that only receives waits for nothing, and so gives nothing up by itself. Its peer may have
// failed before every path was lost, and have lost its word of that with the channel.
bool Simulation::is_uninformed(const Pair& pair, int h) const {
  const group::ControlState& own = pair.groups[static_cast<size_t>(h)]->life.control;
  const group::ControlState& peer = pair.groups[static_cast<size_t>(1 - h)]->life.control;
  return pair.plans[static_cast<size_t>(h)].only_receives && peer.state == State::kFailed &&
         fsm::compare_epoch(own.epoch, peer.epoch) == fsm::EpochIs::kNext;
}

// Whatever the faults were, no request waits for ever (C6).
void Simulation::check_ended(Outcome outcome) {
  Duration bound = kFailMore, patience{};
  for (Pair& pair : pairs_) {
    for (int h = 0; h < 2; h++) {
      // An end that is gone waits no more.
      if (!gone_[static_cast<size_t>(h)]) patience = std::max(patience, pair.rounds.patience(h));
      const AppPlan& plan = pair.plans[static_cast<size_t>(h)];
      // Each end posts something, so that each notices the loss.
      if (outcome == Outcome::kFails && !plan.only_receives) {
        pair.judge.send(h, {IBV_WR_RDMA_WRITE, true, 0, 8, {}});
      }
      if (plan.sends.empty()) continue;
      bound += std::max<Duration>(plan.sends.back().when, kWayBackPatience) +
               2 * schedule_.apps[static_cast<size_t>(h)].poll_after;
    }
  }
  const auto all_over = [this] {
    return std::ranges::all_of(pairs_, [this](const Pair& pair) { return is_over(pair); });
  };
  const bool ended = run_until(all_over, bound + patience);
  if (ended) run_for(milliseconds(50));
  for (Pair& pair : pairs_) {
    if (!ended && !is_over(pair)) {
      return pair.judge.fail(std::string("C6: requests are neither done nor failed: a is ") +
                             fsm::to_string(pair.groups[0]->life.control.state) + ", b is " +
                             fsm::to_string(pair.groups[1]->life.control.state));
    }
    for (int h = 0; h < 2; h++) {
      const State state = pair.groups[static_cast<size_t>(h)]->life.control.state;
      if (outcome == Outcome::kFails && state != State::kFailed && !is_uninformed(pair, h)) {
        pair.judge.fail(std::string("C6: without any path ") + kNames[h] + " is " +
                        fsm::to_string(state));
      }
    }
  }
}

bool Simulation::has_failed() const {
  return std::ranges::any_of(pairs_, [](const Pair& pair) {
    return std::ranges::any_of(pair.groups, [](const group::Group* group) {
      return group->life.control.state == State::kFailed;
    });
  });
}

// While there is a path, only an atomic is a reason to fail.
void Simulation::check_excused() {
  for (Pair& pair : pairs_) {
    if (pair.judge.has_atomic_open(0) || pair.judge.has_atomic_open(1)) continue;
    for (int h = 0; h < 2; h++) {
      if (pair.groups[static_cast<size_t>(h)]->life.control.state == State::kFailed)
        pair.judge.fail(std::string("C7: ").append(1, kNames[h]).append(" fails for nothing"));
    }
  }
}

void Simulation::check_failed() {
  check_ended(schedule_.outcome);
  check_excused();
}

void Simulation::finish() {
  if (is_broken()) return;
  switch (schedule_.outcome) {
    case Outcome::kComplete:
      return check_converged();
    case Outcome::kUnproven:
      // An unsignaled atomic may be in doubt long after it was executed.
      run_until([this] { return is_converged() || has_failed(); }, kConvergence);
      return has_failed() ? check_failed() : check_converged();
    case Outcome::kEither:
    case Outcome::kFails:
      return check_ended(schedule_.outcome);
  }
}

// ---- What the simulation hears of the ends, and prints.

int Simulation::host_of(const Delegate& delegate) const {
  return &delegate == static_cast<const Delegate*>(&hosts_[0]->coordinator) ? 0 : 1;
}

void Simulation::on_message(const Delegate& to, const wire::Message& message, bool before) {
  if (!before) return count(When::kAfterMessage);
  heard(to, message);
  if (!schedule_.forged.empty()) stranger_.heard(host_of(to), message);
  count(When::kBeforeMessage);
  const auto* ready = std::get_if<wire::Ready>(&message);
  if (ready != nullptr && ready->kind == wire::Ready::Kind::kReady) traffic_way_back();
  if (out_) say("%c <- %s", kNames[host_of(to)], message_text(message).c_str());
}

void Simulation::on_record(const char* name, std::initializer_list<EventField> fields) {
  const auto field = [&](const char* key) -> const EventField* {
    for (const EventField& f : fields) {
      if (std::strcmp(f.key, key) == 0) return &f;
    }
    return nullptr;
  };
  const EventField* qp = field("qp");
  const auto [pair, h] = qp != nullptr ? pair_of(qp->number) : std::pair<Pair*, int>{nullptr, 0};
  if (pair == &pairs_.front()) {
    if (std::FILE* file = files_[static_cast<size_t>(h)]; file != nullptr) {
      const auto now =
          std::chrono::duration_cast<std::chrono::nanoseconds>(time_.now().time_since_epoch());
      std::fputs(test::event_text(now.count(), name, fields).c_str(), file);
    }
  }
  if (std::strcmp(name, "bug") == 0 && !(qp != nullptr && is_confused(qp->number)))
    fail("impossible: " + std::string(field("cause")->text));
  if (pair == nullptr) return;
  if (std::strcmp(name, "armed") == 0) pair->armed_ends |= h == 0 ? 1 : 2;
  const bool moves = std::strcmp(name, "state") == 0;
  if (!moves && std::strcmp(name, "stay") != 0) return;
  const Transition t{h,
                     static_cast<uint32_t>(field("epoch")->number),
                     std::string(field("from")->text),
                     std::string(field("to")->text),
                     std::string(field("on")->text),
                     pair->judge.sends_posted(h) == 0};
  if (out_) {
    const std::string which = pairs_.size() == 1 ? "" : std::to_string(pair->number);
    say("%c%s: %s -> %s on %s, epoch %u", kNames[h], which.c_str(), t.from.c_str(), t.to.c_str(),
        t.on.c_str(), t.epoch);
  }
  if (const std::string broken = pair->rounds.take(t, time_.now()); !broken.empty()) fail(broken);
  // A pair that leaves a path for a fault disturbs the other pairs, too, however late that is.
  for (Pair& other : pairs_) {
    if (&other != pair && pair->rounds.by_fault()) other.rounds.disturbed(time_.now());
  }
  // What was posted before the end of the fence may run again, but not in a failback.
  if (t.on == "fence-done" && pair->rounds.by_fault()) pair->judge.path_fault_noted();
  if (t.to == "draining") draining_ = true;
  if (moves) count(When::kTransition);
}

void Simulation::say(const char* format, ...) {
  if (!out_) return;
  const auto us = std::chrono::duration_cast<microseconds>(time_.now().time_since_epoch()).count();
  std::fprintf(out_, "%12.6f  ", static_cast<double>(us - 1'000'000'000) / 1e6);
  va_list args;
  va_start(args, format);
  std::vfprintf(out_, format, args);
  va_end(args);
  std::fputc('\n', out_);
}

}  // namespace shift::sim
