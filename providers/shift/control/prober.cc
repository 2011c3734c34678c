#include "control/prober.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "control/late_nics.h"
#include "control/nic_watch.h"
#include "control/orders.h"
#include "control/sessions.h"
#include "group/command_threads.h"
#include "group/context.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::control {

using group::Context;
using group::ProbeQp;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

// A program that ends at once needs no ways, and while there are faults nothing is made.
constexpr milliseconds kCalm{1000};
// After a failure the next attempt waits for so long, and twice as long after each further one.
constexpr seconds kRest{1}, kRestMax{256};
// How long the peer may take to answer an offer, and how often it may make one for the same way.
constexpr milliseconds kOfferPatience{2000}, kOfferPause{200};
// A probe that passes is back within microseconds. One that needs half of what the NIC gives to one
// that fails may have met the end of a fault.
constexpr milliseconds kLate{15};
// By then the NIC has given up by any reading of the standard (four times the timeout for each
// try), if it works at all.
constexpr milliseconds kNoAnswer{150};
constexpr milliseconds kPause{1};

// Start PSNs need not be secret; those of a new attempt are just far from the last one's.
uint32_t psn_of(uint32_t number, bool is_near) {
  constexpr uint32_t kStep = 0x9e3779;
  return (number * kStep + (is_near ? 0 : 0x5000)) & 0xffffff;
}

bool is_local(const WayName& name) {
  return name.peer.channel == nullptr;
}

bool is_mtu(uint8_t mtu) {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096;
}

}  // namespace

// ---- which ways there are

void Prober::want(const WayName& name) {
  const auto found = ways_.find(name);
  if (found != ways_.end()) {
    // Traffic is on a path again: what failed before may work by now.
    OwnWay& way = found->second;
    if (way.state != State::kAway) return;
    way.failures = 0;
    way.not_before = std::min(way.not_before, loop_.now() + kCalm);
    return tend_soon();
  }
  if (ways_.size() >= kWaysMax) return;
  if (name.from == name.to && is_local(name)) return;
  if (!is_local(name) && !peers_.contains(name.peer.channel)) {
    if (peers_.size() >= kPeersMax) return;
    peers_.insert(name.peer.channel);
  }
  ways_[name].not_before = loop_.now() + kCalm;
  tend_soon();
}

bool Prober::is_ready(const WayName& name) const {
  const auto found = ways_.find(name);
  return found != ways_.end() && found->second.state == State::kReady;
}

void Prober::pause() {
  pause_until_ = loop_.now() + kCalm;
}

bool Prober::is_making() const {
  return std::ranges::any_of(ways_, [](const auto& entry) {
    return entry.second.state == State::kMaking || entry.second.state == State::kOffered;
  });
}

void Prober::tend_soon() {
  std::optional<Time> next;
  const bool is_free = !is_making();
  for (const auto& [name, way] : ways_) {
    const bool is_waiting = is_free && way.state == State::kAway;
    if (!is_waiting && way.state != State::kOffered) continue;
    const Time at =
        is_waiting ? std::max(way.not_before, pause_until_) : way.since + kOfferPatience;
    if (!next || at < *next) next = at;
  }
  if (next) tend_.start_at(*next, [this] { tend(); });
}

// One way is made at a time, so that the command threads always have time for others.
void Prober::tend() {
  const Time now = loop_.now();
  for (auto& [name, way] : ways_)
    if (way.state == State::kOffered && now >= way.since + kOfferPatience) fail(name, way);
  if (now >= pause_until_ && !is_making()) {
    for (auto& [name, way] : ways_) {
      if (way.state != State::kAway || way.not_before > now) continue;
      make(name, way);
      if (way.state != State::kAway) break;
    }
  }
  tend_soon();
}

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

bool Prober::is_drained(const WayName& name) const {
  if (SHIFT_PLANT(drained_probed)) return false;
  const uint8_t own = orders_.drained(name.peer.context);
  const Session* session = is_local(name) ? nullptr : speaker(name.peer);
  const uint8_t far = is_local(name) ? own : session != nullptr ? session->book.peer_avoided() : 0;
  return (own >> name.from & 1) != 0 || (far >> name.to & 1) != 0;
}

