// Goes to better paths: home to one that is ready again, or away from a NIC that the group shall
// leave (avoidance.h); or, from a path across rails, by giving the
// current path up for one that cannot be tried beside it
// (docs/decisions/0012-way-back-across-rails.md). Sessions do so in turns, so that a program hardly
// stands still (docs/decisions/0039-moving-in-turns.md). This is the leader's part. Each session
// has one, which only the control loop uses.
#pragma once

#include <optional>

#include "control/input.h"
#include "control/turns.h"
#include "net/timer.h"

namespace shift::control {

class WayBack {
 public:
  WayBack(Session& session, net::Loop& loop, Machine& machine, Turns& turns)
      : session_(session),
        loop_(loop),
        machine_(machine),
        turns_(turns),
        look_again_(loop),
        turn_end_(loop),
        trade_end_(loop) {}
  ~WayBack();

  // Begins the way to a better path (kBetterPath) if it is time, or looks again when it will be
  // time.
  void check();

  // The path that the current one has been given up for; it is sought before any other.
  const std::optional<PathName>& wanted() const { return wanted_; }
  // The current path is drained and shut: the wanted path has so much time (kTradeMax).
  void seek();
  // Ends the trade: from here on any path will do.
  void end_trade();
  // A round begins: a candidate beside the old path need not be one beside the next path.
  void forget_candidate() { candidate_.reset(); }
  // A drain was called off. The next one does not follow at once, because an end that does not
  // drain now has a reason that lasts.
  void drain_failed();
  void switched() { drain_failures_ = 0; }

 private:
  bool may_go(PathName path) const;
  void check_trade();
  void begin_trade(PathName path);
  void look_at(Time when);
  bool is_its_turn();
  void go(group::Cause cause);
  void turn_over();

  Session& session_;
  net::Loop& loop_;
  Machine& machine_;
  Turns& turns_;
  net::Timer look_again_;
  net::Timer turn_end_;  // runs while the session has its turn
  int drain_failures_ = 0;
  // A trade gives up the current path for a better one that cannot be tried beside it.
  std::optional<PathName> candidate_;  // the path that a trade would be for
  Time since_{};                       // since when it has been the candidate
  Time not_before_{};                  // no trade before, because the last drain was called off
  std::optional<PathName> wanted_;     // the path of a trade that is under way
  net::Timer trade_end_;
};

}  // namespace shift::control
