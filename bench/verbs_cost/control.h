// What the control verbs cost. Each call is timed on its own, while the engine runs.
#pragma once

#include <string>
#include <vector>

#include "pair.h"

namespace bench {

struct ControlResult {
  std::string name;
  std::vector<double> us;  // per call
};

// `count`: how many objects of each kind; QPs are connected in pairs.
std::vector<ControlResult> control_measure(Device& device, int count);

}  // namespace bench
