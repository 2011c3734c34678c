// Tells by the type of an asynchronous event what kind of object the event names
// (ibv_get_async_event(3)).
#pragma once

#include <infiniband/verbs.h>

namespace shift {

enum class EventNames { kPort, kCq, kQp, kSrq, kWq };

// An unknown type counts as one that names a port, so that no object is read from the event.
constexpr EventNames event_names(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return EventNames::kCq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return EventNames::kQp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return EventNames::kSrq;
    case IBV_EVENT_WQ_FATAL:
      return EventNames::kWq;
    default:
      return EventNames::kPort;
  }
}

}  // namespace shift
