#include "group/device_events.h"

#include <algorithm>

#include "group/context.h"
#include "group/locked.h"
#include "group/shared_queue.h"
#include "group/stock.h"
#include "util/event_names.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::group {
namespace {

bool names_qp(ibv_event_type type) {
  return event_names(type) == EventNames::kQp;
}

Group* group_of(Context& context, int member, const ibv_qp* real) {
  std::lock_guard lock(context.mutex);
  for (Group* group : context.groups) {
    if (group->real[member] == real) return group;
  }
  return nullptr;
}

bool is_unprotected(Context& context, int member, const ibv_async_event& event) {
  if (member != kDefault) return false;
  if (names_qp(event.event_type)) {
    return !is_about_own_qp(context, event) &&
           group_of(context, member, event.element.qp) == nullptr;
  }
  if (event_names(event.event_type) != EventNames::kSrq) return false;
  std::lock_guard lock(context.mutex);
  return std::ranges::none_of(context.srqs, [&](const SharedQueue* queue) {
    return queue->members[kDefault].real == event.element.srq;
  });
}

void raise(Context& context, const ibv_async_event& event) {
  if (context.events.raise(event, true)) return;
  SHIFT_WARN_LIMITED("%s: the application does not read its events; one is lost",
                     context.device->dev.name);
}

// Puts the group's QP into the event. False: the application does not know this QP, or must not see
// the event (C9). The caller holds the context's mutex.
bool name_group(Context& context, ibv_async_event* event) {
  const ibv_event_type type = event->event_type;
  for (Group* group : context.groups) {
    if (group->real[kDefault] != event->element.qp) continue;
    event->element.qp = group->handle();
    return !is_protected(*group) ||
           (type != IBV_EVENT_QP_FATAL && type != IBV_EVENT_QP_LAST_WQE_REACHED);
  }
  return false;
}

// Puts the application's object in the place of the default NIC's. False and the lock: as with
// name_group().
bool name_for_application(Context& context, ibv_async_event* event) {
  if (names_qp(event->event_type)) return name_group(context, event);
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
      for (CompletionQueue* cq : context.cqs) {
        if (cq->real[kDefault] != event->element.cq) continue;
        event->element.cq = &cq->cq;
        return true;
      }
      return false;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      for (SharedQueue* queue : context.srqs) {
        if (queue->members[kDefault].real != event->element.srq) continue;
        event->element.srq = &queue->srq;
        return true;
      }
      return false;
    default:
      return true;
  }
}

}  // namespace

void events_take(Context& context, int member,
                 const std::function<void(const ibv_async_event&, bool)>& take) {
  ibv_async_event event;
  while (stock->get_async_event(context.members[member].real, &event) == 0) {
    take(event, is_unprotected(context, member, event));
    // The layer acknowledges the event even if the application holds the NIC's object itself: it
    // may never read the event, and a thread that destroys the object would wait for ever. It does
    // so only after take(), so that all events of an object are queued, and can be dropped, when
    // the object is gone.
    stock->ack_async_event(&event);
  }
}

bool is_about_own_qp(Context& context, const ibv_async_event& event) {
  if (!names_qp(event.event_type)) return false;
  std::lock_guard lock(context.mutex);
  return std::ranges::find(context.own_qps, event.element.qp) != context.own_qps.end();
}

void last_receive_taken(Context& context, int member, const ibv_qp* real) {
  // The lock is for an application that destroys the group meanwhile.
  std::lock_guard in_hand(context.event_mutex);
  if (Group* group = group_of(context, member, real)) receives_last_taken(*group, member);
}

void shared_queue_low(Context& context, int member, const ibv_async_event& event) {
  std::lock_guard lock(context.mutex);
  for (SharedQueue* queue : context.srqs) {
    if (queue->members[member].real != event.element.srq) continue;
    if (!queue->limit_armed.exchange(false)) return;
    ibv_async_event out = event;
    out.element.srq = &queue->srq;
    return raise(context, out);
  }
}

void event_give(Context& context, const ibv_async_event& event, bool is_unprotected) {
  ibv_async_event out = event;
  // The lock is held until the event is queued: a thread that destroys the object first takes it
  // off the lists, and then drops its events.
  std::lock_guard lock(context.mutex);
  if (!is_unprotected && !name_for_application(context, &out)) return;
  raise(context, out);
}

void event_give_of(Context& context, const Group& group, uint64_t serial,
                   const ibv_async_event& event) {
  ibv_async_event out = event;
  std::lock_guard lock(context.mutex);  // as in event_give()
  const auto found = std::ranges::find(context.groups, &group);
  if (found == context.groups.end()) return;
  if ((*found)->life.serial != serial && !SHIFT_PLANT(event_of_another)) return;
  out.element.qp = (*found)->handle();
  raise(context, out);
}

}  // namespace shift::group
