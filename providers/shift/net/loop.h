// A place where work is done in turn: the background threads (Reactor), or a simulation's virtual
// time. Everything but call_soon() and call_and_wait() only from inside.
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

  // Runs `task`, in the order of the calls. From any thread. False when it will never run.
  virtual bool call_soon(Task task) noexcept = 0;
  // Runs `task` and waits for it (directly when already inside).
  virtual bool call_and_wait(const Task& task) noexcept = 0;

  // Whether the caller is inside.
  virtual bool in_thread() const noexcept = 0;

  // The descriptor stays the caller's: remove it here before closing it. Callbacks may add and
  // remove any descriptor, their own included; a removed one is never called again.
  [[nodiscard]] virtual bool add_fd(int fd, uint32_t epoll_events, FdCallback callback) = 0;
  virtual void remove_fd(int fd) noexcept = 0;

  virtual Clock::time_point now() const noexcept = 0;
  virtual TimerId timer_start(Clock::time_point at, Task task) = 0;
  TimerId timer_start(Clock::duration in, Task task) {
    return timer_start(now() + in, std::move(task));
  }
  // Harmless with 0, with a timer that has fired, and from inside a timer's own task.
  virtual void timer_cancel(TimerId id) noexcept = 0;
};

}  // namespace shift::net
