// The loop of a background thread.
#include "net/reactor.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <exception>

#include "util/fork.h"
#include "util/log.h"
#include "util/uncancellable.h"

namespace shift::net {
namespace {

constexpr int kEventsMax = 64;  // that one epoll_wait returns
// Watch numbers of the two descriptors that the loop itself owns; callers' numbers follow.
constexpr uint64_t kWakeWatch = 1;
constexpr uint64_t kTimerWatch = 2;
constexpr uint64_t kFirstWatch = 3;

bool epoll_add(int epoll_fd, int fd, uint32_t events, uint64_t watch) {
  struct epoll_event e = {};
  e.events = events;
  e.data.u64 = watch;
  return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e) == 0;
}

void counter_clear(int fd) {
  uint64_t count;
  // The descriptor is nonblocking, and only the wake-up matters, so an empty counter is no error.
  if (::read(fd, &count, sizeof count) < 0) return;
}

// Lets call_and_wait end even when its task is dropped before it has run.
struct Waiter {
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  bool ran = false;

  void end(bool did_run) {
    std::lock_guard lock(mutex);
    ran = ran || did_run;
    ended = true;
    changed.notify_all();
  }
};

struct WaiterGuard {
  explicit WaiterGuard(std::shared_ptr<Waiter> w) : waiter(std::move(w)) {}
  ~WaiterGuard() { waiter->end(false); }
  WaiterGuard(const WaiterGuard&) = delete;
  WaiterGuard& operator=(const WaiterGuard&) = delete;
  std::shared_ptr<Waiter> waiter;
};

}  // namespace

Reactor::Reactor(const char* name)
    : name_(name),
      generation_(fork_generation()),
      epoll_fd_(epoll_create1(EPOLL_CLOEXEC)),
      event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      timer_fd_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  next_watch_ = kFirstWatch;
}

Reactor::~Reactor() {
  stop();
}

bool Reactor::is_foreign() const noexcept {
  return generation_ != fork_generation();
}

bool Reactor::in_thread() const noexcept {
  return self_.load(std::memory_order_relaxed) == pthread_self() && !is_foreign();
}

// The loop's tables have no lock. A call from another thread is a bug of the layer, which would
// otherwise show up as a rare corruption in a user's job.
void Reactor::check_thread() const noexcept {
  if (!started_ || in_thread()) return;
  SHIFT_ERROR("internal: reactor used from a foreign thread");
  std::abort();
}

bool Reactor::start() {
  if (started_ || is_foreign()) return errno = EINVAL, false;
  if (!epoll_fd_ || !event_fd_ || !timer_fd_) return errno = EMFILE, false;
  if (!epoll_add(epoll_fd_.get(), event_fd_.get(), EPOLLIN, kWakeWatch) ||
      !epoll_add(epoll_fd_.get(), timer_fd_.get(), EPOLLIN, kTimerWatch))
    return false;
  // The thread inherits the mask, so the program's signals go to the program's threads. Signals
  // that report a fault of the thread itself stay unblocked, or they would lose their meaning.
  sigset_t all, old;
  sigfillset(&all);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  started_ = true;  // the thread's own calls of check_thread() read it
  const int error = pthread_create(&thread_, nullptr, thread_main, this);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (error != 0) {
    started_ = false;
    return errno = error, false;
  }
  pthread_setname_np(thread_, name_);
  return true;
}

void Reactor::stop() {
  if (is_foreign()) return;
  if (started_) {
    stopping_.store(true, std::memory_order_relaxed);
    const uint64_t one = 1;
    if (::write(event_fd_.get(), &one, sizeof one) < 0)
      SHIFT_ERROR("internal: cannot wake the thread %s: %m", name_);
    pthread_join(thread_, nullptr);
    started_ = false;
    self_.store(0, std::memory_order_relaxed);
  }
  close_queue();
}

void Reactor::close_queue() noexcept {
  std::vector<Task> dropped;  // destroyed after the lock: a task's destructor may call in
  std::lock_guard lock(mutex_);
  closed_ = true;
  dropped.swap(tasks_);
}

bool Reactor::call_soon(Task task) noexcept {
  if (is_foreign()) return false;  // the lock may be held by a thread that the child lacks
  bool wake;
  try {
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    wake = tasks_.empty();
    tasks_.push_back(std::move(task));
  } catch (const std::exception&) {
    return false;
  }
  // The loop looks at the queue before it sleeps, so a call on its own thread needs no wake-up.
  if (wake && !in_thread()) {
    const uint64_t one = 1;
    if (::write(event_fd_.get(), &one, sizeof one) < 0 && errno != EAGAIN)
      SHIFT_WARN_LIMITED("cannot wake the thread %s: %m", name_);
  }
  return true;
}

bool Reactor::call_and_wait(const Task& task) noexcept {
  if (in_thread()) return guarded(task), true;
  try {
    auto waiter = std::make_shared<Waiter>();
    auto guard = std::make_shared<WaiterGuard>(waiter);
    const bool queued = call_soon([guard, &task] {
      task();
      events_flush();  // the caller may look for the records
      guard->waiter->end(true);
    });
    guard.reset();
    if (!queued) return false;
    const Uncancellable shield;
    std::unique_lock lock(waiter->mutex);
    waiter->changed.wait(lock, [&] { return waiter->ended; });
    return waiter->ran;
  } catch (const std::exception&) {
    return false;
  }
}

