#include "net/lobby.h"

#include <map>

namespace shift::net {

Lobby::Seat Lobby::sit(uint32_t source, std::function<void()> leave) {
  if (taken_.size() >= max_) (void)make_room();
  return {*this, taken_.insert(taken_.end(), {source, std::move(leave)})};
}

bool Lobby::make_room() {
  std::map<uint32_t, size_t> held;
  size_t most = 0;
  for (const Place& place : taken_) most = std::max(most, ++held[place.source]);
  for (const Place& place : taken_) {
    if (held[place.source] != most) continue;
    const auto leave = place.leave;  // the place is gone before the call has ended
    leave();
    return true;
  }
  return false;
}

}  // namespace shift::net
