#include "connections.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace shift::cm {

void Connections::told(const rdma_cm_event& event) {
  const std::lock_guard lock(mutex_);
  switch (event.event) {
    case RDMA_CM_EVENT_ESTABLISHED:
      if (event.status == 0 && event.id->qp != nullptr) {
        known_[event.id] = {event.id->channel, event.id->qp};
      }
      break;
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
    case RDMA_CM_EVENT_ADDR_CHANGE:
      break;
    default:
      known_.erase(event.id);
  }
}

void Connections::forget(const rdma_cm_id* id) {
  const std::lock_guard lock(mutex_);
  known_.erase(id);
}

bool Connections::is_established(const rdma_cm_id* id) const {
  const std::lock_guard lock(mutex_);
  return known_.contains(id);
}

void Connections::peer_gone(const ibv_qp* qp) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, connection] : known_) {
    if (connection.qp != qp || connection.state != Connection::kGood) continue;
    connection.state = Connection::kGone;
    const auto [first, last] = waiters_.equal_range(connection.channel);
    for (auto waiter = first; waiter != last; ++waiter) {
      const uint64_t one = 1;
      // It cannot be full: each wait takes all of it.
      if (write(waiter->second, &one, sizeof one) < 0) continue;
    }
  }
}

bool Connections::is_told_gone(const rdma_cm_id* id) const {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(id);
  return found != known_.end() && found->second.state == Connection::kTold;
}

rdma_cm_event* Connections::take(const rdma_event_channel* channel) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, connection] : known_) {
    if (connection.channel != channel || connection.state != Connection::kGone) continue;
    auto* event = new rdma_cm_event{};
    event->id = const_cast<rdma_cm_id*>(id);
    event->event = RDMA_CM_EVENT_DISCONNECTED;
    own_.insert(event);
    connection.state = Connection::kTold;
    return event;
  }
  return nullptr;
}

bool Connections::acknowledge(rdma_cm_event* event) {
  const std::lock_guard lock(mutex_);
  if (own_.erase(event) == 0) return false;
  delete event;
  return true;
}

bool Connections::is_waited_for(const rdma_event_channel* channel) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, connection] : known_) {
    if (connection.channel == channel && connection.state != Connection::kTold) return true;
  }
  return false;
}

Connections::Waiter::Waiter(Connections& connections, const rdma_event_channel* channel)
    : connections_(connections), fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const std::lock_guard lock(connections_.mutex_);
  place_ = connections_.waiters_.emplace(channel, fd_);
}

void Connections::Waiter::clear() const {
  uint64_t count;
  if (read(fd_, &count, sizeof count) < 0) return;  // nothing was there
}

Connections::Waiter::~Waiter() {
  {
    const std::lock_guard lock(connections_.mutex_);
    connections_.waiters_.erase(place_);
  }
  if (fd_ >= 0) close(fd_);
}

}  // namespace shift::cm