bool Reactor::add_fd(int fd, uint32_t epoll_events, FdCallback callback) {
  check_thread();
  const uint64_t number = next_watch_++;
  watches_[number] = std::make_shared<Watch>(Watch{fd, std::move(callback)});
  watch_of_fd_[fd] = number;
  if (epoll_add(epoll_fd_.get(), fd, epoll_events, number)) return true;
  watches_.erase(number);
  watch_of_fd_.erase(fd);
  return false;
}

bool Reactor::modify_fd(int fd, uint32_t epoll_events) noexcept {
  check_thread();
  const auto it = watch_of_fd_.find(fd);
  if (it == watch_of_fd_.end()) return false;
  struct epoll_event e = {};
  e.events = epoll_events;
  e.data.u64 = it->second;
  return epoll_ctl(epoll_fd_.get(), EPOLL_CTL_MOD, fd, &e) == 0;
}

void Reactor::remove_fd(int fd) noexcept {
  if (is_foreign()) return;
  check_thread();
  const auto it = watch_of_fd_.find(fd);
  if (it == watch_of_fd_.end()) return;
  epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, fd, nullptr);
  watches_.erase(it->second);
  watch_of_fd_.erase(it);
}

Reactor::TimerId Reactor::timer_start(Clock::time_point at, Task task) {
  check_thread();
  const TimerId id = next_timer_++;
  timers_.emplace(std::pair(at, id), std::move(task));
  timer_at_[id] = at;
  return id;
}

void Reactor::timer_cancel(TimerId id) noexcept {
  if (is_foreign()) return;
  check_thread();
  const auto it = timer_at_.find(id);
  if (it == timer_at_.end()) return;
  timers_.erase({it->second, id});
  timer_at_.erase(it);
}

template <typename F>
void Reactor::guarded(const F& call) noexcept {
  try {
    call();
  } catch (const std::exception& e) {
    SHIFT_WARN_LIMITED("thread %s: %s", name_, e.what());
  }
}

void* Reactor::thread_main(void* self) {
  static_cast<Reactor*>(self)->run();
  return nullptr;
}

bool Reactor::tasks_waiting() noexcept {
  std::lock_guard lock(mutex_);
  return !tasks_.empty();
}

void Reactor::run() {
  self_.store(pthread_self(), std::memory_order_relaxed);
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (run_turn(-1) >= 0) continue;
    // The program closed the loop's descriptors, as daemons do; the loop cannot run without them.
    SHIFT_ERROR("thread %s ends, its descriptors were closed: %m", name_);
    break;
  }
  close_queue();
}

bool Reactor::turn() {
  const bool has_tasks = tasks_waiting();
  return run_turn(0) > 0 || has_tasks;
}

// Returns how many events there were; negative, with errno, when the loop cannot go on.
int Reactor::run_turn(int timeout_ms) {
  struct epoll_event events[kEventsMax];
  run_tasks();
  timer_arm();
  events_flush();
  // When tasks have queued further tasks, descriptors and timers get their turn in between.
  const int count =
      epoll_wait(epoll_fd_.get(), events, kEventsMax, tasks_waiting() ? 0 : timeout_ms);
  if (count < 0 && errno != EINTR) return count;
  run_events(events, count);
  run_timers();
  return std::max(count, 0);
}

// Runs one batch of tasks. Tasks that these tasks queue wait for the next turn.
void Reactor::run_tasks() {
  std::vector<Task> batch;
  {
    std::lock_guard lock(mutex_);
    batch.swap(tasks_);
  }
  for (Task& task : batch) {
    guarded(task);
    task = nullptr;
  }
}

void Reactor::run_events(const struct epoll_event* events, int count) {
  for (int i = 0; i < count; i++) {
    const uint64_t number = events[i].data.u64;
    if (number == kWakeWatch) {
      counter_clear(event_fd_.get());
    } else if (number == kTimerWatch) {
      counter_clear(timer_fd_.get());
      armed_at_ = {};
    } else if (const auto it = watches_.find(number); it != watches_.end()) {
      const std::shared_ptr<Watch> watch = it->second;  // the callback may remove it
      guarded([&] { watch->callback(events[i].events); });
    }
  }
}

void Reactor::run_timers() {
  if (timers_.empty()) return;
  const auto now = Clock::now();
  // A timer that one of these tasks starts has a higher number, and waits for the next turn.
  const TimerId last = next_timer_;
  for (auto it = timers_.begin(); it != timers_.end() && it->first.first <= now;) {
    if (it->first.second >= last) {
      ++it;
      continue;
    }
    const Task task = std::move(it->second);
    timer_at_.erase(it->first.second);
    timers_.erase(it);
    guarded(task);
    it = timers_.begin();  // the task may have cancelled any other timer
  }
}

void Reactor::timer_arm() noexcept {
  const Clock::time_point at = timers_.empty() ? Clock::time_point{} : timers_.begin()->first.first;
  if (at == armed_at_) return;
  const int64_t ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
  struct itimerspec spec = {};
  spec.it_value.tv_sec = ns / 1000000000;
  spec.it_value.tv_nsec = ns % 1000000000;
  // A time before the start of the clock is due now; an all-zero value would disarm the timer.
  if (!timers_.empty() && ns <= 0) spec.it_value = {0, 1};
  timerfd_settime(timer_fd_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
  armed_at_ = at;
}

}  // namespace shift::net
