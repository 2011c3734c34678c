// What the control verbs cost: each call is timed on its own, with the engine running.
#pragma once

#include <string>
#include <vector>

#include "pair.h"

namespace bench {

struct ControlResult {
  std::string name;
  std::vector<double> us;  // per call
};

// `count`: objects of each kind; QPs are connected in pairs.
std::vector<ControlResult> control_measure(Device& device, int count);

}  // namespace bench
