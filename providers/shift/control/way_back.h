// Goes back to better paths: to one that is ready, or, from a path across rails, by giving that up
// for one that cannot be tried beside it (docs/decisions/0012-way-back-across-rails.md). The
// leader's part, one for each session. Control loop only.
#pragma once

#include <optional>

#include "control/input.h"
#include "net/timer.h"

namespace shift::control {

class WayBack {
 public:
  WayBack(Session& session, net::Loop& loop, Machine& machine)
      : session_(session), loop_(loop), machine_(machine), look_again_(loop), trade_end_(loop) {}

  // Begins the way to a better path if it is time, or looks again when it will be (kBetterPath).
  void check();

  // The current path has been given up for this one: it is sought before any other.
  const std::optional<PathName>& wanted() const { return wanted_; }
  // The current path is drained and shut: the wanted one has so much time.
  void seek();
  // From here on any path will do.
  void end_trade();
  // A round begins: what was a candidate beside the old path need not be one beside the next.
  void forget_candidate() { candidate_.reset(); }
  // A drain was called off: not at once again, since whoever does not drain now has a reason that
  // lasts.
  void drain_failed();
  void switched() { drain_failures_ = 0; }

 private:
  void check_trade();
  void begin_trade(PathName path);
  void look_at(Time when);

  Session& session_;
  net::Loop& loop_;
  Machine& machine_;
  net::Timer look_again_;
  int drain_failures_ = 0;
  // A trade: the current path given up for a better one that cannot be tried beside it.
  std::optional<PathName> candidate_;  // which, if it comes to that
  Time since_{};                       // it has been the candidate
  Time not_before_{};                  // because the last drain was called off
  std::optional<PathName> wanted_;     // the round for it is under way
  net::Timer trade_end_;
};

}  // namespace shift::control
