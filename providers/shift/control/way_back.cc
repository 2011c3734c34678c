// Going back to better paths: to one that is ready, or, from a path across rails, by giving that up
// for one that cannot be tried beside it (docs/decisions/0012-way-back-across-rails.md). Leader.
#include <algorithm>
#include <utility>

#include "control/coordinator.h"
#include "util/config.h"
#include "util/log.h"

namespace shift::control {

using fsm::Event;
using fsm::State;
using std::chrono::milliseconds;
using Stage = Binding::Attempt::Stage;
using Outcome = Binding::Attempt::Outcome;

namespace {

// For so long the traffic stands still for a better path, if that does not work.
constexpr milliseconds kTradeMax{200};
// The pause behind a trade in vain: the first, and how often it is doubled.
constexpr milliseconds kTradePause{1000};
constexpr int kDoublings = 6;

Loop::Clock::duration pause_behind(int trades) {
  const auto first = std::max(kTradePause, milliseconds(config().failback_ms));
  return first * (1 << std::min(trades, kDoublings));
}

}  // namespace

// A better path that has been good for long enough.
void Coordinator::better_check(Binding& binding) {
  if (config().failback_ms < 0) return;
  PathBook::Ready* better = binding.book.better_ready();
  if (better == nullptr) return trade_check(binding);
  const Time now = control_.now();
  if (better->since <= now) {
    binding.target = better->path;
    binding.target_generation = better->generation;
    binding.by_fault = false;
    return feed(binding, Event::kBetterPath, {"a better path is back", group::Detector::kProbe});
  }
  control_.timer_cancel(binding.better_again);
  binding.better_again = later(binding, better->since - now, [this](Binding& b) {
    b.better_again = 0;
    tend(b);
  });
}

// Is there a path to give the current one up for, and is it time?
void Coordinator::trade_check(Binding& binding) {
  auto& trade = binding.trade;
  const Time now = control_.now();
  const auto path = binding.book.better_blocked(
      [&](PathName candidate) -> const Link& { return link_of(binding, candidate); });
  if (std::exchange(trade.candidate, path) != path) trade.since = now;
  if (!path || binding.attempt) return;
  const Link& link = link_of(binding, *path);
  Time due = std::max(
      {trade.since + milliseconds(config().failback_ms), trade.not_before, link.not_before});
  // Of all groups one at a time finds out; they follow when it has got through.
  if (link.failures > 0) due = std::max(due, link.trade_not_before);
  if (due <= now) return trade_begin(binding, *path);
  control_.timer_cancel(binding.better_again);
  binding.better_again = later(binding, due - now, [this](Binding& b) {
    b.better_again = 0;
    tend(b);
  });
}

void Coordinator::trade_begin(Binding& binding, PathName path) {
  const Time now = control_.now();
  Link& link = link_of(binding, path);
  if (link.failures > 0) {
    // What a try costs is the traffic's time. Each makes the next one later, also when the path
    // works for a moment and is lost again.
    if (now - link.traded > 2 * pause_behind(kDoublings)) link.trades = 0;
    link.traded = now;
    link.trade_not_before = now + pause_behind(link.trades++);
  }
  binding.trade.wanted = path;
  binding.by_fault = false;
  feed(binding, Event::kBetterPath, {"a better path may be back", group::Detector::kProbe});
}

// The current one is drained and shut: the wanted one is sought before any other.
void Coordinator::trade_seek(Binding& binding) {
  control_.timer_cancel(binding.trade.end);
  binding.trade.end = later(binding, kTradeMax, [this](Binding& b) {
    b.trade.end = 0;
    if (!b.trade.wanted) return;
    const bool probing =
        b.attempt && b.attempt->path == b.trade.wanted && b.attempt->stage >= Stage::kProbing;
    trade_end(b);
    if (probing) return attempt_end(b, Outcome::kBroken);
    tend(b);
  });
}

// From here on any path will do.
void Coordinator::trade_end(Binding& binding) {
  control_.timer_cancel(std::exchange(binding.trade.end, 0));
  binding.trade.wanted.reset();
}

}  // namespace shift::control
