// The asynchronous events of a context, on their way to the application. No event outlives its
// object, as with the stock library: a thread that destroys the object waits until the application
// has acknowledged the events that it was given, and the events that it was not given are dropped.
#pragma once

#include <infiniband/verbs.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

namespace shift::group {

// The object that an event names; null for events of ports and devices.
const void* event_object(const ibv_async_event& event);

class AsyncEvents {
 public:
  AsyncEvents() = default;
  ~AsyncEvents();
  AsyncEvents(const AsyncEvents&) = delete;
  AsyncEvents& operator=(const AsyncEvents&) = delete;

  [[nodiscard]] bool open();
  int fd() const { return fd_; }  // readable while events wait

  // Adds an event. False: too many events wait already, or there is no memory. `is_ours`: the
  // object is a virtual one, so the application will acknowledge the event here.
  [[nodiscard]] bool raise(const ibv_async_event& event, bool is_ours);
  // Works like ibv_get_async_event: it waits, unless fd() is O_NONBLOCK, and returns 0, or -1 and
  // errno. A thread may be cancelled while it waits.
  int get(ibv_async_event* event);
  void acknowledge(const ibv_async_event& event);
  // The object may be destroyed. Its waiting events are kept back until that is decided; when this
  // returns, the application has acknowledged those that it was given. False: there is no memory.
  [[nodiscard]] bool keep_back(const void* object);
  // The object stays after all: its events are given again.
  void let_come(const void* object);
  // The object is destroyed: no event of it is raised any more, and those that wait are dropped.
  void forget(const void* object);

 private:
  struct Waiting {
    ibv_async_event event;
    bool is_ours;
  };
  // The caller of both holds mutex_.
  bool is_kept_back(const Waiting& one) const;
  void waits_changed();

  static constexpr size_t kWaitingMax = 4096;

  int fd_ = -1;  // an eventfd, which holds 1 while there is an event to give
  std::mutex mutex_;
  std::condition_variable acknowledged_;
  std::deque<Waiting> waiting_;
  std::vector<const void*> given_;  // the objects of events that are not acknowledged yet
  std::vector<const void*> kept_back_;
  bool told_ = false;  // whether fd_ holds 1
};

}  // namespace shift::group
