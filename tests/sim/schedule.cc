#include "sim/schedule.h"

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "group/journal.h"

namespace shift::sim {
namespace {

constexpr milliseconds kExchange{3'000};  // SHIFT_EXCHANGE_MS

constexpr const char* kWhatNames[] = {
    "port-down", "port-silent",   "scare",        "block",      "rails",        "slow",
    "cut",       "reconnect",     "channel-lost", "refuse",     "device-death", "fence-fails",
    "mute",      "process-death", "close",        "total-loss", "outage",       "drained"};
static_assert(std::size(kWhatNames) == static_cast<size_t>(What::kCount));
constexpr const char* kWhenNames[] = {"steps", "before-message", "after-message", "transition",
                                      "drain"};
static_assert(std::size(kWhenNames) == static_cast<size_t>(When::kCount));
constexpr const char* kModeNames[] = {"", "exact, ", "auto, "};

// Most requests are posted at once, some while a round is under way, a few much later.
microseconds moment(Dice& dice) {
  switch (dice.below(6)) {
    case 0:
    case 1:
    case 2:
      return microseconds(0);
    case 3:
      return microseconds(dice.below(200));
    case 4:
      return microseconds(dice.below(30'000));
    default:
      return microseconds(dice.below(1'500'000));
  }
}

ibv_wr_opcode opcode(Dice& dice, bool atomics) {
  switch (dice.below(atomics ? 9 : 8)) {
    case 0:
    case 1:
    case 2:
      return IBV_WR_RDMA_WRITE;
    case 3:
    case 4:
      return IBV_WR_SEND;
    case 5:
      return IBV_WR_SEND_WITH_IMM;
    case 6:
      return IBV_WR_RDMA_WRITE_WITH_IMM;
    case 7:
      return IBV_WR_RDMA_READ;
    default:
      return IBV_WR_ATOMIC_FETCH_AND_ADD;
  }
}

// Most requests fit into one packet; a READ's answer may take two.
uint32_t length(Dice& dice, ibv_wr_opcode opcode) {
  if (group::is_atomic(opcode) || dice.chance(60)) return 8;
  return 1 + dice.below(opcode == IBV_WR_RDMA_READ ? 2'000 : AppPlan::kLengthMax);
}

// Sorts by time; plans without a time of their own come last.
template <typename Plans, typename When>
void sort_by_time(Plans& plans, When when) {
  std::ranges::stable_sort(plans, {}, [when](const auto& plan) {
    const microseconds time = std::invoke(when, plan);
    return time < microseconds(0) ? microseconds::max() : time;
  });
}

void plan_sends(Dice& dice, AppPlan& app, bool atomics, bool way_back) {
  const uint32_t signal_every = dice.chance(70) ? 1 : dice.below(4);  // 0: no request is signaled
  uint32_t posted = 0;
  for (uint32_t count = dice.below(7); count > 0; count--) {
    posted++;
    const bool signaled = signal_every != 0 && posted % signal_every == 0;
    const ibv_wr_opcode code = opcode(dice, atomics);
    const bool later = way_back && dice.chance(60);
    app.sends.push_back({code, signaled, static_cast<uint8_t>(dice.below(AppPlan::kSlots)),
                         length(dice, code), later ? AppPlan::kWayBack : moment(dice)});
  }
  sort_by_time(app.sends, &AppPlan::Send::when);
}

void plan_receives(Dice& dice, AppPlan& app, const AppPlan& peer, bool way_back) {
  const auto count = std::ranges::count_if(
      peer.sends, [](const AppPlan::Send& send) { return group::is_notification(send.opcode); });
  const uint32_t way = dice.below(4);
  for (int64_t i = 0; i < count; i++) {
    app.receives.push_back(way < 2           ? microseconds(0)
                           : way == 2        ? moment(dice)
                           : way_back        ? AppPlan::kWayBack
                           : dice.chance(50) ? AppPlan::kLate
                                             : microseconds(0));
  }
  sort_by_time(app.receives, std::identity());
}

void plan_more(Dice& dice, Schedule& s, bool atomics) {
  s.one_cq = dice.chance(50);
  for (uint32_t count = 1 + dice.below(2); count > 0; count--) {
    auto& apps = s.more.emplace_back();
    for (size_t h = 0; h < 2; h++) {
      apps[h].mode = s.apps[h].mode;
      apps[h].first_psn = dice.below(1u << 24);
      plan_sends(dice, apps[h], atomics, false);
    }
    for (size_t h = 0; h < 2; h++) plan_receives(dice, apps[h], apps[1 - h], false);
  }
}

void plan_traffic(Dice& dice, Schedule& s, bool atomics) {
  const bool way_back = dice.chance(30);
  for (AppPlan& app : s.apps) {
    constexpr int kMany[] = {3, 3, 4, 4, 5, 8};
    app.members = dice.chance(40) ? kMany[dice.below(6)] : 2;
    app.poll_after =
        microseconds(dice.chance(60) ? 1 : 1 + dice.below(dice.chance(50) ? 200 : 20'000));
    plan_sends(dice, app, atomics, way_back);
  }
  if (dice.chance(8)) {
    const uint32_t which = dice.below(9);  // one of the two, or both
    for (size_t h = 0; h < 2; h++) {
      if (which < 8 && which % 2 != h) continue;
      s.apps[h].only_receives = true;
      s.apps[h].sends.clear();
    }
  }
  for (size_t h = 0; h < 2; h++) plan_receives(dice, s.apps[h], s.apps[1 - h], way_back);
}

What common_fault(Dice& dice) {
  static constexpr What kCommon[] = {
      What::kPortDown, What::kPortDown,  What::kPortDown,  What::kPortSilent,  What::kPortSilent,
      What::kScare,    What::kScare,     What::kBlock,     What::kBlock,       What::kSlow,
      What::kCut,      What::kReconnect, What::kReconnect, What::kChannelLost, What::kRefuse};
  return kCommon[dice.below(std::size(kCommon))];
}

Fault fault(Dice& dice, const Schedule& s, bool first) {
  Fault f;
  f.what = common_fault(dice);
  f.host = static_cast<int>(dice.below(2));
  const auto members = static_cast<uint32_t>(s.apps[static_cast<size_t>(f.host)].members);
  const auto theirs = static_cast<uint32_t>(s.apps[static_cast<size_t>(1 - f.host)].members);
  const uint32_t which = dice.below(10);
  f.member = which < 6   ? Fault::kCurrent
             : which < 8 ? Fault::kOther
                         : static_cast<int>(dice.below(members));
  f.peer_member = static_cast<int>(dice.below(theirs));
  f.flag = dice.chance(50);
  switch (dice.below(8)) {
    case 0:
    case 1:
      f.when = When::kSteps;
      f.count = dice.below(dice.chance(60) ? 20 : 200);
      break;
    case 2:
    case 3:
      f.when = dice.chance(50) ? When::kBeforeMessage : When::kAfterMessage;
      f.count = dice.below(8);
      break;
    case 4:
    case 5:
    case 6:
      f.when = first ? When::kSteps : When::kTransition;
      f.count = dice.below(first ? 40 : 7);
      break;
    default:
      f.when = first ? When::kSteps : When::kDrain;
      f.count = dice.below(first ? 5 : 30);
      break;
  }
  // Faults are short: after its deadline a round without a path fails, which is right.
  f.lasts = microseconds(dice.chance(50) ? 1 + dice.below(2'000) : 1 + dice.below(150'000));
  return f;
}

bool is_exact(const Schedule& s) {
  return s.apps[0].mode == Mode::kExact || s.apps[1].mode == Mode::kExact;
}

// Adds a fault that ends a connection for good, or may do so.
void add_end(Dice& dice, Schedule& s) {
  static constexpr What kEnds[] = {What::kDeviceDeath,  What::kDeviceDeath, What::kFenceFails,
                                   What::kProcessDeath, What::kClose,       What::kTotalLoss,
                                   What::kTotalLoss};
  Fault f = fault(dice, s, s.faults.empty());
  f.what = kEnds[dice.below(std::size(kEnds))];
  if (s.asks() && dice.chance(25)) f.what = What::kMute;
  f.lasts = {};
  switch (f.what) {
    case What::kDeviceDeath:
      s.default_dies = true;
      // In the mode exact, nothing proves what a dead NIC has executed.
      if (is_exact(s)) s.outcome = Outcome::kEither;
      break;
    case What::kMute:
      if (is_exact(s)) s.outcome = Outcome::kEither;
      break;
    case What::kTotalLoss:
      // If neither end sends, neither notices the loss.
      s.outcome =
          s.apps[0].only_receives && s.apps[1].only_receives ? Outcome::kEither : Outcome::kFails;
      break;
    default:
      s.outcome = Outcome::kEither;
      break;
  }
  s.faults.push_back(f);
}

// The straight paths are lost long enough for failbacks that find no better path.
void lose_rails(Dice& dice, Schedule& s) {
  Fault& f = s.faults[dice.below(static_cast<uint32_t>(s.faults.size()))];
  if (f.lasts.count() == 0) return;  // this fault ends the connection
  f.what = What::kRails;
  f.lasts = milliseconds(1'000 + dice.below(5'000));
  s.heal_after += milliseconds(dice.below(7'000));
}

// Of every path, shorter than the patience of both applications, or longer than that of one.
void lose_all(Dice& dice, Schedule& s) {
  Fault& f = s.faults[dice.below(static_cast<uint32_t>(s.faults.size()))];
  if (f.lasts.count() == 0) return;  // an end
  f.what = What::kOutage;
  f.lasts = milliseconds(1'000 + dice.below(9'000));
  s.heal_after += milliseconds(dice.below(12'000));
  // What is lost with the default NIC's device does not pass, so no program's patience counts then.
  const milliseconds shortest =
      s.default_dies ? kExchange : std::min(s.apps[0].patience(), s.apps[1].patience());
  // The other faults, and finding a path, take their time, too.
  if (f.lasts + milliseconds(1'500) > shortest && s.outcome != Outcome::kFails) {
    s.outcome = Outcome::kEither;
  }
}

// An operator drains NICs, for a moment or for a while: traffic leaves them, and nothing runs
// twice.
void drain_some(Dice& dice, Schedule& s) {
  for (Fault& f : s.faults) {
    if (f.lasts.count() == 0 || !dice.chance(60)) continue;  // 0: an end
    f.what = What::kDrained;
    if (dice.chance(50)) f.lasts = microseconds(1 + dice.below(3'000'000));
  }
}

std::vector<Forged> forgeries(Dice& dice) {
  std::vector<Forged> all(1 + dice.below(8));
  for (Forged& forged : all) {
    forged.before = 1 + dice.below(dice.chance(40) ? 4 : dice.chance(50) ? 30 : 200);
    forged.times = static_cast<uint8_t>(1 + dice.below(dice.chance(50) ? 1 : 60));
    forged.host = static_cast<int>(dice.below(2));
    forged.heard = static_cast<uint8_t>(dice.below(16));
    forged.is_near = dice.chance(50);
    const uint32_t changes = dice.below(4);
    for (uint32_t i = 0; i < changes; i++) {
      const auto with = dice.chance(50) ? 1u << dice.below(8) : dice.below(256);
      forged.changes.push_back(
          {static_cast<uint16_t>(dice.below(120)), static_cast<uint8_t>(with)});
    }
  }
  return all;
}

}  // namespace

milliseconds AppPlan::patience() const {
  // 4.096 us to the power, six repeats, and a NIC may take four times that (IBTA 9.7.6.1.3).
  const std::chrono::nanoseconds asked(int64_t{4096} * 4 * 7 << timeout);
  return std::max(kExchange, std::chrono::duration_cast<milliseconds>(asked));
}

const char* to_string(What what) {
  return kWhatNames[static_cast<size_t>(what)];
}
const char* to_string(When when) {
  return kWhenNames[static_cast<size_t>(when)];
}

Schedule schedule_make(uint64_t seed) {
  Dice dice(seed * 0x2545f4914f6cdd1d + 0x1234567);
  Schedule s;
  s.seed = seed;
  const uint32_t mode = dice.below(20);
  // Of dice of its own: what an older seed gave, it gives still, but for this.
  Dice strict(seed * 0x9fb21c651e98df25 + 0x7654321);
  const auto asking = [&] { return strict.chance(50) ? Mode::kAuto : Mode::kExact; };
  if (mode < 6) s.apps[0].mode = asking();
  if (mode >= 2 && mode < 8) s.apps[1].mode = asking();
  for (AppPlan& app : s.apps) {
    app.first_psn = dice.chance(25) ? 0xffffff - dice.below(12) : dice.below(1u << 24);
  }
  const bool atomics = dice.chance(mode < 8 ? 30 : 8);
  plan_traffic(dice, s, atomics);
  if (atomics) s.outcome = Outcome::kUnproven;  // nothing may prove whether an atomic ran (C5)
  if (dice.chance(6)) plan_more(dice, s, atomics);
  s.early = dice.chance(10);
  s.copies_percent = dice.chance(50) ? 0 : dice.chance(50) ? 10 : 50;
  s.message_max = microseconds(dice.chance(70) ? 40 : dice.chance(70) ? 500 : 3'000);
  s.copy_max =
      dice.chance(60) ? s.message_max : microseconds(dice.chance(50) ? 1'500'000 : 8'000'000);
  const uint32_t count = 1 + dice.below(4);
  for (uint32_t i = 0; i < count; i++) s.faults.push_back(fault(dice, s, i == 0));
  if (dice.chance(20)) {
    s.faults.pop_back();
    add_end(dice, s);
  }
  s.heal_after = microseconds(dice.below(dice.chance(70) ? 300 : 100'000));
  if (dice.chance(4)) lose_rails(dice, s);
  // Drawn last: what an older seed gave, it gives still.
  for (AppPlan& app : s.apps) {
    if (dice.chance(25)) app.timeout = static_cast<uint8_t>(14 + dice.below(4));
  }
  if (dice.chance(4)) lose_all(dice, s);
  if (dice.chance(12)) s.forged = forgeries(dice);
  if (dice.chance(10)) drain_some(dice, s);
  return s;
}

std::string to_string(const Fault& f) {
  std::string text = to_string(f.what);
  text += f.host == 0 ? " at a" : " at b";
  text += f.member == Fault::kCurrent ? ", current member"
          : f.member == Fault::kOther ? ", another member"
                                      : ", member " + std::to_string(f.member);
  if (f.lasts.count() != 0) text += ", for " + std::to_string(f.lasts.count()) + " us";
  return text + " (" + to_string(f.when) + " " + std::to_string(f.count) + ")";
}

std::string to_string(const Schedule& s) {
  static constexpr const char* kOutcomes[] = {"complete", "unproven", "either", "fails"};
  std::string text = "seed " + std::to_string(s.seed) + ", outcome " +
                     kOutcomes[static_cast<size_t>(s.outcome)] + ", " +
                     std::to_string(s.copies_percent) + "% copies" + (s.early ? ", early" : "") +
                     (s.forged.empty() ? "" : ", a stranger");
  if (!s.more.empty()) {
    text += ", " + std::to_string(s.more.size() + 1) + " QPs on " +
            (s.one_cq ? "one CQ" : "CQs of their own");
  }
  for (size_t i = 0; i < 2 * (1 + s.more.size()); i++) {
    const size_t h = i % 2;
    const AppPlan& app = i < 2 ? s.apps[h] : s.more[i / 2 - 1][h];
    const auto moment_text = [](microseconds when) {
      return when == AppPlan::kLate      ? std::string("late")
             : when == AppPlan::kWayBack ? std::string("way-back")
                                         : std::to_string(when.count());
    };
    text += std::string("\n  ") + (h == 0 ? "a" : "b") + ": " + std::to_string(app.members) +
            " NICs, " + kModeNames[static_cast<size_t>(app.mode)] +
            (app.only_receives ? "in RTR, " : "") + "polls after " +
            std::to_string(app.poll_after.count()) + " us, timeout " + std::to_string(app.timeout) +
            "; sends";
    for (const auto& send : app.sends) {
      text += " " + std::to_string(send.opcode) + (send.signaled ? "s" : "") + "*" +
              std::to_string(send.length) + "@" + moment_text(send.when);
    }
    text += "; receives at";
    for (const auto when : app.receives) text += " " + moment_text(when);
  }
  for (const Fault& f : s.faults) text += "\n  " + to_string(f);
  return text;
}

void settings_fix() {
  setenv("SHIFT_EXCHANGE_MS", "3000", 1);
  setenv("SHIFT_FAILBACK_MS", "1000", 1);
  setenv("SHIFT_DRAIN_MS", "500", 1);
  setenv("SHIFT_FENCE_MS", "500", 1);
  setenv("SHIFT_RENDEZVOUS_MS", "10000", 1);
}

}  // namespace shift::sim
