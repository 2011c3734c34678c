// What takes the place of the background threads in the tests of ops/.
#pragma once

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "control/runtime.h"
#include "group/test/fake_commands.h"

namespace shift::ops {

// A loop that keeps its tasks until a thread waits for a task that it queues after them.
class LazyLoop : public net::Loop {
 public:
  bool call_soon(Task task) noexcept override {
    tasks_.push_back(std::move(task));
    return true;
  }
  bool call_and_wait(const Task& task) noexcept override {
    waits++;
    run();
    task();
    return true;
  }
  bool in_thread() const noexcept override { return true; }
  bool add_fd(int, uint32_t, FdCallback) override { return false; }
  void remove_fd(int) noexcept override {}
  Clock::time_point now() const noexcept override { return {}; }
  using Loop::timer_start;
  TimerId timer_start(Clock::time_point, Task task) override {
    timers_[++last_timer_] = std::move(task);
    return last_timer_;
  }
  void timer_cancel(TimerId id) noexcept override { timers_.erase(id); }

  // Runs what is queued, and then what every timer that runs by then is to run, once.
  void run_timers() {
    run();
    fire();
    run();
  }
  // Runs only what the timers are to run.
  void fire() {
    std::vector<TimerId> due;
    for (const auto& [id, task] : timers_) due.push_back(id);
    for (const TimerId id : due) {
      if (auto timer = timers_.extract(id)) timer.mapped()();
    }
  }
  void run() {
    while (!tasks_.empty()) run_one();
  }
  void run_one() {
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    task();
  }

  int waits = 0;  // how often a thread has waited

 private:
  std::deque<Task> tasks_;
  std::map<TimerId, Task> timers_;
  TimerId last_timer_ = 0;
};

// A network without peers.
class EmptyNetwork final : public net::PeerNetwork {
 public:
  void add_address(uint32_t) override {}
  void find_peer(const net::FindRequest&, net::FindCallback) override {}
  void retry_connections() override {}
};

// What control::runtime() returns.
inline control::Runtime* in_use = nullptr;

}  // namespace shift::ops
