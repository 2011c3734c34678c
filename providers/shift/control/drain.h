// The way to a better path begins with a drain: both ends stop posting, and what is under way
// completes, so that the round replays nothing. One for each session. Control loop only.
#pragma once

#include <cstdint>

#include "control/input.h"
#include "net/timer.h"
#include "wire/messages.h"

namespace shift::control {

class Drain {
 public:
  Drain(Session& session, net::Loop& loop, Machine& machine)
      : session_(session), loop_(loop), machine_(machine), look_again_(loop) {}

  // Looks whether everything has completed, and feeds kDrained or kDrainTimeout.
  void watch();
  void leave() { look_again_.cancel(); }

  // Leader: asks the follower for the next drain, or calls this one off.
  void send_ask();
  void send_cancel() { send(wire::Drain::Kind::kCancel); }
  // Follower: this end has drained.
  void send_done() { send(wire::Drain::Kind::kDone); }
  // What the state wants said on a new connection.
  void say_again();
  // The peer's word, of the epoch that this end is in.
  void take(const wire::Drain& message);

 private:
  void look();
  void send(wire::Drain::Kind kind);

  Session& session_;
  net::Loop& loop_;
  Machine& machine_;
  uint32_t attempt_ = 0;    // leader: counts; follower: the one asked for last
  uint32_t cancelled_ = 0;  // follower: the newest one called off
  bool own_done_ = false, peer_done_ = false;
  net::Timer look_again_;
  Time deadline_{};
};

}  // namespace shift::control
