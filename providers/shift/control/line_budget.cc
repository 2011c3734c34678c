#include "control/line_budget.h"

#include <utility>

#include "util/log.h"

namespace shift::control {

namespace {

constexpr std::chrono::seconds kSecond{1};

void tell_switched(unsigned long long count) {
  SHIFT_INFO("%llu more QPs go on over another NIC", count);
}
void tell_failed(unsigned long long count) {
  SHIFT_ERROR("%llu more QPs: the application gets the original error", count);
}
void tell_no_spare(unsigned long long count) {
  SHIFT_WARN("%llu more devices and peers have no second path, so a fault would not be masked",
             count);
}

}  // namespace

LineBudget::~LineBudget() {
  tell_left_out();
}

bool LineBudget::allow() {
  const auto now = loop_.now();
  if (now - begin_ >= kSecond) {
    begin_ = now;
    written_ = 0;
  }
  if (written_ < kFewLines) return written_++, true;
  left_out_++;
  if (!second_is_over_.is_running())
    second_is_over_.start_at(begin_ + kSecond, [this] { tell_left_out(); });
  return false;
}

void LineBudget::tell_left_out() {
  if (const auto count = std::exchange(left_out_, 0)) tell_(count);
}

Lines::Lines(net::Loop& loop)
    : switched(loop, tell_switched), failed(loop, tell_failed), no_spare(loop, tell_no_spare) {}

}  // namespace shift::control
