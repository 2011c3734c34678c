// The asynchronous events of every context's NICs: what they mean for the NIC, and which of them
// the application is given. Control loop only.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "control/nic_watch.h"
#include "group/group.h"
#include "net/loop.h"

namespace shift::control {

// What the events are about.
class NicEventSink {
 public:
  // Some group of the context is protected: an event of the NIC would show a fault that it masks.
  virtual bool masks_faults(const group::Context* context) = 0;
  // A request was refused for what an application got wrong. With locks of group/ held: the group
  // can be looked for afterwards.
  virtual void request_refused(uint64_t serial) = 0;

 protected:
  ~NicEventSink() = default;
};

class NicEvents {
 public:
  NicEvents(net::Loop& loop, NicWatch& nics, NicEventSink& sink)
      : loop_(loop), nics_(nics), sink_(sink) {}

  void context_add(group::Context* context);
  void context_forget(group::Context* context);

  // The member's device said this. `is_unprotected`: about a QP or an SRQ that is the application's
  // own on the default NIC.
  void take(group::Context* context, int member, const ibv_async_event& event, bool is_unprotected);
  // Gives an event of the default NIC to the application, unless it would show a masked fault (C9).
  void give(group::Context* context, const ibv_async_event& event, bool is_unprotected);

 private:
  net::Loop& loop_;
  NicWatch& nics_;
  NicEventSink& sink_;
};

}  // namespace shift::control
