// What peers say. Everything in it comes from a stranger (C11): a message that does not fit the
// group's role, epoch or path changes nothing.
#include <algorithm>
#include <utility>
#include <variant>

#include "control/coordinator.h"
#include "group/keys.h"
#include "util/log.h"

namespace shift::control {

using fsm::EpochIs;
using fsm::Event;
using fsm::State;
using group::Detector;
using group::Group;

struct MessageVisitor {
  Coordinator& self;
  PeerChannel* channel;

  template <typename Message>
  void operator()(const Message& message) const {
    self.on(channel, message);
  }
};

void Coordinator::on_message(PeerChannel* channel, const wire::Message& message) {
  std::visit(MessageVisitor{*this, channel}, message);
}

void Coordinator::on(PeerChannel* channel, const wire::Bind& message) {
  Binding* binding = addressee(channel, message.from, message.to);
  if (binding == nullptr) {
    return refuse(channel, message.to, message.from, message.epoch, wire::RefuseReason::kGone);
  }
  const size_t members = message.members.size();
  if (members == 0 || members > group::kMembersMax) return;
  if (!proof_fits(*binding, message)) {
    SHIFT_WARN_LIMITED("qp 0x%x: a peer could not prove that it owns qp 0x%x; ignored",
                       binding->group->qpn(), message.from.qpn);
    return;
  }
  // The process that is found at the peer's address need not be the one that was there before.
  binding->channel_proven = true;
  if (binding->over) {
    // It may have ended while nobody could be told. What the peer says again now is answered, by
    // one whom it can believe.
    if (channel_set(*binding, channel) != channel) send_bind(*binding);
    return;
  }
  binding->group->life.control.asks_responder = (message.flags & wire::Bind::kAsksResponder) != 0;
  const bool had_channel = channel_set(*binding, channel) != nullptr;
  const bool was_proven = binding->peer_proven;
  // Later ones are followed by a Members, which says it.
  if (!was_proven) {
    binding->book.peer_members_set(static_cast<int>(members), message.members_up);
  }
  binding->peer_ips.clear();
  for (const wire::Gid& gid : message.members) {
    if (const auto ip = gid.ipv4()) binding->peer_ips.push_back(*ip);
  }
  channel_widen(*binding);
  binding->book.ready_clean();
  if (!had_channel || (!was_proven && !binding->group->life.control.is_leader)) repeat(*binding);
  if (!was_proven) peer_found(*binding);
  tend(*binding);
}

void Coordinator::on(PeerChannel* channel, const wire::Offer& message) {
  Binding* binding = proven_addressee(channel, message.from, message.to);
  if (binding == nullptr) return;
  if (binding->group->life.control.is_leader && !binding->is_self) return;
  offer_take(*binding, message);
}

void Coordinator::on(PeerChannel* channel, const wire::Accept& message) {
  Binding* binding = proven_addressee(channel, message.from, message.to);
  if (binding == nullptr || !binding->group->life.control.is_leader) return;
  if (message.status == wire::Accept::kAccepted &&
      (message.address.mtu < IBV_MTU_256 || message.address.mtu > IBV_MTU_4096)) {
    return;
  }
  attempt_accepted(*binding, message);
}

void Coordinator::on(PeerChannel* channel, const wire::Ready& message) {
  Binding* binding = proven_addressee(channel, message.from, message.to);
  if (binding == nullptr || binding->is_self) return;
  Group& group = *binding->group;
  if (group.life.control.is_leader) {
    const bool awaited = binding->attempt &&
                         binding->attempt->stage == Binding::Attempt::Stage::kAsked &&
                         binding->attempt->generation == message.generation;
    using Outcome = Binding::Attempt::Outcome;
    const bool ready = message.kind == wire::Ready::Kind::kReady;
    if (awaited) return attempt_end(*binding, ready ? Outcome::kReady : Outcome::kBroken);
    // One that was ready has lost what it needs over there.
    const bool known = std::ranges::any_of(binding->book.all_ready(), [&](const auto& known_ready) {
      return known_ready.path == message.path && known_ready.generation == message.generation;
    });
    if (message.kind != wire::Ready::Kind::kBroken || !known) return;
    binding->book.ready_drop(message.path);
    return tend(*binding);
  }
  if (!binding->book.exists(message.path, false)) return;
  const auto& qp = binding->qps[message.path.follower];
  if (!qp.connected || qp.path != message.path || qp.generation != message.generation) return;
  if (message.kind == wire::Ready::Kind::kReady) return spare_ready(*binding);
  if (message.kind != wire::Ready::Kind::kAsk) return;
  if (!group.life.members[message.path.follower].can_send) {
    // Neither end sends: there is nothing to lose on that path, and nothing to try it with.
    wire::Ready answer{group.life.ends.local, group.life.ends.remote, message.path,
                       message.generation, wire::Ready::Kind::kReady};
    channel->send(answer);
    return;
  }
  if (qp.tried == message.generation) {
    // A late copy: the path may be in use by now, and a probe on it would be the application's.
    channel->send(wire::Ready{group.life.ends.local, group.life.ends.remote, message.path,
                              message.generation, qp.answer});
    return;
  }
  if (binding->asked) {
    // The leader has given that one up; but copies overtake.
    if (!generation_is_newer(message.generation, binding->asked->generation)) return;
    group.life.members[binding->asked->path.follower].probe = group::Probe::kNone;
    control_.timer_cancel(std::exchange(binding->probe_poll, 0));
  }
  binding->asked = message;
  probe_post(*binding, message.path.follower);
  probe_check(*binding);
}

void Coordinator::on(PeerChannel* channel, const wire::Members& message) {
  Binding* binding = proven_addressee(channel, message.from, message.to);
  if (binding == nullptr) return;
  // An older word must not undo a newer one.
  if (static_cast<int32_t>(message.seq - binding->members_heard) <= 0) return;
  binding->members_heard = message.seq;
  binding->book.peer_up_set(message.up);
  binding->book.ready_clean();
  for (auto& [key, link] : links_) {
    if (std::get<1>(key) == binding->group->life.ends.remote.gid) link.not_before = {};
  }
  tend(*binding);
}

void Coordinator::on(PeerChannel* channel, const wire::Drain& message) {
  Binding* binding = proven_addressee(channel, message.from, message.to);
  if (binding == nullptr) return;
  Group& group = *binding->group;
  if (message.epoch != group.life.control.epoch) return feed(*binding, Event::kPeerMessageStale);
  if (group.life.control.is_leader) {
    if (message.kind != wire::Drain::Kind::kDone || message.attempt != binding->drain_attempt) {
      return;
    }
    binding->peer_drained = true;  // watch_drain() sees it
    return;
  }
  switch (message.kind) {
    case wire::Drain::Kind::kAsk:
      // A copy of one that was called off; or asked for on the best path, where nothing is better.
      if (static_cast<int32_t>(message.attempt - binding->drain_cancelled) <= 0) return;
      if (group.life.path.member == group::kDefault &&
          group.life.path.peer_member == group::kDefault)
        return;
      binding->drain_attempt = message.attempt;
      return feed_answer(*binding, message.epoch, Event::kPeerDrain);
    case wire::Drain::Kind::kCancel:
      // A late copy of an older one must not unpark us: the leader may begin the round on the
      // strength of the Drained that the newest attempt has drawn.
      if (static_cast<int32_t>(message.attempt - binding->drain_attempt) < 0) return;
      binding->drain_cancelled = message.attempt;
      return feed_answer(*binding, message.epoch, Event::kPeerDrainCancel);
    case wire::Drain::Kind::kDone:
      return;
  }
}

void Coordinator::on(PeerChannel* channel, const wire::Switch& message) {
  Binding* binding = addressee(channel, message.from, message.to);
  if (binding == nullptr) {
    return refuse(channel, message.to, message.from, message.epoch, wire::RefuseReason::kGone);
  }
  if (!is_proven(*binding, channel)) return;
  switch (fsm::compare_epoch(message.epoch, binding->group->life.control.epoch)) {
    case EpochIs::kNext:
      if (message.reason == wire::Switch::kFault) binding->by_fault = true;
      return feed_answer(*binding, message.epoch, Event::kPeerSwitchNext,
                         {"the peer left the path", Detector::kPeer});
    case EpochIs::kCurrent:
      return feed_answer(*binding, message.epoch, Event::kPeerSwitchCurrent);
    case EpochIs::kStale:
      return feed(*binding, Event::kPeerMessageStale);
  }
}

void Coordinator::on(PeerChannel* channel, const wire::Progress& message) {
  Binding* binding = addressee(channel, message.from, message.to);
  if (binding == nullptr) {
    return refuse(channel, message.to, message.from, message.epoch, wire::RefuseReason::kGone);
  }
  if (!is_proven(*binding, channel)) return;
  Group& group = *binding->group;
  const EpochIs is = fsm::compare_epoch(message.epoch, group.life.control.epoch);
  if (is == EpochIs::kStale) return feed(*binding, Event::kPeerMessageStale);
  Event event;
  if (group.life.control.is_leader) {
    // The follower's answers ours: same epoch, same target.
    const bool fits = is == EpochIs::kCurrent && message.target == binding->target &&
                      message.generation == binding->target_generation;
    event = fits ? Event::kPeerProgressCurrent : Event::kPeerMessageStale;
  } else if (!binding->book.exists(message.target, false)) {
    event = Event::kPeerMessageStale;
  } else {
    event = is == EpochIs::kNext ? Event::kTargetNext : Event::kTargetCurrent;
  }
  binding->heard = message;
  feed_answer(*binding, message.epoch, event, {"the peer left the path", Detector::kPeer});
  binding->heard.reset();
}

void Coordinator::on(PeerChannel* channel, const wire::KeyQuery& message) {
  Binding* binding = proven_addressee(channel, message.from, message.to);
  if (binding == nullptr || message.member >= binding->group->context->member_count) return;
  answer_keys(*binding, message, true);
}

// At once unless a region that is asked for is still being registered: the worker may be at a large
// one for seconds. Else behind that.
void Coordinator::answer_keys(Binding& binding, const wire::KeyQuery& message, bool may_wait) {
  if (binding.channel == nullptr) return;
  Group& group = *binding.group;
  wire::KeyReply reply{
      group.life.ends.local, group.life.ends.remote, message.query_id, message.member, {}};
  for (uint32_t rkey : message.rkeys) {
    wire::KeyPair pair{rkey, 0, false};
    const auto state =
        group::exported_key(*group.context, message.member, group.pd, rkey, &pair.new_rkey);
    if (state == group::KeyState::kPending && may_wait) {
      return behind_worker(binding,
                           [this, message](Binding& later) { answer_keys(later, message, false); });
    }
    pair.found = state == group::KeyState::kReady;
    reply.keys.push_back(pair);
  }
  binding.channel->send(reply);
}

void Coordinator::on(PeerChannel* channel, const wire::KeyReply& message) {
  Binding* binding = proven_addressee(channel, message.from, message.to);
  if (binding == nullptr || message.query_id != binding->query_id ||
      message.member >= group::kMembersMax) {
    return;
  }
  Group& group = *binding->group;
  {
    std::lock_guard lock(group.send.mutex);
    for (const wire::KeyPair& pair : message.keys) {
      if (pair.found) group.life.remote_keys[message.member][pair.rkey] = pair.new_rkey;
    }
  }
  if (!binding->query_pending) return;  // asked in advance, nobody waits
  for (uint32_t rkey : group::rkeys_missing(group)) {
    const bool denied = std::ranges::any_of(
        message.keys, [&](const wire::KeyPair& pair) { return pair.rkey == rkey; });
    if (denied) return key_denied(*binding);
  }
  control_.timer_cancel(std::exchange(binding->key_deadline, 0));
  binding->query_pending = false;
  if (group.life.control.state == State::kResuming) return feed(*binding, Event::kKeysReady);
  pump(*binding);
}

// The key is as unknown there as it would be to the default NIC: the application's error.
void Coordinator::key_denied(Binding& binding) {
  Group& group = *binding.group;
  {
    group::CqLock lock(group);
    if (group.life.errors.original.status == IBV_WC_SUCCESS) {
      group.life.errors.original.status = IBV_WC_REM_ACCESS_ERR;
      group.life.errors.original.vendor_err = 0x88;
    }
  }
  binding.query_pending = false;
  binding.refuse_reason = wire::RefuseReason::kKeyMissing;
  feed(binding, Event::kReplayRefused, "the peer does not know a memory key");
}

void Coordinator::on(PeerChannel* channel, const wire::Refuse& message) {
  Binding* binding = proven_addressee(channel, message.from, message.to);
  if (binding == nullptr) return;
  // Before the first round nothing was asked that could be refused, but a Bind that came too early.
  const bool current =
      message.epoch != 0 &&
      fsm::compare_epoch(message.epoch, binding->group->life.control.epoch) == EpochIs::kCurrent;
  // A peer that is gone may be so because all was done: late copies of our own messages draw this
  // answer, too. It weighs what its Close does.
  const Event event = !current                                      ? Event::kPeerMessageStale
                      : message.reason == wire::RefuseReason::kGone ? Event::kPeerClosed
                                                                    : Event::kPeerRefused;
  feed(*binding, event, "the peer cannot move this QP");
}

void Coordinator::on(PeerChannel* channel, const wire::Close& message) {
  Binding* binding = proven_addressee(channel, message.from, message.to);
  if (binding == nullptr) return;
  feed(*binding, Event::kPeerClosed, "the peer's application closed its QP");
}

}  // namespace shift::control
