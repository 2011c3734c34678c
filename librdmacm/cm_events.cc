// The logic of cm_events.h, for the events of the kernel as they come.
#include "cm_events.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>

#include "connections.h"
#include "util/restarts.h"

namespace shift::cm {

namespace {

// Never destroyed: threads may wait for events while the process ends.
Connections& connections() {
  static auto* const all = new Connections;
  return *all;
}

void peer_gone(ibv_qp* qp) {
  try {
    connections().peer_gone(qp);
  } catch (const std::bad_alloc&) {
    // The kernel's event may still come.
  }
}

// Some programs make the QP by themselves, often on a context of their own. Then only the device is
// known.
bool is_masked(const rdma_cm_id& id) {
  if (id.qp != nullptr) return layer.qp_is_protected != nullptr && layer.qp_is_protected(id.qp);
  return layer.device_is_masked != nullptr && id.verbs != nullptr &&
         layer.device_is_masked(id.verbs);
}

bool has_left(const rdma_cm_id& id) {
  return layer.qp_has_left != nullptr && id.qp != nullptr && layer.qp_has_left(id.qp);
}

// Linux reports the peer of a connection as unreachable when the neighbour table no longer has it,
// and reports a connection as lost when its device is removed. The data then uses another NIC.
bool is_hidden(const rdma_cm_event& event) {
  const rdma_cm_id* id = event.id;
  switch (event.event) {
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return id != nullptr && connections().is_established(id) && is_masked(*id);
    case RDMA_CM_EVENT_DISCONNECTED:
      return connections().is_told_gone(id);
    default:
      return false;
  }
}

// A listener is removed with its device. Programs that learn of it end, with all their connections.
bool is_postponed(const rdma_cm_event& event) {
  return event.event == RDMA_CM_EVENT_DEVICE_REMOVAL && event.id != nullptr &&
         connections().postpone_end(event.id, is_masked);
}

// rsockets ask for events on their own: their thread polls the channel and must then get an event
// at once. The event stays in the stock library's memory and is acknowledged as usual.
void make_harmless(rdma_cm_event& event) {
  event.event = RDMA_CM_EVENT_ADDR_CHANGE;
  event.status = 0;
}

// A program that made its channel non-blocking calls again by itself.
bool blocks(const rdma_event_channel* channel) {
  const int flags = fcntl(channel->fd, F_GETFL);
  return flags >= 0 && (flags & O_NONBLOCK) == 0;
}

// A timeout for poll(): milliseconds, rounded up.
int until(Connections::Clock::time_point due) {
  if (due == Connections::Clock::time_point::max()) return -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(due - Connections::Clock::now()).count();
  return static_cast<int>(std::max<decltype(left)>(left, 0));
}

// Waits until the kernel or we have an event. `own` becomes our event, or nullptr. Returns false if
// the call is to fail with errno.
bool await(rdma_event_channel* channel, rdma_cm_event** own) {
  if (layer.on_peer_gone == nullptr) return true;  // we have no events
  if (!blocks(channel)) {
    *own = connections().take(channel);
    return true;
  }
  const Connections::Waiter waiter(connections(), channel);
  for (;;) {
    *own = connections().take(channel);
    if (*own != nullptr) return true;
    pollfd fds[] = {{channel->fd, POLLIN, 0}, {waiter.fd(), POLLIN, 0}};
    if (!wait_readable(fds, 2, until(connections().next_due(channel)))) return false;
    if (fds[0].revents != 0) return true;
    waiter.clear();
  }
}

void told(const rdma_cm_event& event, bool by_stock) try {
  // Each connection has an event before it has a QP, so the callback is set in time.
  if (layer.on_peer_gone != nullptr) layer.on_peer_gone(peer_gone);
  connections().told(event, by_stock, has_left);
} catch (const std::bad_alloc&) {
  // The program has its event; the layer will just hide nothing of this connection.
}

}  // namespace

int get_event(const Stock& stock, rdma_event_channel* channel, rdma_cm_event** event,
              bool by_stock) try {
  if (event == nullptr) return stock.get_event(channel, event);
  for (;;) {
    rdma_cm_event* own = nullptr;
    if (!await(channel, &own)) return -1;
    if (own != nullptr) {
      *event = own;
      return 0;
    }
    // A hidden event must not stay in the caller's hands when the next try fails.
    rdma_cm_event* told_by_kernel = nullptr;
    const int error = stock.get_event(channel, &told_by_kernel);
    if (error != 0) return error;
    const bool hidden = is_hidden(*told_by_kernel);
    if (hidden) connections().hidden(*told_by_kernel);
    if (!by_stock && (hidden || is_postponed(*told_by_kernel))) {
      stock.ack_event(told_by_kernel);
      continue;
    }
    if (hidden) {
      make_harmless(*told_by_kernel);
    } else {
      told(*told_by_kernel, by_stock);
    }
    *event = told_by_kernel;
    return 0;
  }
} catch (const std::bad_alloc&) {  // and nothing else: the thread may be cancelled in here
  errno = ENOMEM;
  return -1;
}

int ack_event(const Stock& stock, rdma_cm_event* event) {
  return event != nullptr && connections().acknowledge(event) ? 0 : stock.ack_event(event);
}

// When the NIC of a connection is gone, the kernel reports the end of the connection after a minute
// or never; and the peer's word about it would by now find no QP here.
int disconnect(const Stock& stock, rdma_cm_id* id) try {
  const auto ending = connections().ending(id, has_left);
  if (!ending.is_ours) return stock.disconnect(id);
  // In that case the stock library waits for the event before it returns.
  if (ending.is_synchronous) connections().gone(id);
  const int error = stock.disconnect(id);
  const bool is_removed = ending.is_removed || errno == ENXIO || errno == ENODEV || errno == EIO;
  if (error != 0) {
    if (ending.is_synchronous) connections().acknowledge(connections().take(id->channel));
    if (!is_removed) return error;
  }
  if (!ending.is_synchronous) connections().gone(id);
  return 0;
} catch (const std::bad_alloc&) {
  errno = ENOMEM;
  return -1;
}

int migrate_id(const Stock& stock, rdma_cm_id* id, rdma_event_channel* channel) {
  const int error = stock.migrate_id(id, channel);
  if (error == 0) connections().migrated(id, channel == nullptr);
  return error;
}

namespace {

// A synchronous call leaves its event in the id, and the stock library acknowledges it when the id
// is destroyed.
void forget(rdma_cm_id* id) {
  if (connections().acknowledge(id->event)) id->event = nullptr;
  connections().forget(id);
}

}  // namespace

int destroy_id(const Stock& stock, rdma_cm_id* id) {
  forget(id);
  return stock.destroy_id(id);
}

void destroy_ep(const Stock& stock, rdma_cm_id* id) {
  forget(id);
  stock.destroy_ep(id);
}

}  // namespace shift::cm
