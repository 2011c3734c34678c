// Gives the application the original error, after the NICs have stopped all QPs of the group: then
// nothing is written any more to memory that the error hands back (C3). Each session has one, which
// only the control loop uses.
#pragma once

#include <cstdint>

#include "net/timer.h"

namespace shift::control {

class Jobs;
struct Session;

class Failing {
 public:
  Failing(Session& session, net::Loop& loop, Jobs& jobs)
      : session_(session), jobs_(jobs), look_again_(loop) {}

  // Once it has begun, nothing of the group goes on.
  void begin();
  // The NIC does not answer commands: the application is not kept waiting for it (C6).
  void nic_late(int member) { stopped(member); }

 private:
  void stopped(int member);
  void await_batch();

  Session& session_;
  Jobs& jobs_;
  bool has_begun_ = false;
  net::Timer look_again_;
  uint32_t waits_for_ = 0;  // the members whose QPs are being stopped, one bit each
};

}  // namespace shift::control
