// A place that runs its work one piece at a time: a background thread (Reactor), or a simulation
// with virtual time. Any thread may call call_soon(), call_and_wait() and in_thread(); all other
// functions may be called only from inside, that is, from work that the loop runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace shift::net {

class Loop {
 public:
  using Clock = std::chrono::steady_clock;
  using Task = std::function<void()>;
  using FdCallback = std::function<void(uint32_t epoll_events)>;
  using TimerId = uint64_t;  // 0 is never a timer

  virtual ~Loop() = default;

  // Runs `task`; tasks run in the order of the calls. Returns false when the task will never run.
  virtual bool call_soon(Task task) noexcept = 0;
  // Runs `task` and waits until it has run; a caller that is already inside runs it directly.
  virtual bool call_and_wait(const Task& task) noexcept = 0;

  // Whether the caller is inside.
  virtual bool in_thread() const noexcept = 0;

  // The caller still owns the descriptor, and must remove it here before closing it. A callback may
  // add and remove any descriptor, its own included; the callback of a removed descriptor is never
  // called again.
  [[nodiscard]] virtual bool add_fd(int fd, uint32_t epoll_events, FdCallback callback) = 0;
  virtual void remove_fd(int fd) noexcept = 0;

  virtual Clock::time_point now() const noexcept = 0;
  virtual TimerId timer_start(Clock::time_point at, Task task) = 0;
  TimerId timer_start(Clock::duration in, Task task) {
    return timer_start(now() + in, std::move(task));
  }
  // The call has no effect with 0, with a timer that has fired, or from inside a timer's own task.
  virtual void timer_cancel(TimerId id) noexcept = 0;
};

}  // namespace shift::net
