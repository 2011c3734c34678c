#include "control/turns.h"

namespace shift::control {

bool Turns::ask(uint64_t serial, bool is_urgent) {
  if (running_ < most_()) return true;
  const bool is_new = waits_.insert(serial).second;
  if (is_urgent) {
    if (!is_new) std::erase(waiting_, serial);
    waiting_.push_front(serial);
  } else if (is_new) {
    waiting_.push_back(serial);
  }
  return false;
}

void Turns::end() {
  running_--;
  // The next turn is not given at once, because the session whose attempt ends may be about to be
  // forgotten.
  if (!waiting_.empty()) loop_.call_soon([this] { give(); });
}

void Turns::give() {
  // Each session gets one turn here at most: a session that cannot use its turn, and wants another
  // one, comes after the others.
  for (size_t left = waiting_.size(); left > 0 && running_ < most_(); left--) {
    const uint64_t serial = waiting_.front();
    waiting_.pop_front();
    waits_.erase(serial);
    next_(serial);
  }
}

}  // namespace shift::control
