// Parks the groups of sessions that leave their paths. The program may be in the middle of a batch
// that a thread has begun on the hot path (ibv_wr_start): such a group is parked when the batch is
// over. It holds up neither the others nor the control loop, and the round's deadline bounds the
// wait. Only the control loop uses this.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "control/input.h"
#include "net/timer.h"

namespace shift::control {

class Sessions;
struct Session;

class Parking {
 public:
  // Called with all sessions whose groups have been found to be parked.
  using Parked = std::function<void(const std::vector<Session*>& sessions)>;
  Parking(net::Loop& loop, const Sessions& sessions, Parked parked)
      : sessions_(sessions), loop_(loop), parked_(std::move(parked)), look_again_(loop) {}

  // Bars the hot paths of all these groups in one batch.
  void park(const std::vector<Session*>& sessions);

 private:
  void look();
  void look_later();

  const Sessions& sessions_;
  net::Loop& loop_;
  const Parked parked_;
  std::vector<uint64_t> waiting_;  // serials of sessions that are not known to be parked, in order
  Time begun_{};                   // when the last one came
  net::Timer look_again_;
};

}  // namespace shift::control
