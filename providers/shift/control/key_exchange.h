// Asks the peer, by KeyQuery, for the memory keys that a session's requests need on another path.
// Lets requests go on that were parked because a key, or a registration, was missing. Each session
// has one key exchange, which only the control loop uses.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "control/budget.h"
#include "control/input.h"
#include "net/timer.h"
#include "wire/messages.h"

namespace shift::control {

class Jobs;

class KeyExchange {
 public:
  // An application may have deregistered many regions that its peer still names. To guess 2^24 keys
  // at this rate takes two days.
  static constexpr Budget::Rate kMisses{4096, 100};
  // Why a group fails that is_left_waiting().
  static constexpr const char* kNobodyAnswers = "nobody answers for a memory key any more";

  // `next_query`: the number of the next KeyQuery of this process, which all sessions count on.
  KeyExchange(Session& session, net::Loop& loop, Machine& machine, Jobs& jobs, uint32_t& next_query)
      : session_(session),
        loop_(loop),
        machine_(machine),
        jobs_(jobs),
        next_query_(next_query),
        misses_(loop, kMisses),
        deadline_(loop),
        go_on_again_(loop) {}

  // Asks for the keys that are needed, for the first time in a round also for others that may be of
  // use, and returns whether the round, or a request that was posted since, needs any of them
  // before it can go on.
  bool ask();
  // Asks again what may have been lost.
  void say_again();
  // A round begins. The peer's keys are asked for anew: its NIC may have given the number of a key
  // to another region since, and the error of a request that named the old one began this round.
  void forget();
  // Takes the peer's answer.
  void take(const wire::KeyReply& message);
  // The peer's application has deregistered regions. Forgets their keys, so that they are asked for
  // anew when they are needed, and says so.
  void take(const wire::KeysGone& message);
  // Answers the peer's question: at once, unless a region that it names is still being registered,
  // which may take seconds. In that case the answer follows what the command thread has to do by
  // now. Only the newest question waits: the peer takes no answer to an older one.
  void answer(const wire::KeyQuery& message) { answer(message, true); }

  // Requests wait in the send queue for a key, for a registration, or for nothing any more.
  void pump_wanted();
  // The session is over. True: a request waits for a key that nobody will translate, so the group
  // is to fail (C6). Registrations go on.
  [[nodiscard]] bool is_left_waiting();
  // The application has been given an error of the path, whose QP is in ERR: gives that QP what
  // waits, to be flushed.
  void flush();

 private:
  void answer(const wire::KeyQuery& message, bool may_wait);
  void answer_later(const wire::KeyQuery& message);
  void denied();
  void pump();
  void refuse(const char* cause);
  void deadline_look();
  void await_registration();

  Session& session_;
  net::Loop& loop_;
  Machine& machine_;
  Jobs& jobs_;
  uint32_t& next_query_;
  Budget misses_;  // keys that the peer asked for and nobody has
  // The peer's question that waits for a registration, and whether it came when an older one waited
  // already: then what the older one waited for is not enough.
  std::optional<wire::KeyQuery> waiting_;
  bool is_newer_ = false;
  uint32_t query_id_ = 0;
  int asked_member_ = 0;
  // The keys that the last question named, and whether the peer has said since that they are gone.
  // Nothing else is taken from an answer (C11).
  std::unordered_map<uint32_t, bool> asked_;
  bool pending_ = false;  // requests wait for the answer
  // Later questions name no key in advance: a program that registers memory anew all the time names
  // many that are gone, and the peer would soon answer none.
  bool asks_in_advance_ = true;
  bool registering_ = false;  // requests wait for a registration
  // Bounds the wait while no round is under way, whose own deadline would bound it.
  net::Timer deadline_;
  Time waiting_since_{};
  net::Timer go_on_again_;
};

}  // namespace shift::control
