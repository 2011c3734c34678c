#include "group/async_events.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "util/event_names.h"
#include "util/restarts.h"
#include "util/uncancellable.h"

namespace shift::group {

const void* event_object(const ibv_async_event& event) {
  switch (event_names(event.event_type)) {
    case EventNames::kCq:
      return event.element.cq;
    case EventNames::kQp:
      return event.element.qp;
    case EventNames::kSrq:
      return event.element.srq;
    case EventNames::kWq:
      return event.element.wq;
    case EventNames::kPort:
      break;
  }
  return nullptr;
}

AsyncEvents::~AsyncEvents() {
  if (fd_ >= 0) close(fd_);
}

bool AsyncEvents::open() {
  // It blocks, as the application expects of a context's descriptor, which it may set to
  // O_NONBLOCK. The layer never reads it when it is empty, nor writes it when it is full.
  fd_ = eventfd(0, EFD_CLOEXEC);
  return fd_ >= 0;
}

bool AsyncEvents::is_kept_back(const Waiting& one) const {
  return !kept_back_.empty() &&
         std::ranges::find(kept_back_, event_object(one.event)) != kept_back_.end();
}

void AsyncEvents::waits_changed() {
  const bool gives =
      !std::ranges::all_of(waiting_, [this](const Waiting& one) { return is_kept_back(one); });
  if (told_ == gives) return;
  uint64_t value = 1;
  const ssize_t moved = told_ ? read(fd_, &value, sizeof value) : write(fd_, &value, sizeof value);
  if (moved == static_cast<ssize_t>(sizeof value)) told_ = !told_;
}

bool AsyncEvents::raise(const ibv_async_event& event, bool is_ours) try {
  std::lock_guard lock(mutex_);
  if (waiting_.size() >= kWaitingMax) return false;
  waiting_.push_back({event, is_ours});
  waits_changed();
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

int AsyncEvents::get(ibv_async_event* event) try {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      const auto at = std::ranges::find_if_not(
          waiting_, [this](const Waiting& one) { return is_kept_back(one); });
      if (at != waiting_.end()) {
        const Waiting next = *at;
        const void* object = event_object(next.event);
        if (object != nullptr && next.is_ours) given_.push_back(object);
        waiting_.erase(at);
        waits_changed();
        *event = next.event;
        return 0;
      }
    }
    if (fcntl(fd_, F_GETFL) & O_NONBLOCK) {
      errno = EAGAIN;
      return -1;
    }
    pollfd ready{fd_, POLLIN, 0};
    if (!wait_readable(&ready, 1, -1)) return -1;
  }
} catch (const std::bad_alloc&) {
  errno = ENOMEM;
  return -1;
}

void AsyncEvents::acknowledge(const ibv_async_event& event) {
  const void* object = event_object(event);
  if (object == nullptr) return;
  std::lock_guard lock(mutex_);
  const auto at = std::ranges::find(given_, object);
  if (at == given_.end()) return;
  given_.erase(at);
  acknowledged_.notify_all();
}

bool AsyncEvents::keep_back(const void* object) try {
  std::unique_lock lock(mutex_);
  kept_back_.push_back(object);
  waits_changed();
  const Uncancellable shield;
  acknowledged_.wait(lock, [&] { return std::ranges::find(given_, object) == given_.end(); });
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

void AsyncEvents::let_come(const void* object) {
  std::lock_guard lock(mutex_);
  std::erase(kept_back_, object);
  waits_changed();
}

void AsyncEvents::forget(const void* object) {
  std::unique_lock lock(mutex_);
  std::erase_if(waiting_,
                [object](const Waiting& one) { return event_object(one.event) == object; });
  std::erase(kept_back_, object);
  waits_changed();
  const Uncancellable shield;
  acknowledged_.wait(lock, [&] { return std::ranges::find(given_, object) == given_.end(); });
}

}  // namespace shift::group
