// What one process of the run has found. It prints violations and errors at once, so that they are
// in the log even if the process is killed later.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace traffic {

enum ExitCode : int {
  kExitRight = 0,
  kExitViolation = 1,
  kExitVerbsError = 2,
  kExitHang = 3,
  kExitUsage = 4,
};

inline constexpr uint32_t kHeaderBytes = 16;  // at the start of every SEND

struct Violation {
  std::string name;
  std::string detail;
};

// Any thread may call this class: the thread that watches async events reports, too.
class Report {
 public:
  explicit Report(bool print = true) : print_(print) {}

  // `name` is one of a fixed set of words; scripts and the self-test look for them.
  void violation(const char* name, std::string detail);
  // Reports what a program would see as failure. Only the first is kept; the rest follow from it.
  void error(std::string detail);

  size_t violation_count() const { return violation_count_.load(std::memory_order_relaxed); }
  bool has_error() const { return has_error_.load(std::memory_order_relaxed); }
  bool is_clean() const { return violation_count() == 0 && !has_error(); }
  std::vector<Violation> violations() const;
  std::string first_error() const;
  uint64_t first_error_ns() const { return error_ns_; }
  int exit_code() const;

 private:
  mutable std::mutex lock_;
  const bool print_;
  std::vector<Violation> violations_;  // only the first kKeepMax
  std::string error_;
  uint64_t error_ns_ = 0;  // CLOCK_MONOTONIC
  std::atomic<size_t> violation_count_{0};
  std::atomic<bool> has_error_{false};
};

uint64_t now_ns();  // CLOCK_MONOTONIC, unless a ClockByHand is there

// A clock that its owner moves by hand, so that results do not depend on how busy the machine is.
// Only one such clock may exist at a time.
class ClockByHand {
 public:
  ClockByHand();
  ~ClockByHand();
  void advance(uint64_t ns);
};

}  // namespace traffic
