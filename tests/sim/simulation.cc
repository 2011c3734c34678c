#include "sim/simulation.h"

#include <algorithm>
#include <cstdarg>
#include <cstring>

#include "sim/event_sink.h"
#include "sim/message_text.h"
#include "util/config.h"

namespace shift::sim {

using control::Delegate;
using control::Host;
using fsm::State;
using group::kDefault;
using std::chrono::seconds;

namespace {

// Beyond any pause of the layer's own between two tries.
constexpr seconds kConvergence{120};
constexpr milliseconds kBindLimit{500};
// What was to be posted about a way back that does not come.
constexpr milliseconds kWayBackPatience{2500};
// C6: SHIFT_EXCHANGE_MS, and what comes before it: the NIC's own repeats, a drain, a late poll.
constexpr milliseconds kFailBound{4500};

// Many times what the longest runs take.
constexpr uint64_t kStepsMax = 300'000;

constexpr char kNames[] = "ab";

}  // namespace

Simulation::Simulation(const Schedule& schedule, std::FILE* out)
    : schedule_(schedule), out_(out), dice_(schedule.seed ^ 0x5eed) {
  (void)config();  // before the level: reading it sets one
  log_set_level(static_cast<LogLevel>(-1));
  event_sink_set([this](const char* name, std::initializer_list<EventField> fields) {
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
  fabric_.delay = [this]() -> Duration {
    if (slow_ == Duration{}) return microseconds(2 + dice_.below(4));
    return microseconds(2 + dice_.below(static_cast<uint32_t>(slow_ / microseconds(1))));
  };
  for (size_t h = 0; h < 2; h++) {
    hosts_[h] = std::make_unique<Host>(time_, network_, sinks_, static_cast<uint8_t>(h + 1),
                                       schedule_.apps[h].members);
    fabric_.world_set(static_cast<int>(h), hosts_[h]->world);
    judge_.host_set(static_cast<int>(h), *hosts_[h]);
  }
  group::fault_sink = &sinks_;
  for (size_t h = 0; h < 2; h++) {
    hosts_[h]->world.context.psn_draws = dice_.next();
    hosts_[h]->group->exact = schedule_.apps[h].exact;
    hosts_[h]->connect(*hosts_[1 - h], schedule_.apps[h].first_psn,
                       schedule_.apps[1 - h].first_psn);
    group::count_packets(*hosts_[h]->group);
    if (schedule_.apps[h].only_receives) hosts_[h]->stay_in_rtr();
  }
}

Simulation::~Simulation() {
  network_.before = network_.after = nullptr;
  for (size_t h = 0; h < 2; h++) {
    if (!gone_[h]) hosts_[h]->forget();
  }
  time_.drop_all();
  event_sink_set(nullptr);
  group::fault_sink = nullptr;
}

const std::string& Simulation::run() {
  if (out_) std::fprintf(out_, "%s\n", to_string(schedule_).c_str());
  for (auto& host : hosts_) host->coordinator.group_add(host->group);
  rounds_judge_.leader_set(hosts_[0]->group->local < hosts_[1]->group->local ? 0 : 1);
  if (!schedule_.early && !run_until([this] { return armed_ends_ == 3; }, kBindLimit)) {
    judge_.fail("C7: the two ends do not find each other");
  }
  traffic_plan();
  fault_arm();
  run_until([this] { return next_fault_ == schedule_.faults.size(); }, seconds(60));
  run_for(schedule_.heal_after);
  heal();
  finish();
  return judge_.verdict();
}

bool Simulation::step() {
  if (judge_.is_broken() || !time_.step()) return false;
  if (++steps_ > kStepsMax) judge_.fail("livelock: steps without an end");
  settle();
  count(When::kSteps);
  return !judge_.is_broken();
}

// What the step has made possible, before the next one.
void Simulation::settle() {
  fabric_.look();
  for (int h = 0; h < 2; h++) {
    const auto i = static_cast<size_t>(h);
    if (polling_[i] || !judge_.has_completions(h)) continue;
    polling_[i] = true;
    time_.in(schedule_.apps[i].poll_after, [this, h, i] {
      polling_[i] = false;
      judge_.poll(h);
    });
  }
}

template <typename Condition>
bool Simulation::run_until(Condition condition, Duration limit) {
  settle();  // what was done from outside since the last step
  const Time end = time_.now() + limit;
  while (!condition()) {
    if (judge_.is_broken()) return false;
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
  if (judge_.is_broken()) return;
  say("all heals");
  rounds_judge_.healed(time_.now());
  healed_ = true;
  slow_ = {};
  for (int h = 0; h < 2; h++) {
    const auto i = static_cast<size_t>(h);
    for (int m = 0; m < hosts_[i]->world.context.members; m++) {
      port_restore(h, m);
      hosts_[i]->world.nic(m).refuses = false;
      for (int n = 0; n < hosts_[1 - i]->world.context.members; n++) fabric_.block(h, m, n, false);
    }
    for (; late_receives_[i] > 0; late_receives_[i]--) traffic_post(h, nullptr);
  }
  time_.in(kWayBackPatience, [this] { traffic_rest(); });
  if (network_.is_cut()) network_.restore();
}

bool Simulation::is_converged() const {
  for (int h = 0; h < 2; h++) {
    const group::Group& group = *hosts_[static_cast<size_t>(h)]->group;
    const bool home = group.member == kDefault && group.peer_member == kDefault;
    if (group.state != State::kActive || !judge_.is_done(h)) return false;
    if (!schedule_.default_dies && !home) return false;
    if (judge_.receives_posted(h) < judge_.notifications_posted(1 - h)) return false;
    if (schedule_.apps[static_cast<size_t>(h)].sends.size() > judge_.sends_posted(h)) return false;
  }
  return hosts_[0]->group->epoch == hosts_[1]->group->epoch;
}

void Simulation::check_converged() {
  const auto tell = [this](const char* rule) {
    std::string text = rule;
    for (int h = 0; h < 2; h++) {
      const group::Group& group = *hosts_[static_cast<size_t>(h)]->group;
      text += std::string(h == 0 ? ": a " : ", b ") + fsm::to_string(group.state) + " in epoch " +
              std::to_string(group.epoch) + " on member " + std::to_string(group.member) +
              (judge_.is_done(h) ? "" : ", not done") +
              (group.send.route == group::Route::kOnDefault ? "" : ", not on the hot path");
    }
    judge_.fail(text);
  };
  if (!run_until([this] { return is_converged(); }, kConvergence)) {
    return tell("C7: the two ends do not converge");
  }
  // What they have converged to carries traffic.
  for (int h = 0; h < 2; h++) {
    if (schedule_.apps[static_cast<size_t>(h)].only_receives) continue;
    judge_.receive(1 - h);
    judge_.send(h, {IBV_WR_SEND, true, 0, 8, {}});
  }
  const auto done = [this] { return judge_.is_done(0) && judge_.is_done(1); };
  if (!run_until(done, seconds(1))) tell("C7: nothing passes at the end");
}

// Whatever the faults were, nothing waits for ever (C6).
void Simulation::check_ended(Outcome outcome) {
  if (outcome == Outcome::kFails) {
    // Something to lose at either end, so that each of them learns.
    for (int h = 0; h < 2; h++) {
      if (schedule_.apps[static_cast<size_t>(h)].only_receives) continue;
      judge_.send(h, {IBV_WR_RDMA_WRITE, true, 0, 8, {}});
    }
  }
  const auto is_over = [this] {
    for (int h = 0; h < 2; h++) {
      const auto i = static_cast<size_t>(h);
      const bool all_posted = schedule_.apps[i].sends.size() <= judge_.sends_posted(h);
      if (!gone_[i] && (!all_posted || !judge_.is_over(h))) return false;
    }
    return true;
  };
  Duration bound = kFailBound;
  for (const AppPlan& app : schedule_.apps) {
    if (app.sends.empty()) continue;
    bound += std::max<Duration>(app.sends.back().when, kWayBackPatience) + 2 * app.poll_after;
  }
  if (!run_until(is_over, bound)) {
    return judge_.fail(std::string("C6: requests are neither done nor failed: a is ") +
                       fsm::to_string(hosts_[0]->group->state) + ", b is " +
                       fsm::to_string(hosts_[1]->group->state));
  }
  run_for(milliseconds(50));
  for (int h = 0; h < 2; h++) {
    const State state = hosts_[static_cast<size_t>(h)]->group->state;
    if (outcome == Outcome::kFails && state != State::kFailed) {
      judge_.fail(std::string("C6: without any path ") + kNames[h] + " is " +
                  fsm::to_string(state));
    }
  }
}

bool Simulation::has_failed() const {
  return std::ranges::any_of(hosts_,
                             [](const auto& host) { return host->group->state == State::kFailed; });
}

// With a path left, nothing but an atomic is a reason to fail.
void Simulation::check_excused() {
  if (judge_.has_atomic_open(0) || judge_.has_atomic_open(1)) return;
  for (int h = 0; h < 2; h++) {
    if (hosts_[static_cast<size_t>(h)]->group->state == State::kFailed)
      judge_.fail(std::string("C7: ") + kNames[h] + " fails for nothing");
  }
}

void Simulation::finish() {
  if (judge_.is_broken()) return;
  switch (schedule_.outcome) {
    case Outcome::kComplete:
      return check_converged();
    case Outcome::kUnproven:
      // An atomic that nobody signals may be doubtful long after it was executed.
      run_until([this] { return is_converged() || has_failed(); }, kConvergence);
      if (!has_failed()) return check_converged();
      check_ended(schedule_.outcome);
      return check_excused();
    case Outcome::kEither:
    case Outcome::kFails:
      return check_ended(schedule_.outcome);
  }
}

// ---- what is told

int Simulation::host_of(const Delegate& delegate) const {
  return &delegate == static_cast<const Delegate*>(&hosts_[0]->coordinator) ? 0 : 1;
}

void Simulation::on_message(const Delegate& to, const wire::Message& message, bool before) {
  if (!before) return count(When::kAfterMessage);
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
  if (const EventField* qp = field("qp"); qp != nullptr) {
    const bool first = qp->number == hosts_[0]->group->qpn();
    if (std::FILE* file = files_[first ? 0 : 1]; file != nullptr) {
      const auto now =
          std::chrono::duration_cast<std::chrono::nanoseconds>(time_.now().time_since_epoch());
      std::fputs(event_text(now.count(), name, fields).c_str(), file);
    }
  }
  if (std::strcmp(name, "bug") == 0)
    judge_.fail("impossible: " + std::string(field("cause")->text));
  if (std::strcmp(name, "armed") == 0) {
    armed_ends_ |= field("qp")->number == hosts_[0]->group->qpn() ? 1 : 2;
  }
  const bool moves = std::strcmp(name, "state") == 0;
  if (!moves && std::strcmp(name, "stay") != 0) return;
  const int h = field("qp")->number == hosts_[0]->group->qpn() ? 0 : 1;
  const Transition t{h, static_cast<uint32_t>(field("epoch")->number),
                     std::string(field("from")->text), std::string(field("to")->text),
                     std::string(field("on")->text)};
  if (out_)
    say("%c: %s -> %s on %s, epoch %u", kNames[h], t.from.c_str(), t.to.c_str(), t.on.c_str(),
        t.epoch);
  if (const std::string broken = rounds_judge_.take(t, time_.now()); !broken.empty()) {
    judge_.fail(broken);
  }
  // What was posted up to the end of the fence may run again; unless that is the way back's.
  if (t.on == "fence-done" && rounds_judge_.by_fault()) judge_.path_fault_noted();
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
