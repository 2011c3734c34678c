// Finds errors that no thread of the application may be looking for: those of CQs that it does not
// poll. Only the control loop uses this.
//
// The layer arms a CQ without a completion channel for errors. A CQ with a channel is armed by the
// application alone, and an application that waits for something else (it spins on memory that a
// WRITE will change) polls nothing: neither the application nor the layer would learn that its QP
// broke (C7). So the layer asks for the state of such a QP after the application has stopped
// posting, until the QP's NIC must have given up, if it does. An application that goes on posting
// polls, too, or its queue is full.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "control/nic_pairs.h"
#include "group/group.h"
#include "net/timer.h"

namespace shift::control {

class Jobs;
class Sessions;
struct Session;

// What is remembered of a session whose QP may have to be asked for its state.
struct Unpolled {
  uint64_t posted = 0;     // requests posted by the time of the last look
  bool is_asking = false;  // the NIC has not answered the last look
  Time look_until{};  // when the NIC will have given up what it has not done; not known yet: max
};

class ErrorWatch {
 public:
  ErrorWatch(net::Loop& loop, const Sessions& sessions, Jobs& jobs)
      : loop_(loop), sessions_(sessions), jobs_(jobs), look_again_(loop) {}

  void context_add(group::Context* context);
  void context_forget(group::Context* context);
  // Watches the session's CQs from here on. Has to be called again when the session has more CQs.
  void watch(Session& session);
  // The application could not destroy the queue, which was ending meanwhile.
  void cq_again(group::CompletionQueue& cq);

 private:
  void readable(group::Context* context, int member);
  void look_start();
  void look();
  void ask(Session& session);

  net::Loop& loop_;
  const Sessions& sessions_;
  Jobs& jobs_;
  // CQs that raised an event and are armed again a little later, each with the timer for it, which
  // holds the CQ.
  std::unordered_map<group::CompletionQueue*, net::Loop::TimerId> rearm_;
  net::Timer look_again_;  // runs while there are CQs that only the application arms
};

}  // namespace shift::control
