#include "connections.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "util/uncancellable.h"

namespace shift::cm {

void Connections::told(const rdma_cm_event& event, bool by_stock, Ask has_left) {
  const std::lock_guard lock(mutex_);
  rdma_cm_id* id = event.id;
  switch (event.event) {
    // A program that made the QP by itself gets CONNECT_RESPONSE, the event before
    // rdma_establish().
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
    case RDMA_CM_EVENT_ESTABLISHED: {
      if (event.status != 0) break;
      Connection& connection = known_[id] = {id->channel, id->qp, by_stock};
      if (gone_early_.erase(id->qp) != 0 && has_left(*id)) leave(connection);
      break;
    }
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
    case RDMA_CM_EVENT_ADDR_CHANGE:
      break;
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      came_by_[id] = event.listen_id;
      [[fallthrough]];
    default:
      known_.erase(id);
  }
}

void Connections::hidden(const rdma_cm_event& event) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(event.id);
  if (found == known_.end()) return;
  found->second.hid = true;
  if (event.event == RDMA_CM_EVENT_DEVICE_REMOVAL) found->second.removed = true;
}

void Connections::forget(const rdma_cm_id* id) {
  std::unique_lock lock(mutex_);
  known_.erase(id);
  ends_.erase(id);
  await_acknowledged(id, lock);
  std::erase_if(came_by_, [id](const auto& entry) { return entry.second == id; });
  const auto child = came_by_.find(id);
  if (child == came_by_.end()) return;
  const rdma_cm_id* listener = child->second;
  came_by_.erase(child);
  const auto end = ends_.find(listener);
  if (end == ends_.end()) return;
  for (const auto& entry : came_by_) {
    if (entry.second == listener) return;
  }
  end->second.due = Clock::now() + kMoment;
  wake(end->second.channel);
}

void Connections::migrated(const rdma_cm_id* id, bool is_synchronous) {
  std::unique_lock lock(mutex_);
  if (const auto found = known_.find(id); found != known_.end()) {
    found->second.channel = id->channel;
    found->second.is_synchronous = is_synchronous;
  }
  if (const auto end = ends_.find(id); end != ends_.end()) end->second.channel = id->channel;
  wake(id->channel);
  await_acknowledged(id, lock);
}

// The wait must not be a cancellation point: the callers are C functions, which cannot always be
// unwound.
void Connections::await_acknowledged(const rdma_cm_id* id, std::unique_lock<std::mutex>& lock) {
  const Uncancellable shield;
  acknowledged_.wait(lock, [&] {
    return std::ranges::none_of(own_, [id](const auto* event) { return event->id == id; });
  });
}

bool Connections::postpone_end(const rdma_cm_id* listener, Ask is_masked) {
  const std::lock_guard lock(mutex_);
  const bool serves = std::ranges::any_of(came_by_, [&](const auto& entry) {
    return entry.second == listener && known_.contains(entry.first) && is_masked(*entry.first);
  });
  if (serves) ends_[listener] = {listener->channel};
  return serves;
}

Connections::Clock::time_point Connections::next_due(const rdma_event_channel* channel) const {
  const std::lock_guard lock(mutex_);
  auto due = Clock::time_point::max();
  for (const auto& [listener, end] : ends_) {
    if (end.channel == channel) due = std::min(due, end.due);
  }
  return due;
}

bool Connections::is_established(const rdma_cm_id* id) const {
  const std::lock_guard lock(mutex_);
  return known_.contains(id);
}

void Connections::peer_gone(const ibv_qp* qp) {
  const std::lock_guard lock(mutex_);
  bool is_known = false;
  for (auto& [id, connection] : known_) {
    if (connection.qp != qp) continue;
    is_known = true;
    leave(connection);
  }
  if (!is_known) gone_early_.insert(qp);
}

void Connections::gone(const rdma_cm_id* id) {
  const std::lock_guard lock(mutex_);
  if (const auto found = known_.find(id); found != known_.end()) leave(found->second);
}

Connections::Ending Connections::ending(const rdma_cm_id* id, Ask has_left) const {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(id);
  if (found == known_.end()) return {};
  const Connection& connection = found->second;
  return {connection.hid || has_left(*id), connection.removed, connection.is_synchronous};
}

// The caller holds the mutex.
void Connections::leave(Connection& connection) {
  if (connection.state != Connection::kGood) return;
  connection.state = Connection::kGone;
  wake(connection.channel);
}

// The caller holds the mutex.
void Connections::wake(const rdma_event_channel* channel) {
  const auto [first, last] = waiters_.equal_range(channel);
  for (auto waiter = first; waiter != last; ++waiter) {
    const uint64_t one = 1;
    // The counter cannot overflow: each wait resets it.
    if (write(waiter->second, &one, sizeof one) < 0) continue;
  }
}

// The caller holds the mutex.
rdma_cm_event* Connections::make(const rdma_cm_id* id, rdma_cm_event_type type) {
  auto* event = new rdma_cm_event{};
  event->id = const_cast<rdma_cm_id*>(id);
  event->event = type;
  own_.insert(event);
  return event;
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
    rdma_cm_event* event = make(id, RDMA_CM_EVENT_DISCONNECTED);
    connection.state = Connection::kTold;
    return event;
  }
  const auto now = Clock::now();
  for (auto end = ends_.begin(); end != ends_.end(); ++end) {
    if (end->second.channel != channel || end->second.due > now) continue;
    rdma_cm_event* event = make(end->first, RDMA_CM_EVENT_DEVICE_REMOVAL);
    ends_.erase(end);
    return event;
  }
  return nullptr;
}

bool Connections::acknowledge(rdma_cm_event* event) {
  const std::lock_guard lock(mutex_);
  if (own_.erase(event) == 0) return false;
  delete event;
  acknowledged_.notify_all();
  return true;
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
