// Takes the asynchronous events of every context's NICs: tells the NIC watch what they mean for the
// NIC, and decides which of them the application is given. Only the control loop uses this.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "control/nic_watch.h"
#include "group/group.h"
#include "net/loop.h"

namespace shift::control {

// Knows the groups that the events are about.
class NicEventSink {
 public:
  // Whether some group of the context is protected: an event of the NIC would then show a fault
  // that the group masks.
  virtual bool masks_faults(const group::Context* context) = 0;
  // The QP in the event of the default NIC met a faulty request of an application, if the NIC is to
  // be believed. True: the sink asks the NIC first, and then may give() the event.
  virtual bool request_refused(group::Context* context, const ibv_async_event& event) = 0;

 protected:
  ~NicEventSink() = default;
};

class NicEvents {
 public:
  NicEvents(net::Loop& loop, NicWatch& nics, NicEventSink& sink)
      : loop_(loop), nics_(nics), sink_(sink) {}

  void context_add(group::Context* context);
  void context_forget(group::Context* context);

  // Handles an event of the member's device. `is_unprotected`: the event is about a QP or an SRQ
  // that is the application's own on the default NIC.
  void take(group::Context* context, int member, const ibv_async_event& event, bool is_unprotected);
  // Gives an event of the default NIC to the application, unless it would show a masked fault (C9).
  void give(group::Context* context, const ibv_async_event& event, bool is_unprotected);

 private:
  net::Loop& loop_;
  NicWatch& nics_;
  NicEventSink& sink_;
};

}  // namespace shift::control
