// What takes the place of the background threads in the tests of ops/.
#pragma once

#include <deque>
#include <utility>

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
    run();
    task();
    return true;
  }
  bool in_thread() const noexcept override { return true; }
  bool add_fd(int, uint32_t, FdCallback) override { return false; }
  void remove_fd(int) noexcept override {}
  Clock::time_point now() const noexcept override { return {}; }
  using Loop::timer_start;
  TimerId timer_start(Clock::time_point, Task) override { return 1; }
  void timer_cancel(TimerId) noexcept override {}

  void run() {
    while (!tasks_.empty()) {
      const Task task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }

 private:
  std::deque<Task> tasks_;
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
