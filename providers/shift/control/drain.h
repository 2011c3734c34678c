// The way to a better path begins with a drain: both ends stop posting, and what is under way
// completes, so that the round replays nothing. Each session has one drain, which only the control
// loop uses.
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

  // Looks again and again whether everything has completed, and feeds kDrained or kDrainTimeout.
  void watch();
  void leave() { look_again_.cancel(); }

  // Leader: send_ask() asks the follower for the next drain, and send_cancel() calls that drain
  // off.
  void send_ask();
  void send_cancel() { send(wire::Drain::Kind::kCancel); }
  // Follower: tells the leader that this end has drained.
  void send_done() { send(wire::Drain::Kind::kDone); }
  // Says on a new connection what the peer has to know in this state.
  void say_again();
  // Takes the peer's message, whose epoch is the one that this end is in.
  void take(const wire::Drain& message);

 private:
  void look();
  void send(wire::Drain::Kind kind);

  Session& session_;
  net::Loop& loop_;
  Machine& machine_;
  uint32_t attempt_ = 0;    // leader: the last drain; follower: the one asked for last
  uint32_t cancelled_ = 0;  // follower: the newest drain that was called off
  bool own_done_ = false, peer_done_ = false;
  net::Timer look_again_;
  Time begun_{}, deadline_{};
};

}  // namespace shift::control
