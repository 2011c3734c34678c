#include "control/repeats.h"

#include <utility>

#include "util/planted.h"

namespace shift::control {

void Repeats::connection_up(const net::PeerChannel* channel, bool alone) {
  if (alone || SHIFT_PLANT(repeated_for_each)) {
    waiting_.erase(channel);
    say_(channel);
    return;
  }
  const auto [place, is_first] = waiting_.try_emplace(channel, loop_);
  if (!is_first || SHIFT_PLANT(joined_not_told)) return;
  place->second.start(kTogether, [this, channel] {
    waiting_.erase(channel);
    say_(channel);
  });
}

}  // namespace shift::control
