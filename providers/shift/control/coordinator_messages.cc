// Handles what peers say. Every message may come from a stranger (C11): a message that does not fit
// the group's role, epoch or path changes nothing.
#include <utility>
#include <variant>

#include "control/coordinator.h"
#include "group/context.h"
#include "util/log.h"

namespace shift::control {

using fsm::EpochIs;
using fsm::Event;
using group::Detector;
using net::PeerChannel;

struct MessageVisitor {
  Coordinator& self;
  PeerChannel* channel;

  template <typename Message>
  void operator()(const Message& message) const {
    self.on(channel, message);
  }
};

namespace {

// Answers a sender when the QP that it names is unknown here, or when it speaks for the peer's QP
// without having proved that it may.
template <typename Message>
void refuse_as_gone(PeerChannel* channel, const Message& message) {
  channel->send(wire::Refuse{message.to, message.from, message.epoch, wire::RefuseReason::kGone});
}

bool is_mtu(uint8_t mtu) {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096;
}

}  // namespace

void Coordinator::on_message(PeerChannel* channel, const wire::Message& message) {
  std::visit(MessageVisitor{*this, channel}, message);
}

bool Coordinator::knows_qp(const wire::QpName& name) {
  return sessions_.find(name) != nullptr;
}

bool Coordinator::expects(const wire::QpName& own, const wire::QpName& peer) {
  const Session* session = sessions_.find(own);
  return session != nullptr && session->ends.remote == peer;
}

// Asked for each message of a burst, when each of a thousand sessions has something to say. So who
// relied on the channel last is asked first.
bool Coordinator::relies_on(const PeerChannel* channel) {
  const auto relies = [channel](const Session& session) {
    return session.search.relies_on(channel);
  };
  const auto known = reliers_.find(channel);
  const Session* session = known == reliers_.end() ? nullptr : sessions_.find(known->second);
  if (session != nullptr && relies(*session)) return true;
  session = sessions_.find_if(relies);
  if (session == nullptr)
    reliers_.erase(channel);
  else
    reliers_[channel] = session->serial;
  return session != nullptr;
}

void Coordinator::on_connection_up(PeerChannel* channel, bool alone) {
  repeats_.connection_up(channel, alone);
}

void Coordinator::say_again(const PeerChannel* channel) {
  sessions_.for_each([channel](Session& session) {
    if (session.search.channel() != channel) return;
    session.say_again();
    session.search.note_host();
    session.offers.host_known();
    session.paths.host_known();
  });
}

// Connected QPs stay connected: they need no channel until their path has to change.
void Coordinator::on_channel_down(PeerChannel* channel) {
  reliers_.erase(channel);
  repeats_.forget(channel);
  locator_.channel_forget(channel);
  sessions_.for_each([&](Session& session) {
    session.search.channel_ends(channel);
    if (session.search.channel() != channel) return;
    session.search.channel_lost();
    session.paths.stop();
    feed(session, {.event = Event::kChannelLost});
  });
}

Session* Coordinator::addressee(PeerChannel* channel, const wire::QpName& from,
                                const wire::QpName& to) {
  Session* session = sessions_.find(to);
  if (session == nullptr || session->ends.remote != from) return nullptr;
  if (!session->search.may_speak(channel)) return nullptr;
  reporter_.touch(*session);
  return session;
}

Session* Coordinator::proven_addressee(PeerChannel* channel, const wire::QpName& from,
                                       const wire::QpName& to) {
  Session* session = addressee(channel, from, to);
  return session != nullptr && session->search.is_proven_on(channel) ? session : nullptr;
}

void Coordinator::on(PeerChannel* channel, const wire::Bind& message) {
  Session* session = addressee(channel, message.from, message.to);
  if (session == nullptr) return refuse_as_gone(channel, message);
  PeerSearch& search = session->search;
  const size_t members = message.members.size();
  if (members == 0 || members > group::kMembersMax) return;
  const PeerSearch::Proof proof = search.proof_of(message);
  if (proof == PeerSearch::Proof::kNothing) return search.keep(channel, message);
  if (proof == PeerSearch::Proof::kWrong) {
    SHIFT_WARN_LIMITED("qp 0x%x: a peer could not prove that it owns qp 0x%x; ignored",
                       session->group.qpn(), message.from.qpn);
    return;
  }
  PeerChannel* const before = search.take_channel(channel);
  if (session->over) {
    // The session may have ended while there was no channel to tell the peer so. The peer repeats
    // its messages now, and needs a Bind to believe the answers of this end.
    if (before != channel) search.send_bind();
    return;
  }
  session->control.asks_responder = (message.flags & wire::Bind::kAsksResponder) != 0;
  session->gone.peer_forgets_set((message.flags & wire::Bind::kForgetsKeys) != 0);
  session->avoidance.peer_heeds_set((message.flags & wire::Bind::kHeedsAvoid) != 0);
  session->peer_probes = (message.flags & wire::Bind::kProbes) != 0;
  const bool was_proven = search.is_proven();
  // The first Bind says which members are up. Later ones are followed by a Members, which says it.
  if (!was_proven) {
    session->book.peer_members_set(static_cast<int>(members), message.members_up);
  }
  if (!was_proven || !session->spread.tells()) {
    search.set_peer_addresses(message.members);
    search.widen();
  }
  session->book.ready_clean();
  if (before == nullptr || (!was_proven && !session->control.is_leader)) session->say_again();
  if (!was_proven) {
    search.set_proven();
    feed(*session, {.event = Event::kBound});
  }
  session->spread.peer_bound(message);
  session->paths.tend();
  locator_.touch(*session);
  search.note_host();  // it writes a file, for which the peer shall not wait
}

void Coordinator::on(PeerChannel* channel, const wire::Offer& message) {
  Session* session = proven_addressee(channel, message.from, message.to);
  if (session == nullptr || (session->control.is_leader && !session->is_self)) return;
  session->offers.take(message);
}

void Coordinator::on(PeerChannel* channel, const wire::Accept& message) {
  Session* session = proven_addressee(channel, message.from, message.to);
  if (session == nullptr || !session->control.is_leader) return;
  if (message.status == wire::Accept::kAccepted && !is_mtu(message.address.mtu)) return;
  session->paths.take(message);
}

void Coordinator::on(PeerChannel* channel, const wire::Ready& message) {
  Session* session = proven_addressee(channel, message.from, message.to);
  if (session == nullptr || session->is_self) return;
  if (session->control.is_leader) return session->paths.take(message);
  session->offers.take(message);
}

void Coordinator::on(PeerChannel* channel, const wire::Members& message) {
  Session* session = proven_addressee(channel, message.from, message.to);
  if (session == nullptr || !session->take_members_sequence(message.seq)) return;
  const bool came_back = (message.up & ~session->book.peer_up()) != 0;
  session->book.peer_up_set(message.up);
  if (came_back) session->redial_soon();
  session->book.ready_clean();
  pairs_.retry(session->ends.remote.gid);
  session->paths.tend();
}

void Coordinator::on(PeerChannel* channel, const wire::Avoid& message) {
  Session* session = proven_addressee(channel, message.from, message.to);
  if (session != nullptr) session->avoidance.take(message);
}

void Coordinator::on(PeerChannel* channel, const wire::Nics& message) {
  Session* session = proven_addressee(channel, message.from, message.to);
  if (session != nullptr) session->spread.take(message);
}

void Coordinator::on(PeerChannel* channel, const wire::Probe& message) {
  Session* session = proven_addressee(channel, message.from, message.to);
  if (session != nullptr) locator_.take(*session, message);
}

void Coordinator::on(PeerChannel* channel, const wire::Drain& message) {
  Session* session = proven_addressee(channel, message.from, message.to);
  if (session == nullptr) return;
  if (message.epoch != session->control.epoch) {
    return feed(*session, {.event = Event::kPeerMessageStale});
  }
  session->drain.take(message);
}

void Coordinator::on(PeerChannel* channel, const wire::Switch& message) {
  Session* session = addressee(channel, message.from, message.to);
  if (session == nullptr) return refuse_as_gone(channel, message);
  if (!session->search.is_proven_on(channel)) return;
  switch (fsm::compare_epoch(message.epoch, session->control.epoch)) {
    case EpochIs::kNext:
      return feed(*session, {.event = Event::kPeerSwitchNext,
                             .cause = {"the peer left the path", Detector::kPeer},
                             .is_peer_fault = message.reason == wire::Switch::kFault,
                             .epoch = message.epoch});
    case EpochIs::kCurrent:
      return feed(*session, {.event = Event::kPeerSwitchCurrent, .epoch = message.epoch});
    case EpochIs::kStale:
      return feed(*session, {.event = Event::kPeerMessageStale});
  }
}

void Coordinator::on(PeerChannel* channel, const wire::Progress& message) {
  Session* session = addressee(channel, message.from, message.to);
  if (session == nullptr) return refuse_as_gone(channel, message);
  if (!session->search.is_proven_on(channel)) return;
  const EpochIs is = fsm::compare_epoch(message.epoch, session->control.epoch);
  if (is == EpochIs::kStale) return feed(*session, {.event = Event::kPeerMessageStale});
  Event event;
  if (session->control.is_leader) {
    // The follower's Progress answers the leader's, so its epoch and its target must be the same.
    const bool fits = is == EpochIs::kCurrent &&
                      Connection{message.target, message.generation} == session->round.target();
    event = fits ? Event::kPeerProgressCurrent : Event::kPeerMessageStale;
  } else if (!session->book.exists(message.target, false)) {
    event = Event::kPeerMessageStale;
  } else {
    event = is == EpochIs::kNext ? Event::kTargetNext : Event::kTargetCurrent;
  }
  feed(*session, {.event = event,
                  .cause = {"the peer left the path", Detector::kPeer},
                  .epoch = message.epoch,
                  .progress = &message});
}

void Coordinator::on(PeerChannel* channel, const wire::KeyQuery& message) {
  Session* session = proven_addressee(channel, message.from, message.to);
  // A peer whose QP is gone, or whose requests cannot arrive any more, needs no key.
  if (session == nullptr || session->over) return;
  if (message.member >= session->group.context->member_count) return;
  session->keys.answer(message);
}

void Coordinator::on(PeerChannel* channel, const wire::KeyReply& message) {
  Session* session = proven_addressee(channel, message.from, message.to);
  if (session != nullptr) session->keys.take(message);
}

void Coordinator::on(PeerChannel* channel, const wire::KeysGone& message) {
  Session* session = addressee(channel, message.from, message.to);
  if (session == nullptr) return refuse_as_gone(channel, message);
  if (session->search.is_proven_on(channel)) session->keys.take(message);
}

void Coordinator::on(PeerChannel* channel, const wire::KeysForgotten& message) {
  Session* session = proven_addressee(channel, message.from, message.to);
  if (session != nullptr) session->gone.take(message);
}

void Coordinator::on(PeerChannel* channel, const wire::Refuse& message) {
  Session* session = proven_addressee(channel, message.from, message.to);
  if (session == nullptr) return;
  // Before the first round (epoch 0), a peer can refuse nothing but a Bind that came too early, and
  // such a Refuse is stale.
  const bool is_current =
      message.epoch != 0 &&
      fsm::compare_epoch(message.epoch, session->control.epoch) == EpochIs::kCurrent;
  // A peer may be gone because its work was done, and late copies of this end's messages draw
  // kGone, too. So a Refuse with kGone counts as a Close.
  const Event event = !is_current                                   ? Event::kPeerMessageStale
                      : message.reason == wire::RefuseReason::kGone ? Event::kPeerClosed
                                                                    : Event::kPeerRefused;
  feed(*session, {.event = event, .cause = "the peer cannot move this QP"});
}

void Coordinator::on(PeerChannel* channel, const wire::Close& message) {
  Session* session = proven_addressee(channel, message.from, message.to);
  if (session == nullptr) return;
  feed(*session, {.event = Event::kPeerClosed, .cause = "the peer's application closed its QP"});
}

}  // namespace shift::control
