// Collects and prints what a process has found.
#include "report.h"

#include <time.h>

#include <cstdio>

namespace traffic {
namespace {
constexpr size_t kKeepMax = 100;
std::atomic<uint64_t> by_hand_ns{0};  // 0: the clock is the machine's
}  // namespace

ClockByHand::ClockByHand() {
  by_hand_ns.store(1, std::memory_order_relaxed);
}
ClockByHand::~ClockByHand() {
  by_hand_ns.store(0, std::memory_order_relaxed);
}
void ClockByHand::advance(uint64_t ns) {
  by_hand_ns.fetch_add(ns, std::memory_order_relaxed);
}

uint64_t now_ns() {
  if (uint64_t by_hand = by_hand_ns.load(std::memory_order_relaxed); by_hand != 0) return by_hand;
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

void Report::violation(const char* name, std::string detail) {
  std::lock_guard guard(lock_);
  violation_count_.fetch_add(1, std::memory_order_relaxed);
  if (violations_.size() >= kKeepMax) return;
  if (print_) {
    printf("VIOLATION %s %s\n", name, detail.c_str());
    fflush(stdout);
  }
  violations_.push_back({name, std::move(detail)});
}

void Report::error(std::string detail) {
  std::lock_guard guard(lock_);
  if (has_error_.load(std::memory_order_relaxed)) return;
  error_ns_ = now_ns();
  has_error_.store(true, std::memory_order_relaxed);
  if (print_) {
    printf("ERROR %s\n", detail.c_str());
    fflush(stdout);
  }
  error_ = std::move(detail);
}

std::vector<Violation> Report::violations() const {
  std::lock_guard guard(lock_);
  return violations_;
}

std::string Report::first_error() const {
  std::lock_guard guard(lock_);
  return error_;
}

int Report::exit_code() const {
  if (violation_count() != 0) return kExitViolation;
  return has_error() ? kExitVerbsError : kExitRight;
}

}  // namespace traffic
