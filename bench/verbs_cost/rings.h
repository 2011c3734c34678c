// What one WR and one WC cost, measured over many rounds for each operation. In a round the queues
// are prepared, the engine is paused, one loop of `measured.h` runs between two time stamps, and
// then the engine works everything off.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pair.h"

namespace bench {

struct RingOptions {
  int rounds = 300;
  int settle_ms = 300;      // after connecting: a layer may set itself up in the background
  int wrs_per_round = 128;  // at most half of kDepth, a multiple of 16
};

struct RingResult {
  std::string name;
  std::string unit;             // what is counted: WR, WC or call
  bool is_virtual = false;      // the calls go to another library than the vendor's
  std::vector<double> ns;       // per unit, one value per good round
  std::vector<uint64_t> calls;  // which calls of measured functions these were, counted from 1
  int units_per_call = 0;
};

std::vector<RingResult> rings_measure(Device& device, const RingOptions& options);

}  // namespace bench
