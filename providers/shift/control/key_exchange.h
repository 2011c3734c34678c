// The peer's memory keys that a session's requests need on another path: asked for by KeyQuery; and
// what was parked for want of them, or of a registration, goes on. One for each session. Control
// loop only.
#pragma once

#include <cstdint>

#include "control/input.h"
#include "net/timer.h"
#include "wire/messages.h"

namespace shift::control {

class Jobs;

class KeyExchange {
 public:
  // `next_query`: the number of this process's next question.
  KeyExchange(Session& session, net::Loop& loop, Machine& machine, Jobs& jobs, uint32_t& next_query)
      : session_(session),
        loop_(loop),
        machine_(machine),
        jobs_(jobs),
        next_query_(next_query),
        deadline_(loop),
        go_on_again_(loop) {}

  // Asks for all keys of use, and returns whether the round, or a request that was posted since,
  // needs any of them before it can go on.
  bool ask();
  // The question may have been lost.
  void say_again();
  // A round begins: what was asked for belongs to the old path.
  void forget();
  // The peer's answer.
  void take(const wire::KeyReply& message);
  // What the peer asks. At once unless a region that is asked for is still being registered: the
  // worker may be at a large one for seconds. Else after that.
  void answer(const wire::KeyQuery& message) { answer(message, true); }

  // Requests wait in the send queue: for a key, for a registration, or for nothing any more.
  void pump_wanted();

 private:
  void answer(const wire::KeyQuery& message, bool may_wait);
  void denied();
  void pump();
  void deadline_look();
  void await_registration();

  Session& session_;
  net::Loop& loop_;
  Machine& machine_;
  Jobs& jobs_;
  uint32_t& next_query_;
  uint32_t query_id_ = 0;
  bool pending_ = false;      // something waits for the answer
  bool registering_ = false;  // something waits for a registration
  // Of what waits while no round is under way whose deadline would bound it.
  net::Timer deadline_;
  Time waiting_since_{};
  net::Timer go_on_again_;
};

}  // namespace shift::control
