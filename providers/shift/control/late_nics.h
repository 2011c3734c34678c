// Notices NICs that do not answer a command in time, and tells the NIC watch. Only the control loop
// uses this.
#pragma once

#include "control/nic_watch.h"
#include "net/timer.h"

namespace shift::control {

class LateNics {
 public:
  LateNics(net::Loop& loop, NicWatch& nics) : nics_(nics), look_again_(loop) {}

  // A command thread has been given a task: the NICs are looked at until none has any.
  void expect() {
    if (!look_again_.is_running()) look_later();
  }

 private:
  void look_later();

  NicWatch& nics_;
  net::Timer look_again_;
};

}  // namespace shift::control
