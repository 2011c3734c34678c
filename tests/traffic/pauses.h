// The pauses of a program: when it made no progress. Scripts compare them with the time of a fault.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace traffic {

struct Pause {
  uint64_t begin_ns, end_ns;  // CLOCK_MONOTONIC
  uint64_t length_ns() const { return end_ns - begin_ns; }
};

// Keeps the longest ones, so that a long run needs no more memory than a short one.
class Pauses {
 public:
  static constexpr size_t kKeepMax = 1024;
  static constexpr uint64_t kShortestNs = 1'000'000;

  void add(Pause pause) {
    longest_ns_ = std::max(longest_ns_, pause.length_ns());
    if (pause.length_ns() < kShortestNs) return;
    if (kept_.size() < kKeepMax) return kept_.push_back(pause);
    const auto shortest = std::ranges::min_element(kept_, {}, &Pause::length_ns);
    if (shortest->length_ns() < pause.length_ns()) *shortest = pause;
  }
  uint64_t longest_ns() const { return longest_ns_; }
  const std::vector<Pause>& kept() const { return kept_; }

 private:
  uint64_t longest_ns_ = 0;
  std::vector<Pause> kept_;
};

}  // namespace traffic
