// What an order to leave a NIC meets: the QPs there, and those that could not leave it.
#pragma once

#include <string>
#include <vector>

#include "host.h"

namespace shift::ctl {

struct DrainPlan {
  unsigned processes = 0;            // live ones that have the NIC
  unsigned on_it = 0;                // QPs that use it or may come to it: those that have to leave
  unsigned staying = 0;              // QPs that cannot leave, since the layer does not protect them
  std::vector<std::string> blocked;  // one reason for each QP that cannot leave now
  std::vector<std::string> remaining;  // what is still there, one line for each QP
  // QPs that the layer does not protect were made there, and nobody knows whether they still exist.
  std::vector<std::string> notes;
};

DrainPlan drain_plan(const Host& host, const std::string& nic);

}  // namespace shift::ctl
