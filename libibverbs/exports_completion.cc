// Exported verbs on completion channels and queues, and on asynchronous events.
#include "stock.h"
#include "util/event_names.h"

using shift::front::stock;
namespace ops = shift::ops;

SHIFT_EXPORT ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  return ops::owns(context) ? ops::create_comp_channel(context)
                            : stock.create_comp_channel(context);
}

SHIFT_EXPORT int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  return ops::owns(channel->context) ? ops::destroy_comp_channel(channel)
                                     : stock.destroy_comp_channel(channel);
}

SHIFT_EXPORT ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context,
                                   ibv_comp_channel* channel, int comp_vector) {
  return ops::owns(context) ? ops::create_cq(context, cqe, cq_context, channel, comp_vector)
                            : stock.create_cq(context, cqe, cq_context, channel, comp_vector);
}

SHIFT_EXPORT int ibv_resize_cq(ibv_cq* cq, int cqe) {
  return ops::owns(cq->context) ? ops::resize_cq(cq, cqe) : stock.resize_cq(cq, cqe);
}

SHIFT_EXPORT int ibv_destroy_cq(ibv_cq* cq) {
  return ops::owns(cq->context) ? ops::destroy_cq(cq) : stock.destroy_cq(cq);
}

SHIFT_EXPORT int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  return ops::owns(channel->context) ? ops::get_cq_event(channel, cq, cq_context)
                                     : stock.get_cq_event(channel, cq, cq_context);
}

SHIFT_EXPORT void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
  ops::owns(cq->context) ? ops::ack_cq_events(cq, count) : stock.ack_cq_events(cq, count);
}

SHIFT_EXPORT int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  return ops::owns(context) ? ops::get_async_event(context, event)
                            : stock.get_async_event(context, event);
}

namespace {

// The context of the object that an event names; null for events of a port or device.
ibv_context* event_context(const ibv_async_event& event) {
  switch (shift::event_names(event.event_type)) {
    case shift::EventNames::kCq:
      return event.element.cq->context;
    case shift::EventNames::kQp:
      return event.element.qp->context;
    case shift::EventNames::kSrq:
      return event.element.srq->context;
    case shift::EventNames::kWq:
      return event.element.wq->context;
    case shift::EventNames::kPort:
      break;
  }
  return nullptr;
}

}  // namespace

SHIFT_EXPORT void ibv_ack_async_event(ibv_async_event* event) {
  ibv_context* context = event_context(*event);
  if (context == nullptr) return stock.ack_async_event(event);
  ibv_context* virtual_context = ops::owns(context) ? context : ops::context_above(context);
  virtual_context != nullptr ? ops::ack_async_event(virtual_context, event)
                             : stock.ack_async_event(event);
}
