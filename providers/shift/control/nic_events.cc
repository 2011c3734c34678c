#include "control/nic_events.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include "group/context.h"
#include "group/device_events.h"
#include "group/stock.h"
#include "util/log.h"

namespace shift::control {

using group::Context;
using group::kDefault;

void NicEvents::context_add(Context* context) {
  for (int m = 0; m < context->member_count; m++) {
    const int fd = context->members[m].real->async_fd;
    if (fd < 0) continue;                         // a simulated device has no descriptor
    if (context->members[m].is_deputy) continue;  // the other member's context tells it, too
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    (void)loop_.add_fd(fd, EPOLLIN, [this, context, m](uint32_t) {
      group::events_take(*context, m, [&](const ibv_async_event& event, bool is_unprotected) {
        take(context, m, event, is_unprotected);
      });
    });
  }
}

void NicEvents::context_forget(Context* context) {
  for (int m = 0; m < context->member_count; m++) {
    const int fd = context->members[m].real->async_fd;
    if (fd >= 0 && !context->members[m].is_deputy) loop_.remove_fd(fd);
  }
}

void NicEvents::take(Context* context, int member, const ibv_async_event& event,
                     bool is_unprotected) {
  const char* name = context->name(member);
  SHIFT_DEBUG("%s: event: %s", name, stock->event_type_str(event.event_type));
  SHIFT_EVENT("device_event",
              {{"device", name}, {"type", stock->event_type_str(event.event_type)}});
  if (group::is_about_own_qp(*context, event)) return;
  switch (event.event_type) {
    case IBV_EVENT_DEVICE_FATAL:
      context->members[member].dead = true;
      nics_.device_died(context, member);
      break;
    case IBV_EVENT_PORT_ERR:
      nics_.port_down(context, member);
      break;
    case IBV_EVENT_PORT_ACTIVE:
      nics_.port_up(context, member);
      break;
    case IBV_EVENT_GID_CHANGE:
      nics_.gids_changed(context, member);
      break;
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      group::last_receive_taken(*context, member, event.element.qp);
      break;
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      if (!is_unprotected) return group::shared_queue_low(*context, member, event);
      break;
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      if (member == kDefault && !is_unprotected && sink_.request_refused(context, event)) return;
      break;
    default:
      break;
  }
  if (member == kDefault) give(context, event, is_unprotected);
}

void NicEvents::give(Context* context, const ibv_async_event& event, bool is_unprotected) {
  switch (event.event_type) {
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_GID_CHANGE:
      if (sink_.masks_faults(context)) return;
      break;
    default:
      break;
  }
  group::event_give(*context, event, is_unprotected);
}

}  // namespace shift::control
