// Has shared receive queues that have fewer receives than NICs in use move them from NIC to NIC. A
// message that waits for one has its sender's NIC ask again, so it arrives within a turn of each.
// Only the control loop uses this.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>

#include "group/held.h"
#include "group/shared_queue.h"
#include "net/timer.h"

namespace shift::control {

class ReceiveTurns {
 public:
  explicit ReceiveTurns(net::Loop& loop) : loop_(loop) {}

  // How long a receive stays on a NIC: at first, and at most, if nothing at all is received.
  static constexpr std::chrono::milliseconds kFirst{2}, kLongest{256};

  // Until each NIC in use has a receive. Called once for each time that one has none.
  void begin(const group::Held<group::SharedQueue>& queue);

 private:
  struct Turn {
    explicit Turn(net::Loop& loop) : timer(loop) {}
    net::Timer timer;
    std::chrono::milliseconds length = kFirst;
    uint64_t consumed = 0;
  };
  void wait(const group::Held<group::SharedQueue>& queue, Turn& turn);

  net::Loop& loop_;
  std::map<const group::SharedQueue*, Turn> turns_;
};

}  // namespace shift::control
