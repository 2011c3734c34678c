// A context's asynchronous events on their way to the application, and the promise that no event
// outlives its object: who destroys one waits until the application has acknowledged what it was
// given, and what it was not given yet is dropped. As stock does it.
#pragma once

#include <infiniband/verbs.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

namespace shift::group {

// The object that an event names; null for those of ports and devices.
const void* event_object(const ibv_async_event& event);

class AsyncEvents {
 public:
  AsyncEvents() = default;
  ~AsyncEvents();
  AsyncEvents(const AsyncEvents&) = delete;
  AsyncEvents& operator=(const AsyncEvents&) = delete;

  [[nodiscard]] bool open();
  int fd() const { return fd_; }  // readable while events wait

  // False: too many wait already, or there is no memory. `is_ours`: the object is a virtual one, so
  // it is here that the event will be acknowledged.
  [[nodiscard]] bool raise(const ibv_async_event& event, bool is_ours);
  // As ibv_get_async_event: waits, unless fd() is O_NONBLOCK. 0, or -1 and errno. A thread may be
  // cancelled in it.
  int get(ibv_async_event* event);
  void acknowledge(const ibv_async_event& event);
  // The object may go: what waits of it is kept back until that is decided, and what was given has
  // been acknowledged when this returns. False: there is no memory.
  [[nodiscard]] bool keep_back(const void* object);
  // It stays.
  void let_come(const void* object);
  // The object goes: nothing raises an event of it any more.
  void forget(const void* object);

 private:
  struct Waiting {
    ibv_async_event event;
    bool is_ours;
  };
  // Under mutex_.
  bool is_kept_back(const Waiting& one) const;
  void waits_changed();

  static constexpr size_t kWaitingMax = 4096;

  int fd_ = -1;  // an eventfd, which holds 1 while there is something to give
  std::mutex mutex_;
  std::condition_variable acknowledged_;
  std::deque<Waiting> waiting_;
  std::vector<const void*> given_;  // objects of events that were not acknowledged yet
  std::vector<const void*> kept_back_;
  bool told_ = false;  // fd_ holds 1
};

}  // namespace shift::group
