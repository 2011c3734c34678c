#include "control/drain.h"

#include "control/session.h"
#include "group/drain.h"
#include "group/keys.h"
#include "util/config.h"

namespace shift::control {

using fsm::Event;
using fsm::State;
using group::Group;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

// What is under way mostly completes within a round trip, so a new drain is looked at often.
constexpr milliseconds kFreshDrain{1};
constexpr microseconds kLookFresh{50}, kLook{200};
// The follower waits for longer, because the leader may begin the round once it has the follower's
// Drained.
constexpr int kFollowerPatience = 4;

}  // namespace

void Drain::watch() {
  own_done_ = peer_done_ = false;
  session_.qps.want_memory();
  const int patience = session_.control.is_leader ? 1 : kFollowerPatience;
  begun_ = loop_.now();
  deadline_ = begun_ + milliseconds(config().drain_ms) * patience;
  look_again_.start({}, [this] { look(); });
}

void Drain::look() {
  Group& group = session_.group;
  if (!fsm::kParked.has(session_.control.state)) return;
  const bool was_done = own_done_;
  // The round that follows would wait for registrations under way, so it does not begin before they
  // are over.
  own_done_ = was_done || (group::is_drained(group) && !group::round_awaits_registration(group));
  if (session_.is_self) peer_done_ = own_done_;
  const bool leader_done = session_.control.is_leader && own_done_ && peer_done_;
  const bool follower_done = !session_.control.is_leader && own_done_ && !was_done;
  if (leader_done) return machine_.feed(session_, {.event = Event::kDrained});
  if (loop_.now() >= deadline_) return machine_.feed(session_, {.event = Event::kDrainTimeout});
  const bool is_fresh = loop_.now() - begun_ < kFreshDrain;
  look_again_.start(is_fresh ? kLookFresh : kLook, [this] { look(); });
  if (follower_done) machine_.feed(session_, {.event = Event::kDrained});
}

void Drain::send_ask() {
  attempt_++;
  send(wire::Drain::Kind::kAsk);
}

void Drain::send(wire::Drain::Kind kind) {
  if (session_.is_self) return;
  session_.search.send(wire::Drain{session_.ends.local, session_.ends.remote,
                                   session_.control.epoch, attempt_, kind});
}

void Drain::say_again() {
  if (session_.control.state == State::kDraining) return send(wire::Drain::Kind::kAsk);
  if (session_.control.state == State::kHeld && own_done_) return send_done();
  // The follower has stayed parked while the channel was down.
  if (session_.control.state == State::kActive && session_.control.is_leader && attempt_ != 0)
    send_cancel();
}

void Drain::take(const wire::Drain& message) {
  const Group& group = session_.group;
  if (session_.control.is_leader) {
    if (message.kind != wire::Drain::Kind::kDone || message.attempt != attempt_) return;
    peer_done_ = true;
    look_again_.start({}, [this] { look(); });
    return;
  }
  switch (message.kind) {
    case wire::Drain::Kind::kAsk:
      // The message may be a copy of an Ask that was called off. And on the default path there is
      // no reason to drain, because no path is better, unless one of its NICs is to be left.
      if (static_cast<int32_t>(message.attempt - cancelled_) <= 0) return;
      if (group.life.path.member == group::kDefault &&
          group.life.path.peer_member == group::kDefault && !session_.book.avoids({0, 0}))
        return;
      attempt_ = message.attempt;
      return machine_.feed(session_, {.event = Event::kPeerDrain, .epoch = message.epoch});
    case wire::Drain::Kind::kCancel:
      // A late copy of an older Cancel must not unpark this end: the leader may begin the round,
      // because the newest Ask has drawn a Drained from this end.
      if (static_cast<int32_t>(message.attempt - attempt_) < 0) return;
      cancelled_ = message.attempt;
      return machine_.feed(session_, {.event = Event::kPeerDrainCancel, .epoch = message.epoch});
    case wire::Drain::Kind::kDone:
      return;
  }
}

}  // namespace shift::control
