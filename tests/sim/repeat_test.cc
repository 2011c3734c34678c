// The same seed must give the same run, whatever ran before it in the process and wherever its
// objects lie in memory. Otherwise nobody could look at a broken run again.
#include <gtest/gtest.h>

#include <cstdlib>

#include "sim/simulation.h"

namespace shift::sim {
namespace {

// Returns the steps of a run, as its trace prints them.
std::string told(uint64_t seed) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* out = open_memstream(&text, &size);
  Simulation(schedule_make(seed), out).run();
  std::fclose(out);
  std::string steps(text, size);
  std::free(text);
  return steps;
}

TEST(Repeat, TheSameSeedGivesTheSameSteps) {
  std::vector<std::string> first;
  for (uint64_t seed = 1; seed <= 200; seed++) first.push_back(told(seed));
  // The second runs have another order and another heap.
  std::vector<std::unique_ptr<std::string>> kept;
  for (uint64_t seed = 200; seed > 0; seed--) {
    kept.push_back(std::make_unique<std::string>(1000 + 100 * seed, 'x'));
    const std::string again = told(seed);
    EXPECT_GT(again.size(), 200u);
    EXPECT_TRUE(again == first[seed - 1]) << "seed " << seed;
  }
}

}  // namespace
}  // namespace shift::sim
