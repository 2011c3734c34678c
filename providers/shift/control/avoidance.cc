#include "control/avoidance.h"

#include "control/reporter.h"
#include "control/session.h"
#include "util/log.h"

namespace shift::control {

bool Avoidance::is_self() const {
  return session_.is_self;
}

void Avoidance::peer_heeds_set(bool heeds) {
  if (heeds == peer_heeds_) return;
  peer_heeds_ = heeds;
  changed();
}

void Avoidance::drained_set(uint8_t members) {
  if (members == drained_) return;
  drained_ = members;
  changed();
}

void Avoidance::move_away() {
  const int member = session_.group.life.path.member;
  if (member < group::kDefault) return;  // it is leaving already
  moved_from_ |= static_cast<uint8_t>(1u << member);
  changed();
}

void Avoidance::move_home() {
  moved_from_ = 0;
  changed();
}

void Avoidance::changed() {
  if (peer_heeds()) {
    session_.book.own_avoided_set(members());
    if (is_self()) session_.book.peer_avoided_set(members());
    if (members() != said_) say();
  } else if (members() != 0) {
    SHIFT_WARN_LIMITED(
        "qp 0x%x stays on its NIC: the peer's SHIFT is too old to leave a NIC that works",
        session_.group.qpn());
  }
  session_.reporter().touch(session_);
  session_.paths.tend();
}

void Avoidance::say() {
  if (is_self() || session_.search.channel() == nullptr) return;
  said_ = members();
  has_said_ = true;
  session_.search.send(
      wire::Avoid{session_.ends.local, session_.ends.remote, next_number_++, said_});
}

void Avoidance::say_again() {
  if (peer_heeds_ && (has_said_ || members() != 0)) say();
}

void Avoidance::take(const wire::Avoid& message) {
  if (static_cast<int32_t>(message.seq - heard_) <= 0) return;
  heard_ = message.seq;
  session_.book.peer_avoided_set(message.members);
  session_.paths.tend();
}

}  // namespace shift::control