void Prober::make(const WayName& name, OwnWay& way) {
  Context& context = *name.peer.context;
  const uint8_t up = nics_.up(&context);
  const bool is_up = (up >> name.from & 1) != 0 && (!is_local(name) || (up >> name.to & 1) != 0);
  const Session* session = is_local(name) ? nullptr : speaker(name.peer);
  wire::Gid gid;
  if (!is_local(name) && session != nullptr)
    gid = nics_.address_of_member(session->group, name.from);
  else if (is_local(name) && !context.members[name.from].gids.empty())
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
  if (!is_local(name)) {
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

void Prober::fail(const WayName& name, OwnWay& way) {
  SHIFT_EVENT("way", {{"device", name.peer.context->name(name.from)},
                      {"to", name.to},
                      {"across", !is_local(name)},
                      {"ready", false}});
  const auto rest = std::min<seconds>(kRest * (1 << std::min(way.failures, 8)), kRestMax);
  way.failures++;
  away(name, way);
  way.not_before = loop_.now() + rest;
  tend_soon();
}

void Prober::away(const WayName& name, OwnWay& way) {
  way.state = State::kAway;
  way.number = 0;
  drop(name.peer.context, name.from, std::exchange(way.near, nullptr));
  drop(name.peer.context, name.to, std::exchange(way.far, nullptr));
  for (const Then& then : std::exchange(way.waiting, {})) then(Trial::kNone);
}

// The QP is destroyed behind all that the command thread still has to do with it.
void Prober::drop(Context* context, int member, Qp qp) {
  if (qp == nullptr) return;
  (void)group::on_nic(*context, member,
                      [held = group::Held(context), qp = std::move(qp)]() mutable { qp.reset(); });
}

// ---- probing

void Prober::probe(const WayName& name, Then then) {
  const auto found = ways_.find(name);
  if (found == ways_.end()) return then(Trial::kNone);
  OwnWay& way = found->second;
  if (is_drained(name)) return then(Trial::kNone);
  if (way.state == State::kReady) {
    // Whoever meets the same fault shares the probe.
    way.state = State::kProbing;
    way.since = loop_.now();
    if (!way.near->post()) {
      fail(name, way);
      return then(Trial::kNone);
    }
  }
  if (way.state != State::kProbing) return then(Trial::kNone);
  way.waiting.push_back(std::move(then));
  look();
}

void Prober::look() {
  const Time now = loop_.now();
  // What an answer leads to may change the ways.
  std::vector<WayName> probed;
  for (const auto& [name, way] : ways_)
    if (way.state == State::kTrying || way.state == State::kProbing) probed.push_back(name);
  bool is_waiting = false;
  for (const WayName& name : probed) {
    const auto found = ways_.find(name);
    if (found == ways_.end()) continue;
    OwnWay& way = found->second;
    const auto answer = way.near->look();
    if (answer == ProbeQp::Answer::kNone && now - way.since < kNoAnswer) {
      is_waiting = true;
      continue;
    }
    answered(name, way, answer);
  }
  if (is_waiting) look_.start(kPause, [this] { look(); });
}

void Prober::answered(const WayName& name, OwnWay& way, ProbeQp::Answer answer) {
  const bool is_late = loop_.now() - way.since > kLate;
  const bool is_first = way.state == State::kTrying;
  if (answer == ProbeQp::Answer::kPassed) {
    way.state = State::kReady;
    way.failures = 0;
    if (is_first) {
      SHIFT_EVENT("way", {{"device", name.peer.context->name(name.from)},
                          {"to", name.to},
                          {"across", !is_local(name)},
                          {"ready", true}});
      tend_soon();
    }
    const Trial trial =
        is_late && !SHIFT_PLANT(late_probe_believed) ? Trial::kNone : Trial::kPassed;
    for (const Then& then : std::exchange(way.waiting, {})) then(trial);
    return;
  }
  const auto waiting = std::exchange(way.waiting, {});
  fail(name, way);
  const bool is_lost = answer == ProbeQp::Answer::kFailed || SHIFT_PLANT(silence_believed);
  for (const Then& then : waiting) then(is_lost ? Trial::kFailed : Trial::kNone);
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

// ---- what goes

template <typename Gone>
void Prober::forget(const Gone& is_gone) {
  std::vector<Then> waiting;
  for (auto it = ways_.begin(); it != ways_.end();) {
    if (!is_gone(it->first)) {
      ++it;
      continue;
    }
    for (Then& then : std::exchange(it->second.waiting, {})) waiting.push_back(std::move(then));
    away(it->first, it->second);
    it = ways_.erase(it);
  }
  peers_.clear();
  for (const auto& [name, way] : ways_)
    if (!is_local(name)) peers_.insert(name.peer.channel);
  for (auto it = answers_.begin(); it != answers_.end();) {
    if (!is_gone(it->first)) {
      ++it;
      continue;
    }
    drop(it->first.peer.context, it->first.from, std::move(it->second.qp));
    it = answers_.erase(it);
  }
  for (const Then& then : waiting) then(Trial::kNone);
  tend_soon();
}

void Prober::channel_forget(const net::PeerChannel* channel) {
  forget([channel](const WayName& name) { return name.peer.channel == channel; });
}

void Prober::context_forget(const Context* context) {
  forget([context](const WayName& name) { return name.peer.context == context; });
}

void Prober::nic_changed(const Context* context, int member) {
  for (auto& [name, way] : ways_) {
    const bool is_at_it = name.from == member || (is_local(name) && name.to == member);
    if (name.peer.context != context || !is_at_it || way.state == State::kAway) continue;
    away(name, way);
    way.not_before = loop_.now() + kCalm;
  }
  tend_soon();
}

}  // namespace shift::control
