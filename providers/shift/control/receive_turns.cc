#include "control/receive_turns.h"

#include <algorithm>

namespace shift::control {

void ReceiveTurns::begin(const group::Held<group::SharedQueue>& queue) {
  wait(queue, turns_.try_emplace(queue.get(), loop_).first->second);
}

void ReceiveTurns::wait(const group::Held<group::SharedQueue>& queue, Turn& turn) {
  turn.timer.start(turn.length, [this, queue, &turn] {
    const auto consumed = queue->take_turn();
    if (!consumed) {
      turns_.erase(queue.get());
      return;
    }
    const bool is_quiet = *consumed == turn.consumed;
    turn.length = is_quiet ? std::min(2 * turn.length, kLongest) : kFirst;
    turn.consumed = *consumed;
    wait(queue, turn);
  });
}

}  // namespace shift::control
