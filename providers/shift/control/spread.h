// What the two ends of a group tell each other of their NICs when there are more than two, and in
// which order the leader tries them. Each session has one, which only the control loop uses.
#pragma once

#include "control/shares.h"
#include "net/timer.h"
#include "wire/messages.h"

namespace shift::control {

struct Session;

// Whether an end with that context has NICs to tell of: with two there is nothing to choose.
bool has_nics_to_tell(const group::Context& context);

class Spread {
 public:
  Spread(Session& session, net::Loop& loop, Shares& shares)
      : session_(session), shares_(shares), silence_(loop) {}

  // Whether this end tells of its NICs, if the peer does.
  bool tells() const;
  // A Bind has come from the peer, which has proved itself.
  void peer_bound(bool peer_tells);
  // This end has sent a Bind, because a connection is new or an address has changed.
  void bind_sent();
  void take(const wire::Nics& message);
  // Whether the order is settled. Until then no path is made.
  bool is_settled() const { return is_settled_; }
  // The group ends, and counts no more.
  void end();

 private:
  void say();
  void settle();

  Session& session_;
  Shares& shares_;
  bool is_settled_ = false;
  bool peer_tells_ = false, has_heard_ = false;
  Capacities peers_{};  // zero: the peer has not told
  net::Timer silence_;  // bounds the wait for the peer's NICs
};

}  // namespace shift::control
