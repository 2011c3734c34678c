// What the two ends of a group tell each other of their NICs when there are more than two, and in
// which order the leader tries them. Each session has one, which only the control loop uses.
#pragma once

#include <optional>

#include "control/shares.h"
#include "net/timer.h"
#include "wire/messages.h"

namespace shift::control {

struct Session;

class Spread {
 public:
  Spread(Session& session, net::Loop& loop, Shares& shares)
      : session_(session), shares_(shares), silence_(loop) {}

  // A Bind has come from the peer, which has proved itself. Its list of NICs may be incomplete.
  void peer_bound(const wire::Bind& bind);
  // Whether the ends tell each other of all their NICs: one of them has more than two, and both
  // know Nics.
  bool tells() const { return tells_; }
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

  // What the order of the NICs follows from.
  struct Chosen {
    Capacities capacities;
    NicNumbers nics;
    bool operator==(const Chosen&) const = default;
  };

  Session& session_;
  Shares& shares_;
  bool is_settled_ = false;
  bool tells_ = false, has_heard_ = false;
  Capacities peers_{};  // zero: the peer has not told
  std::optional<Chosen> chosen_;
  net::Timer silence_;  // bounds the wait for the peer's NICs
};

}  // namespace shift::control
