#include "control/turns.h"

#include <utility>

#include "util/planted.h"

namespace shift::control {

bool Turns::ask(uint64_t serial, bool is_urgent) {
  // Where somebody waits, a turn that is free is theirs, and they are told soon. A session that
  // asks again as soon as its turn is over would otherwise keep it from them.
  const bool may_pass =
      waiting_.empty() || is_urgent || serial == asked_ || SHIFT_PLANT(turn_snatched);
  if (may_pass && running_ < most_()) return true;
  const bool is_new = waits_.insert(serial).second;
  if (is_urgent) {
    if (!is_new) std::erase(waiting_, serial);
    waiting_.push_front(serial);
  } else if (is_new) {
    waiting_.push_back(serial);
  }
  if (running_ < most_()) give_soon();
  return false;
}

void Turns::end() {
  running_--;
  // The next turn is not given at once, because the session whose attempt ends may be about to be
  // forgotten.
  if (!waiting_.empty()) give_soon();
}

void Turns::give_soon() {
  if (!std::exchange(gives_soon_, true)) loop_.call_soon([this] { give(); });
}

void Turns::give() {
  gives_soon_ = false;
  // Each session gets one turn here at most: a session that cannot use its turn, and wants another
  // one, comes after the others.
  for (size_t left = waiting_.size(); left > 0 && running_ < most_() && !waiting_.empty(); left--) {
    asked_ = waiting_.front();
    waiting_.pop_front();
    waits_.erase(asked_);
    next_(asked_);
  }
  asked_ = 0;
}

}  // namespace shift::control
