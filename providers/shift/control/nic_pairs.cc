#include "control/nic_pairs.h"

#include "util/planted.h"

namespace shift::control {

Time NicPair::earliest(bool seeks) const {
  return seeks && !SHIFT_PLANT(seekers_rest) ? seek_not_before : not_before;
}

bool NicPair::is_tried_for(uint64_t serial, bool seeks) const {
  if (failures == 0 || trying == 0 || trying == serial) return false;
  return !seeks || seeker_tries || SHIFT_PLANT(seekers_rely);
}

void NicPair::pause(Time now, std::chrono::nanoseconds span) {
  const auto seeking = std::min<std::chrono::nanoseconds>(span, kPauseSeeking);
  not_before = std::max(not_before, now + span);
  seek_not_before = std::max(seek_not_before, now + seeking);
}

}  // namespace shift::control
