// The changes of path of all processes, in order of time.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "host.h"

namespace shift::ctl {

struct Event {
  const Process* process;
  const state::FaultRecord* fault;
};

// Tells what is new in each look at the host.
class Events {
 public:
  // The events that the last look had not; they point into the host.
  std::vector<Event> news(const Host& host);

 private:
  std::set<std::string> seen_;  // what the last look had: processes keep a bounded number of events
};

}  // namespace shift::ctl
