// Decides whose turn it is to do something that only so many sessions of the process do at a time:
// to try a path, or to go to a better one. Only the control loop uses this.
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
  // How many sessions may have their turn at the same time, at least one.
  using Most = std::function<int()>;
  Turns(net::Loop& loop, Next next, Most most)
      : loop_(loop), next_(std::move(next)), most_(std::move(most)) {}

  // Whether the session, whose serial is not 0, may begin now. If not, it gets its turn later:
  // after those that wait already, but an urgent session before those that can wait, even if it has
  // waited as one of those.
  bool ask(uint64_t serial, bool is_urgent);
  void begin() { running_++; }
  // What a session began is over.
  void end();

 private:
  void give_soon();
  void give();

  net::Loop& loop_;
  const Next next_;
  const Most most_;
  int running_ = 0;
  bool gives_soon_ = false;
  uint64_t asked_ = 0;  // whose turn it is, while that session is called
  std::deque<uint64_t> waiting_;
  std::unordered_set<uint64_t> waits_;  // the serials in waiting_
};

}  // namespace shift::control
