// What the members' devices say (ibv_get_async_event), in the application's terms. Called on the
// control thread; the functions take the locks that they need.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>

namespace shift::group {

struct Context;

// Takes all that the member's device has to say, and acknowledges it. `is_unprotected`: about a QP
// or an SRQ that is the application's own on the default NIC.
void events_take(
    Context& context, int member,
    const std::function<void(const ibv_async_event& event, bool is_unprotected)>& take);

// The event is about one of the layer's own QPs, which stands for nothing of the application's.
bool is_about_own_qp(Context& context, const ibv_async_event& event);

// LAST_WQE_REACHED: the member's QP takes no more shared receives.
void last_receive_taken(Context& context, int member, const ibv_qp* real);

// SRQ_LIMIT_REACHED, which the application is told once per arming, from whichever member runs low
// first.
void shared_queue_low(Context& context, int member, const ibv_async_event& event);

// Gives an event of the default NIC to the application, with its own object named in it, unless the
// object is none of the application's or the event would show a masked fault (C9). Of a QP that met
// a request which an application got wrong, `request_refused` is told the group's serial.
void event_give(Context& context, const ibv_async_event& event, bool is_unprotected,
                const std::function<void(uint64_t serial)>& request_refused);

}  // namespace shift::group
