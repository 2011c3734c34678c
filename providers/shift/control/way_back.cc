#include "control/way_back.h"

#include <algorithm>
#include <utility>

#include "control/session.h"
#include "util/config.h"
#include "util/planted.h"

namespace shift::control {

using fsm::Event;
using std::chrono::milliseconds;

namespace {

// How long the traffic stands still for a better path that does not work.
constexpr milliseconds kTradeMax{200};
// The first pause after a trade that failed, and how often it is doubled.
constexpr milliseconds kTradePause{1000};
constexpr int kDoublings = 6;
// The first pause after a drain that was called off, and how often it is doubled.
constexpr milliseconds kDrainPause{100};
constexpr int kDrainDoublings = 8;
// A session that takes longer on its way does not keep the others waiting.
constexpr milliseconds kTurnMax{20};

Loop::Clock::duration pause_after(int trades) {
  const auto first = std::max(kTradePause, milliseconds(config().failback_ms));
  return first * (1 << std::min(trades, kDoublings));
}

}  // namespace

WayBack::~WayBack() {
  if (!SHIFT_PLANT(turn_lost)) turn_over();
}

void WayBack::look_at(Time when) {
  look_again_.start_at(when, [this] { session_.paths.tend(); });
}

// Whoever leaves a NIC by order does not wait, because the other path need not prove that it lasts,
// and leaves it where nobody goes home, too.
bool WayBack::may_go(PathName path) const {
  return config().failback_ms >= 0 || session_.book.is_wanted_away(path);
}

void WayBack::check() {
  turn_over();  // the session is on its path, or was called off
  PathBook::Ready* better = session_.book.better_ready();
  if (better == nullptr) return check_trade();
  if (!may_go(better->path)) return;
  const bool by_order = session_.book.is_wanted_away(better->path);
  const Time due = by_order ? not_before_ : better->since;
  if (due > loop_.now()) return look_at(due);
  if (!is_its_turn()) return;
  go(by_order ? group::Cause{"a NIC is drained", group::Detector::kOrder}
              : group::Cause{"a better path is back", group::Detector::kProbe});
}

// If not, the session's paths are tended to when it is.
bool WayBack::is_its_turn() {
  return SHIFT_PLANT(all_go_at_once) || turns_.ask(session_.serial, false);
}

void WayBack::go(group::Cause cause) {
  turns_.begin();
  const milliseconds most = SHIFT_PLANT(turn_kept) ? milliseconds(config().drain_ms) : kTurnMax;
  turn_end_.start(most, [this] { turns_.end(); });
  machine_.feed(session_, {.event = Event::kBetterPath, .cause = cause});
}

void WayBack::turn_over() {
  if (!turn_end_.is_running()) return;
  turn_end_.cancel();
  turns_.end();
}

// Begins a trade if there is a path to give the current one up for, and if it is time.
void WayBack::check_trade() {
  const Time now = loop_.now();
  const auto path = session_.book.better_blocked(session_.paths.ways());
  if (std::exchange(candidate_, path) != path) since_ = now;
  if (!path || !may_go(*path) || session_.paths.is_trying()) return;
  const NicPair& pair = session_.paths.pair_of(*path);
  const bool by_order = session_.book.is_wanted_away(*path);
  const Time settled = by_order ? Time{} : since_ + milliseconds(config().failback_ms);
  Time due = std::max({settled, not_before_, pair.not_before});
  // Of all groups, one at a time finds out whether the pair works; the others follow when that
  // group has got through.
  if (pair.failures > 0) due = std::max(due, pair.trade_not_before);
  if (due > now) return look_at(due);
  if (is_its_turn()) begin_trade(*path);
}

void WayBack::begin_trade(PathName path) {
  const Time now = loop_.now();
  NicPair& pair = session_.paths.pair_of(path);
  if (pair.failures > 0) {
    // A trade costs time of the traffic. Each trade makes the next one later, even if the path
    // works for a moment and is lost again.
    if (now - pair.traded > 2 * pause_after(kDoublings)) pair.trades = 0;
    pair.traded = now;
    pair.trade_not_before = now + pause_after(pair.trades++);
  }
  wanted_ = path;
  go({"a better path may be back", group::Detector::kProbe});
}

void WayBack::seek() {
  trade_end_.start(kTradeMax, [this] {
    if (!wanted_) return;
    const bool probing = session_.paths.is_probing(*wanted_);
    end_trade();
    if (probing) return session_.paths.attempt_broke();
    session_.paths.tend();
  });
}

void WayBack::end_trade() {
  trade_end_.cancel();
  wanted_.reset();
}

void WayBack::drain_failed() {
  const Time again =
      loop_.now() + kDrainPause * (1 << std::min(drain_failures_++, kDrainDoublings));
  not_before_ = again;
  if (PathBook::Ready* better = session_.book.better_ready()) better->since = again;
}

}  // namespace shift::control
