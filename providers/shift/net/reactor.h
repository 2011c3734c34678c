// One background thread that serves descriptors, timers, and tasks that other threads hand over.
// It sleeps in epoll_wait without a timeout, so an idle process pays nothing.
#pragma once

#include <pthread.h>
#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "net/loop.h"
#include "util/unique_fd.h"

namespace shift::net {

class Reactor final : public Loop {
 public:
  // `name` is the name that ps and debuggers show for the thread. It has 15 characters at most, and
  // its memory is never freed.
  explicit Reactor(const char* name = "shift-loop");
  // Stops the thread when it runs. A fork child has no such thread, so nothing is stopped there.
  ~Reactor() override;
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  // Starts the thread, with all signals blocked in it except those that report the thread's own
  // faults. Returns false, with errno, when it cannot.
  [[nodiscard]] bool start();
  // Ends and joins the thread, and drops the tasks that are still queued. It must not be called on
  // the thread itself.
  void stop();
  bool in_thread() const noexcept override;
  // One turn of the loop of a reactor that was not started, in place of its thread: whatever is due
  // runs, and nothing is waited for. Returns whether a task or a descriptor had its turn. Tests
  // that must see everything on one thread use it.
  bool turn();

  // Runs `task` on the thread; tasks run in the order of the calls. Any thread may call it, also
  // before start(). Returns false when the task will never run: after stop(), or in a fork child.
  bool call_soon(Task task) noexcept override;
  // Runs `task` on the thread and waits until it has run; a caller on the thread runs it directly.
  bool call_and_wait(const Task& task) noexcept override;

  // The functions below may be called only on the thread, or before start().

  // The caller still owns the descriptor, and must remove it here before closing it. A callback may
  // add, modify and remove any descriptor, its own included; the callback of a removed descriptor
  // is never called again.
  [[nodiscard]] bool add_fd(int fd, uint32_t epoll_events, FdCallback callback) override;
  bool modify_fd(int fd, uint32_t epoll_events) noexcept;
  void remove_fd(int fd) noexcept override;

  Clock::time_point now() const noexcept override { return Clock::now(); }
  using Loop::timer_start;
  TimerId timer_start(Clock::time_point at, Task task) override;
  // The call has no effect with 0, with a timer that has fired, or from inside a timer's own task.
  void timer_cancel(TimerId id) noexcept override;

 private:
  struct Watch {
    int fd;
    FdCallback callback;
  };

  static void* thread_main(void* self);
  void run();
  int run_turn(int timeout_ms);
  void run_tasks();
  void run_events(const struct epoll_event* events, int count);
  void run_timers();
  void timer_arm() noexcept;
  void close_queue() noexcept;
  bool tasks_waiting() noexcept;
  void check_thread() const noexcept;
  bool is_foreign() const noexcept;  // in a fork child
  template <typename F>
  void guarded(const F& call) noexcept;

  const char* const name_;
  const uint64_t generation_;
  UniqueFd epoll_fd_;
  UniqueFd event_fd_;
  UniqueFd timer_fd_;
  pthread_t thread_{};              // valid while started_
  bool started_ = false;            // written by start() and stop() only
  std::atomic<pthread_t> self_{0};  // 0 (never a thread in glibc) when none runs
  std::atomic<bool> stopping_{false};

  std::mutex mutex_;         // guards tasks_ and closed_
  std::vector<Task> tasks_;  // the event fd is written only when the queue was empty
  bool closed_ = false;

  // Only the thread uses the members below. Each watch has a number that is never reused, so that
  // an event that was fetched before its descriptor was closed cannot reach a new file that got the
  // same descriptor.
  std::unordered_map<uint64_t, std::shared_ptr<Watch>> watches_;
  std::unordered_map<int, uint64_t> watch_of_fd_;
  uint64_t next_watch_ = 1;
  std::map<std::pair<Clock::time_point, TimerId>, Task> timers_;
  std::unordered_map<TimerId, Clock::time_point> timer_at_;
  TimerId next_timer_ = 1;
  Clock::time_point armed_at_{};  // the time that timer_fd_ is set to; zero: disarmed
};

}  // namespace shift::net
