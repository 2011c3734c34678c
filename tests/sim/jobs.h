// Spreads a range of schedules over processes, since the layer has one of everything in each.
#pragma once

#include <cstdint>

namespace shift::sim {

struct Range {
  uint64_t first, count;
  unsigned jobs, most;  // stop after so many broken schedules
};

struct Totals {
  uint64_t run = 0, broken = 0, exact = 0, rounds = 0, steps = 0;
};

// Broken ones are told on stdout, how far it is every ten seconds on stderr.
Totals run_all(const Range& range);

}  // namespace shift::sim
