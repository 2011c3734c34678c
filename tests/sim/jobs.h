// Spreads a range of schedules over processes, since the layer keeps global state in each process.
#pragma once

#include <cstdint>

namespace shift::sim {

struct Range {
  uint64_t first, count;
  unsigned jobs, most;  // `most`: stop after so many broken schedules
};

struct Totals {
  uint64_t run = 0, broken = 0, asking = 0, rounds = 0, steps = 0;
};

// Prints each broken schedule on stdout, and every ten seconds its progress on stderr.
Totals run_all(const Range& range);

}  // namespace shift::sim
