// Takes the members' asynchronous events (ibv_get_async_event) and passes them on in the
// application's terms. Called on the control thread; the functions take the locks that they need.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>

namespace shift::group {

struct Context;
struct Group;

// Takes all events that wait at the member's device, and acknowledges them. `is_unprotected`: the
// event is about an unprotected QP or SRQ, which the application uses directly on the default NIC.
void events_take(
    Context& context, int member,
    const std::function<void(const ibv_async_event& event, bool is_unprotected)>& take);

// Whether the event is about one of the layer's own QPs, which stand for no QP of the application.
bool is_about_own_qp(Context& context, const ibv_async_event& event);

// LAST_WQE_REACHED: the member's QP takes no more shared receives.
void last_receive_taken(Context& context, int member, const ibv_qp* real);

// Handles SRQ_LIMIT_REACHED. The application gets it once each time it has armed the limit, from
// the first member that runs low.
void shared_queue_low(Context& context, int member, const ibv_async_event& event);

// Gives an event of the default NIC to the application, with the application's object in it. Two
// kinds are not given: events of objects that the application does not know, and events that would
// show a masked fault (C9).
void event_give(Context& context, const ibv_async_event& event, bool is_unprotected);
// Gives an event of the group's QP to the application, unless that QP is gone. The group may be
// gone, too: `serial` says in which life it was.
void event_give_of(Context& context, const Group& group, uint64_t serial,
                   const ibv_async_event& event);

}  // namespace shift::group
