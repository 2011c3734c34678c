// Seeded random numbers for tests: the seed is printed with every failure, and SHIFT_TEST_SEED
// repeats a run.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <random>

namespace shift {

class Random {
 public:
  Random() : seed_(chosen()), engine_(seed_), trace_(__FILE__, __LINE__, message()) {}

  // In [0, below).
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(engine_() % limit); }
  bool chance(uint32_t percent) { return below(100) < percent; }
  uint64_t number() { return engine_(); }

 private:
  static uint64_t chosen() {
    const char* wanted = std::getenv("SHIFT_TEST_SEED");
    return wanted != nullptr ? std::strtoull(wanted, nullptr, 0) : std::random_device()();
  }
  ::testing::Message message() const { return ::testing::Message() << "SHIFT_TEST_SEED=" << seed_; }

  const uint64_t seed_;
  std::mt19937_64 engine_;
  ::testing::ScopedTrace trace_;
};

}  // namespace shift
