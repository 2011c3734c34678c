// What takes the place of the command threads in tests.
#pragma once

#include <deque>
#include <functional>
#include <set>
#include <utility>

#include "group/command_threads.h"

namespace shift::group {

// Keeps tasks until the test runs them, or waits for one that comes after them.
class LazyTasks {
 public:
  bool call_soon(CommandThreads::Task task) {
    tasks_.push_back(std::move(task));
    return true;
  }
  bool call_and_wait(const CommandThreads::Task& task) {
    run();
    task();
    return true;
  }
  void run() {
    while (!tasks_.empty()) {
      const CommandThreads::Task task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }

 private:
  std::deque<CommandThreads::Task> tasks_;
};

// All NICs' commands run on one loop (net::Loop, or one with the same two functions), and a NIC is
// slow or late when the test says so.
class FakeCommands final : public CommandThreads {
 public:
  template <typename Loop>
  explicit FakeCommands(Loop& loop)
      : soon_([&loop](Task task) { return loop.call_soon(std::move(task)); }),
        wait_([&loop](const Task& task) { return loop.call_and_wait(task); }) {}
  ~FakeCommands() {
    if (command_threads == this) command_threads = nullptr;
  }

  int number_of(const char*) override { return 0; }
  bool run(int nic, Task task, std::chrono::nanoseconds) noexcept override {
    if (!has_threads) return false;
    if (late.contains(nic) || slow.contains(nic))
      return held.emplace_back(nic, std::move(task)), true;
    return soon_(std::move(task));
  }
  Waited run_and_wait(int nic, Task task) noexcept override {
    if (hangs.erase(nic) == 1) late.insert(nic);
    if (late.contains(nic)) return held.emplace_back(nic, std::move(task)), Waited::kLate;
    return wait_(task) ? Waited::kDone : Waited::kNever;
  }
  bool is_late(int nic) const noexcept override { return late.contains(nic); }
  bool is_slow(int nic) const noexcept override { return late.contains(nic) || slow.contains(nic); }
  bool in_thread() const noexcept override { return is_own_thread; }
  bool is_busy(int) const noexcept override { return !held.empty(); }

  // The NIC answers again.
  void answer(int nic) {
    late.erase(nic);
    slow.erase(nic);
    const auto waiting = std::exchange(held, {});
    for (const auto& [number, task] : waiting) {
      if (number == nic) {
        task();
      } else {
        held.emplace_back(number, task);
      }
    }
  }

  std::set<int> late, slow;
  std::set<int> hangs;                    // becomes late with the next task that is waited for
  std::deque<std::pair<int, Task>> held;  // tasks of NICs that are late
  bool is_own_thread = false;
  bool has_threads = true;

 private:
  std::function<bool(Task)> soon_;
  std::function<bool(const Task&)> wait_;
};

}  // namespace shift::group
