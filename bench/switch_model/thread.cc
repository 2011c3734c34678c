#include "switch_model/thread.h"

#include <time.h>

#include <algorithm>

namespace switch_model {

namespace {

using Clock = shift::net::Loop::Clock;
using std::chrono::nanoseconds;

// The processor time of this thread, so that other work on the machine does not count.
nanoseconds used() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + nanoseconds(now.tv_nsec);
}

// What reading that clock twice takes by itself: it is no part of a task.
nanoseconds used_by_clock() {
  static const nanoseconds least = [] {
    nanoseconds found = nanoseconds::max();
    for (int i = 0; i < 1000; i++) {
      const auto begun = used();
      found = std::min(found, used() - begun);
    }
    return found;
  }();
  return least;
}

bool is_under_way = false;
Clock::time_point begun_at;  // when the task under way began

}  // namespace

// Asked often, so it must be a clock that costs little. Other work on the machine may come between.
Clock::duration Thread::elapsed() {
  return is_under_way ? Clock::now() - begun_at : Clock::duration::zero();
}

Clock::time_point Thread::now() const noexcept {
  return time_.now() + elapsed();
}

bool Thread::call_soon(Task task) noexcept {
  (void)timer_start(now(), std::move(task));
  return true;
}

shift::net::Loop::TimerId Thread::timer_start(Clock::time_point at, Task task) {
  const TimerId id = next_++;
  waiting_.emplace(std::pair(at, id), std::move(task));
  due_[id] = at;
  plan();
  return id;
}

void Thread::timer_cancel(TimerId id) noexcept {
  const auto known = due_.find(id);
  if (known == due_.end()) return;
  waiting_.erase({known->second, id});
  due_.erase(known);
}

void Thread::plan() {
  if (runs_ || waiting_.empty()) return;
  const auto at = std::max(waiting_.begin()->first.first, free_at_);
  if (planned_ != 0 && planned_at_ <= at) return;
  time_.cancel(planned_);
  planned_at_ = at;
  planned_ = time_.at(at, [this] {
    planned_ = 0;
    run_first();
  });
}

void Thread::run_first() {
  // What was planned may have been cancelled, and what comes next may be due later.
  if (waiting_.empty() || waiting_.begin()->first.first > time_.now()) return plan();
  const auto first = waiting_.begin();
  const Task task = std::move(first->second);
  due_.erase(first->first.second);
  waiting_.erase(first);
  runs_ = is_under_way = true;
  begun_at = Clock::now();
  const auto begun = used();
  task();
  const auto took = std::max<Clock::duration>(used() - begun - used_by_clock(), least_);
  runs_ = is_under_way = false;
  spent_ += took;
  tasks_++;
  free_at_ = time_.now() + took;
  plan();
}

void Thread::drop_all() {
  waiting_.clear();
  due_.clear();
}

}  // namespace switch_model
