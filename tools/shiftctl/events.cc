#include "events.h"

#include <algorithm>
#include <utility>

namespace shift::ctl {

std::vector<Event> Events::news(const Host& host) {
  std::vector<Event> events;
  std::set<std::string> now;
  for (const Process& process : host.processes) {
    for (const state::FaultRecord& fault : process.faults) {
      // A process may write equal records, so they are counted.
      std::string key = std::to_string(process.uid) + "/" + process.name + "/" +
                        std::to_string(fault.time_ns) + "/" + std::to_string(fault.qpn) + "/" +
                        std::to_string(fault.epoch) + "/" + std::to_string(fault.failed) + "/";
      unsigned copy = 0;
      while (now.contains(key + std::to_string(copy))) copy++;
      key += std::to_string(copy);
      if (!seen_.contains(key)) events.push_back({&process, &fault});
      now.insert(std::move(key));
    }
  }
  seen_ = std::move(now);
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.fault->time_ns < b.fault->time_ns;
  });
  return events;
}

}  // namespace shift::ctl
