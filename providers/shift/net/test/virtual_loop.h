// Loops in virtual time: all loops of a simulation share one clock, which moves only when the test
// moves it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "net/loop.h"

namespace shift::net {

class VirtualTime {
 public:
  using Clock = Loop::Clock;

  Clock::time_point now() const { return now_; }
  Loop::TimerId at(Clock::time_point when, Loop::Task task) {
    uint32_t slot;
    if (free_.empty()) {
      slot = static_cast<uint32_t>(slots_.size());
      slots_.emplace_back();
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    const Loop::TimerId id = (next_++ << kSlotBits) | slot;
    slots_[slot] = {id, std::move(task)};
    heap_.push_back({std::max(when, now_), id});
    std::push_heap(heap_.begin(), heap_.end(), later);
    return id;
  }
  Loop::TimerId in(Clock::duration pause, Loop::Task task) {
    return at(now_ + pause, std::move(task));
  }
  void cancel(Loop::TimerId id) {
    const auto slot = static_cast<size_t>(id & kSlotMask);
    if (id != 0 && slot < slots_.size() && slots_[slot].id == id) release(slot);
  }
  // When the next task is due; max() when there is none.
  Clock::time_point next() {
    while (!heap_.empty() && slots_[heap_.front().id & kSlotMask].id != heap_.front().id) pop();
    return heap_.empty() ? Clock::time_point::max() : heap_.front().due;
  }
  // Runs the next task. Tasks run in the order of their times, and those of one time in the order
  // of the calls. Returns false when there is no task.
  bool step() {
    const auto due = next();
    if (due == Clock::time_point::max()) return false;
    const size_t slot = heap_.front().id & kSlotMask;
    pop();
    now_ = std::max(now_, due);
    const Loop::Task task = std::move(slots_[slot].task);
    release(slot);
    task();
    return true;
  }
  // Runs all tasks that are due until `span` has passed.
  void run_for(Clock::duration span) {
    const Clock::time_point end = now_ + span;
    while (next() <= end) step();
    now_ = end;
  }
  // Everything stands still for so long, and is late afterwards.
  void stop_for(Clock::duration span) { now_ += span; }
  // Lets time pass without running any task; no task may be due before `when`.
  void advance_to(Clock::time_point when) { now_ = std::max(now_, when); }
  void drop_all() {
    heap_.clear();
    free_.clear();
    slots_.clear();
  }

 private:
  static constexpr int kSlotBits = 20;
  static constexpr uint64_t kSlotMask = (1u << kSlotBits) - 1;
  struct Due {
    Clock::time_point due;
    Loop::TimerId id;  // greater with each call; its low bits name the slot
  };
  struct Slot {
    // 0 when the slot is free. A place in the heap whose id differs from its slot's is stale.
    Loop::TimerId id = 0;
    Loop::Task task;
  };
  static bool later(const Due& a, const Due& b) {
    return a.due != b.due ? a.due > b.due : a.id > b.id;
  }
  void pop() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    heap_.pop_back();
  }
  void release(size_t slot) {
    slots_[slot].id = 0;
    slots_[slot].task = nullptr;
    free_.push_back(static_cast<uint32_t>(slot));
  }

  Clock::time_point now_{std::chrono::seconds(1000)};
  Loop::TimerId next_ = 1;  // 0 is never a timer
  std::vector<Due> heap_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
};

// One loop of one host. There are no descriptors in a simulation.
class VirtualLoop : public Loop {
 public:
  explicit VirtualLoop(VirtualTime& time) : time_(time) {}

  // A loop that reads many messages first does the tasks that others have given it so late.
  Clock::duration lateness{};

  bool call_soon(Task task) noexcept override {
    time_.at(time_.now() + lateness, std::move(task));
    return true;
  }
  bool call_and_wait(const Task& task) noexcept override {
    task();
    return true;
  }
  bool in_thread() const noexcept override { return true; }
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

}  // namespace shift::net
