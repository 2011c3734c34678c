// Decides whose turn it is to try a path: only so many sessions of the process do so at a time.
// Only the control loop uses this.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <unordered_set>

#include "net/loop.h"

namespace shift::control {

class Turns {
 public:
  // Called with the serial of a session whose turn it is.
  using Next = std::function<void(uint64_t serial)>;
  Turns(net::Loop& loop, Next next) : loop_(loop), next_(std::move(next)) {}

  // More attempts would only wait for each other, in the command threads of both ends.
  static constexpr int kMax = 32;

  // Whether the session may begin an attempt now. If not, it gets its turn later: an urgent session
  // before those that can wait, even if it has waited as one of those.
  bool ask(uint64_t serial, bool is_urgent);
  void begin() { running_++; }
  // An attempt is over.
  void end();

 private:
  void give();

  net::Loop& loop_;
  const Next next_;
  int running_ = 0;
  std::deque<uint64_t> waiting_;
  std::unordered_set<uint64_t> waits_;  // the serials in waiting_
};

}  // namespace shift::control
