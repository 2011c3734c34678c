// A thread of the model: its tasks run one after the other, and each takes as long, in virtual
// time, as it takes on this machine. Other threads of the model have processors of their own.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>

#include "net/test/virtual_loop.h"

namespace switch_model {

class Thread final : public shift::net::Loop {
 public:
  // `least`: what each task takes at least, which stands for work that is not done here.
  Thread(shift::net::VirtualTime& time, Clock::duration least) : time_(time), least_(least) {}

  // How long ago the task under way began; zero outside of tasks.
  static Clock::duration elapsed();
  // The time that all tasks have taken.
  Clock::duration spent() const { return spent_; }
  uint64_t tasks() const { return tasks_; }

  bool call_soon(Task task) noexcept override;
  // Only set-up waits for a thread.
  bool call_and_wait(const Task& task) noexcept override { return task(), true; }
  bool in_thread() const noexcept override { return true; }
  bool add_fd(int, uint32_t, FdCallback) override { return false; }
  void remove_fd(int) noexcept override {}
  Clock::time_point now() const noexcept override;
  using Loop::timer_start;
  TimerId timer_start(Clock::time_point at, Task task) override;
  void timer_cancel(TimerId id) noexcept override;
  // Nothing more runs.
  void drop_all();

 private:
  void plan();
  void run_first();

  shift::net::VirtualTime& time_;
  const Clock::duration least_;
  std::map<std::pair<Clock::time_point, TimerId>, Task> waiting_;
  std::unordered_map<TimerId, Clock::time_point> due_;
  TimerId next_ = 1;
  Clock::time_point free_at_{}, planned_at_ = Clock::time_point::max();
  TimerId planned_ = 0;
  bool runs_ = false;
  Clock::duration spent_{};
  uint64_t tasks_ = 0;
};

}  // namespace switch_model
