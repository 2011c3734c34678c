// NICs that a group leaves although they work, because an operator drains them or moves the QP.
// Both ends know the NICs of both, so that the leader chooses another path, by the way that leads
// home from a spare (way_back.h): nothing is replayed. Each session has one of these objects, which
// only the control loop uses.
#pragma once

#include <cstdint>

#include "wire/messages.h"

namespace shift::control {

struct Session;

class Avoidance {
 public:
  // `next_number`: the number of the next Avoid of this process, which all sessions count on.
  Avoidance(Session& session, uint32_t& next_number)
      : session_(session), next_number_(next_number) {}

  // Whether the peer knows Avoid, as its Bind says. A peer of an older build does not drain the
  // default path, so the group stays where it is.
  bool peer_heeds() const { return peer_heeds_ || is_self(); }
  void peer_heeds_set(bool heeds);

  // Bit n: an operator has drained this end's NIC n.
  void drained_set(uint8_t members);
  // The QP leaves the NIC that it uses now; or it may use all of them again.
  void move_away();
  void move_home();

  // Says again what may have been lost.
  void say_again();
  // The peer's NICs. A message that is not newer than the last one changes nothing.
  void take(const wire::Avoid& message);

 private:
  bool is_self() const;
  uint8_t members() const { return drained_ | moved_from_; }
  void changed();
  void say();

  Session& session_;
  uint32_t& next_number_;
  uint8_t drained_ = 0, moved_from_ = 0;
  uint8_t said_ = 0;       // in the last message
  bool has_said_ = false;  // the peer may have heard of a NIC to leave
  uint32_t heard_ = 0;
  bool peer_heeds_ = false;
};

}  // namespace shift::control
