// Loops in virtual time: all of a simulation's loops share one clock, and nothing happens by
// itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>

#include "control/loop.h"

namespace shift::control {

class VirtualTime {
 public:
  using Clock = Loop::Clock;

  Clock::time_point now() const { return now_; }
  Loop::TimerId at(Clock::time_point when, Loop::Task task) {
    const Loop::TimerId id = next_++;
    const Clock::time_point due = std::max(when, now_);
    queue_.emplace(std::pair{due, id}, std::move(task));
    due_[id] = due;
    return id;
  }
  Loop::TimerId in(Clock::duration pause, Loop::Task task) {
    return at(now_ + pause, std::move(task));
  }
  void cancel(Loop::TimerId id) {
    const auto it = due_.find(id);
    if (it == due_.end()) return;
    queue_.erase({it->second, id});
    due_.erase(it);
  }
  // Runs what is due until `span` has passed, in order of time, then of the calls.
  void run_for(Clock::duration span) {
    const Clock::time_point end = now_ + span;
    while (!queue_.empty() && queue_.begin()->first.first <= end) {
      auto node = queue_.extract(queue_.begin());
      now_ = node.key().first;
      due_.erase(node.key().second);
      node.mapped()();
    }
    now_ = end;
  }
  void drop_all() {
    queue_.clear();
    due_.clear();
  }

 private:
  Clock::time_point now_{std::chrono::seconds(1000)};
  Loop::TimerId next_ = 1;  // 0 is never a timer
  std::map<std::pair<Clock::time_point, Loop::TimerId>, Loop::Task> queue_;
  std::unordered_map<Loop::TimerId, Clock::time_point> due_;
};

// One loop of one host. There are no descriptors in a simulation.
class VirtualLoop final : public Loop {
 public:
  explicit VirtualLoop(VirtualTime& time) : time_(time) {}

  bool call_soon(Task task) noexcept override {
    time_.at(time_.now(), std::move(task));
    return true;
  }
  bool call_and_wait(const Task& task) noexcept override {
    task();
    return true;
  }
  bool add_fd(int, uint32_t, FdCallback) override { return false; }
  void remove_fd(int) noexcept override {}
  Clock::time_point now() const noexcept override { return time_.now(); }
  using Loop::timer_start;
  TimerId timer_start(Clock::time_point at, Task task) override {
    return time_.at(at, std::move(task));
  }
  void timer_cancel(TimerId id) noexcept override { time_.cancel(id); }

 private:
  VirtualTime& time_;
};

}  // namespace shift::control
