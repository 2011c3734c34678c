// How the ways are made that are probed: at this end, and for a peer that offers one.
#include <optional>
#include <utility>

#include "control/late_nics.h"
#include "control/nic_watch.h"
#include "control/prober.h"
#include "control/sessions.h"
#include "group/command_threads.h"
#include "group/context.h"
#include "util/planted.h"

namespace shift::control {

using group::Context;
using group::ProbeQp;
using std::chrono::milliseconds;

namespace {

// How often a peer may make an offer for the same way.
constexpr milliseconds kOfferPause{200};

// Start PSNs need not be secret; those of a new attempt are just far from the last one's.
uint32_t psn_of(uint32_t number, bool is_near) {
  constexpr uint32_t kStep = 0x9e3779;
  return (number * kStep + (is_near ? 0 : 0x5000)) & 0xffffff;
}

bool is_mtu(uint8_t mtu) {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096;
}

}  // namespace

// ---- making a way

template <typename Job, typename Then2>
void Prober::run(const WayName& name, int member, Job job, Then2 then) {
  late_.expect();
  Context* context = name.peer.context;
  const uint32_t number = ways_[name].number;
  // The context is let go after the QP that `job` holds.
  const auto task = [held = group::Held(context), this, name, number, job, then] {
    auto result = job();
    loop_.call_soon([this, name, number, then, result = std::move(result)] {
      const auto found = ways_.find(name);
      if (found == ways_.end() || found->second.number != number) return;
      if (found->second.state != State::kMaking) return;
      then(found->second, result);
    });
  };
  if (!group::on_nic(*context, member, task)) fail(name, ways_[name]);
}

void Prober::make(const WayName& name, OwnWay& way) {
  Context& context = *name.peer.context;
  const uint8_t up = nics_.up(&context);
  const bool is_up = (up >> name.from & 1) != 0 && (!name.is_local() || (up >> name.to & 1) != 0);
  const Session* session = name.is_local() ? nullptr : speaker(name.peer);
  wire::Gid gid;
  if (!name.is_local() && session != nullptr)
    gid = nics_.address_of_member(session->group, name.from);
  else if (name.is_local() && !context.members[name.from].gids.empty())
    gid = context.members[name.from].gids.front();
  way.number = next_number_++;
  if (!is_up || gid == wire::Gid{} || is_drained(name)) return fail(name, way);
  way.state = State::kMaking;
  way.own = {};
  way.own.gid = gid;
  way.own.psn = psn_of(way.number, true);
  way.near = std::make_shared<ProbeQp>(context, name.from);
  run(
      name, name.from,
      [qp = way.near, own = way.own] {
        wire::QpAddress made = own;
        return qp->make(made) ? std::optional(made) : std::nullopt;
      },
      [this, name](OwnWay& made, const std::optional<wire::QpAddress>& own) {
        if (!own) return fail(name, made);
        made.own = *own;
        near_made(name, made);
      });
}

void Prober::near_made(const WayName& name, OwnWay& way) {
  if (!name.is_local()) {
    const Session* session = speaker(name.peer);
    if (session == nullptr) return fail(name, way);
    way.state = State::kOffered;
    way.since = loop_.now();
    session->search.send(wire::Probe{session->ends.local, session->ends.remote,
                                     wire::Probe::Kind::kOffer, static_cast<uint8_t>(name.from),
                                     static_cast<uint8_t>(name.to), way.number,
                                     wire::Probe::Result::kNothing, way.own});
    return tend_soon();
  }
  Context& context = *name.peer.context;
  if (context.members[name.to].gids.empty()) return fail(name, way);
  wire::QpAddress far;
  far.gid = context.members[name.to].gids.front();
  far.psn = psn_of(way.number, false);
  way.far = std::make_shared<ProbeQp>(context, name.to);
  run(
      name, name.to,
      [qp = way.far, far, own = way.own] {
        wire::QpAddress made = far;
        const bool is_made = qp->make(made) && qp->connect(made, own, false);
        return is_made ? std::optional(made) : std::nullopt;
      },
      [this, name](OwnWay& made, const std::optional<wire::QpAddress>& address) {
        if (!address) return fail(name, made);
        far_made(name, made, *address);
      });
}

void Prober::far_made(const WayName& name, OwnWay& way, const wire::QpAddress& far) {
  run(
      name, name.from, [qp = way.near, own = way.own, far] { return qp->connect(own, far, true); },
      [this, name](OwnWay& made, bool is_connected) {
        if (!is_connected) return fail(name, made);
        connected(name, made);
      });
}

// The first probe shows whether there is such a way at all.
void Prober::connected(const WayName& name, OwnWay& way) {
  if (SHIFT_PLANT(ways_untried)) {
    way.state = State::kReady;
    return tend_soon();
  }
  if (!way.near->post()) return fail(name, way);
  way.state = State::kTrying;
  way.since = loop_.now();
  look();
}

// ---- what peers say

// Any session with the peer can speak for the way.
Session* Prober::speaker(const PeerNics& peer) const {
  return sessions_.find_if([&peer](const Session& session) {
    return session.group.context == peer.context && session.search.channel() == peer.channel &&
           session.ends.remote.gid == peer.gid && session.search.is_proven_on(peer.channel) &&
           !session.over;
  });
}

void Prober::take(Session& session, const wire::Probe& message) {
  using Kind = wire::Probe::Kind;
  if (message.kind == Kind::kOffer) return offer_take(session, message);
  const WayName name{{session.group.context, session.search.channel(), session.ends.remote.gid},
                     message.peer,
                     message.own};
  const auto found = ways_.find(name);
  if (found == ways_.end() || found->second.state != State::kOffered) return;
  OwnWay& way = found->second;
  if (message.number != way.number) return;
  const bool is_good = message.kind == Kind::kAccept && is_mtu(message.address.mtu) &&
                       session.search.owns(message.address.gid);
  if (!is_good) return fail(name, way);
  way.state = State::kMaking;
  far_made(name, way, message.address);
}

void Prober::offer_take(Session& session, const wire::Probe& offer) {
  Context* context = session.group.context;
  if (offer.peer >= context->member_count || !is_mtu(offer.address.mtu) || session.over) return;
  const WayName name{
      {context, session.search.channel(), session.ends.remote.gid}, offer.peer, offer.own};
  wire::Probe reply{
      session.ends.local, session.ends.remote, wire::Probe::Kind::kRefuse,    offer.peer,
      offer.own,          offer.number,        wire::Probe::Result::kNothing, {}};
  const wire::Gid gid = nics_.address_of_member(session.group, offer.peer, offer.address.gid);
  const bool has_room = answers_.contains(name) || answers_.size() < kAnswersMax;
  if (!has_room || gid == wire::Gid{} || !session.search.owns(offer.address.gid) ||
      !nics_.is_up(context, offer.peer)) {
    return session.search.send(reply);
  }
  Answer& answer = answers_[name];
  // A peer that offers all the time gets no more of this end's time than that.
  if (answer.is_busy || loop_.now() < answer.not_before) return;
  answer.not_before = loop_.now() + kOfferPause;
  answer.is_busy = true;
  answer.number = offer.number;
  if (answer.qp == nullptr) answer.qp = std::make_shared<ProbeQp>(*context, offer.peer);
  wire::QpAddress own;
  own.gid = gid;
  own.psn = psn_of(offer.number, false);
  late_.expect();
  const auto task = [held = group::Held(context), this, name, reply, own, qp = answer.qp,
                     peer = offer.address] {
    wire::QpAddress made = own;
    const bool is_made = qp->make(made) && qp->connect(made, peer, false);
    loop_.call_soon([this, name, is_made, made, reply] {
      const auto found = answers_.find(name);
      if (found == answers_.end()) return;
      found->second.is_busy = false;
      Session* now = speaker(name.peer);
      if (now == nullptr) return;
      wire::Probe said = reply;
      said.from = now->ends.local;
      said.to = now->ends.remote;
      if (is_made) said.kind = wire::Probe::Kind::kAccept;
      if (is_made) said.address = made;
      now->search.send(said);
    });
  };
  if (!group::on_nic(*context, offer.peer, task)) answer.is_busy = false;
}

}  // namespace shift::control
