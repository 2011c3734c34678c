#include "control/locator.h"

#include <algorithm>
#include <utility>

#include "control/nic_watch.h"
#include "control/orders.h"
#include "control/reporter.h"
#include "control/sessions.h"
#include "group/context.h"
#include "group/locked.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::control {

using group::Context;
using group::Detector;
using std::chrono::milliseconds;

namespace {

// Most rounds are over by then.
constexpr milliseconds kRound{2};
// What is noticed later is another fault.
constexpr milliseconds kSame{2000};
constexpr size_t kCasesMax = 64;

int next_to(int member, int members) {
  return members < 2 ? member : (member + 1) % members;
}

// Whether a fault may lie in the NIC, its cable or its port. What NICs say of themselves is taken
// by nic_lost().
bool is_doubtful(Detector detector) {
  switch (detector) {
    case Detector::kCompletion:
    case Detector::kPost:
    case Detector::kPeer:
    case Detector::kNeighbour:
      return true;
    default:
      return false;
  }
}

}  // namespace

// ---- in calm

void Locator::begin() {
  probes_ = true;
  sessions_.for_each([this](Session& session) { touch(session); });
}

void Locator::touch(Session& session) {
  if (!probes_ || session.is_self || session.control.state != fsm::State::kActive) return;
  const auto& path = session.book.current();
  if (!path || !session.search.is_proven()) return;
  const WaysWanted wanted{*path, session.search.channel(), session.book.peer_members()};
  if (session.ways == wanted) return;
  session.ways = wanted;
  Context* context = session.group.context;
  const int own = own_of(session, *path), peers = peers_of(session, *path);
  const int neighbour = next_to(own, context->member_count);
  prober_.want({{context, nullptr, {}}, own, neighbour});
  if (!session.peer_probes || session.search.channel() == nullptr) return;
  const PeerNics peer = peer_of(session);
  const int peers_neighbour = next_to(peers, session.book.peer_members());
  prober_.want({peer, own, peers});
  prober_.want({peer, neighbour, peers});
  prober_.want({peer, own, peers_neighbour});
}

// ---- evidence

Locator::Case* Locator::find(const WayName& name) {
  const auto found =
      std::ranges::find_if(cases_, [&](const Case& one) { return one.name == name; });
  return found == cases_.end() ? nullptr : &*found;
}

// Whether the session is a latecomer: it has been on the path since before the fault was looked at.
bool Locator::is_known(const Session& session, const WayName& name) {
  const Time now = loop_.now();
  const auto is_late = [&](Time begun) {
    return since(session) <= begun && (now < begun + kSame || SHIFT_PLANT(old_case_kept));
  };
  const auto broken = broken_.find(session.group.context->name(name.from));
  if (broken != broken_.end() && is_late(broken->second)) return true;
  Case* one = find(name);
  if (one == nullptr || !is_late(one->begun)) return false;
  // Where nothing has left, there was no fault.
  if (one->is_over) return !one->left.empty();
  one->left.insert(session.serial);
  return true;
}

void Locator::evidence(const Session& session, PathName path, group::Cause cause) {
  if (session.is_self || !session.search.is_proven() || !is_doubtful(cause.detector)) return;
  const WayName name{peer_of(session), own_of(session, path), peers_of(session, path)};
  if (is_known(session, name)) return;
  // A NIC that has said that it is down was told of by nic_lost().
  const Context* context = session.group.context;
  if (((nics_.up(context) | nics_.late(context)) >> name.from & 1) == 0) return;
  if (Case* one = open(session, name, cause)) one->left.insert(session.serial);
}

void Locator::suspect(const std::string& device) {
  constexpr std::chrono::seconds kPause{1};
  Session* const session = sessions_.find_if([&](const Session& one) {
    const auto& path = one.book.current();
    return path && !one.is_self && one.control.state == fsm::State::kActive &&
           one.search.is_proven() && one.group.context->name(own_of(one, *path)) == device;
  });
  if (session == nullptr || !probes_) return;
  const PathName path = *session->book.current();
  const WayName name{peer_of(*session), own_of(*session, path), peers_of(*session, path)};
  const Case* const before = find(name);
  if (before != nullptr && loop_.now() < before->begun + kPause) return;
  Case* const one =
      open(*session, name, {"another process found the NIC broken", Detector::kNeighbour});
  if (one == nullptr) return;
  one->is_hearsay = true;
  start(*one);  // no round is under way that would come first
}

Locator::Case* Locator::open(const Session& session, const WayName& name, group::Cause cause) {
  std::erase_if(cases_, [&](const Case& one) { return one.name == name; });
  if (cases_.size() >= kCasesMax) {
    const auto oldest = std::ranges::find_if(cases_, [](const Case& one) { return one.is_over; });
    if (oldest == cases_.end()) return nullptr;
    cases_.erase(oldest);
  }
  Case& one = cases_.emplace_back(loop_, name, loop_.now());
  one.cause = cause;
  one.own = {name.from, next_to(name.from, session.group.context->member_count)};
  one.peer = {name.to, next_to(name.to, session.book.peer_members())};
  one.device = session.group.context->name(name.from);
  if (const auto word = words_.find(name); word != words_.end()) {
    one.has_waited = loop_.now() <= word->second.heard + kWord;
    if (one.has_waited) one.trials[Way::kPeers] = word->second.trial;
    words_.erase(word);
  }
  // The round comes first.
  one.bound.start(kRound, [this, name] {
    if (Case* found = find(name)) start(*found);
  });
  return &one;
}

void Locator::start(Case& one) {
  prober_.pause();
  const WayName name = one.name;
  const Time begun = one.begun;
  const PeerNics own{name.peer.context, nullptr, {}};
  const std::pair<Way, WayName> ways[] = {
      {Way::kOwn, {own, one.own.nic, one.own.neighbour}},
      {Way::kDirect, name},
      {Way::kInward, {name.peer, one.own.neighbour, one.peer.nic}},
      {Way::kOutward, {name.peer, one.own.nic, one.peer.neighbour}},
  };
  one.bound.start(one.is_hearsay ? kAnswer : kGather, [this, name] {
    Case* const found = find(name);
    if (found == nullptr || found->is_over) return;
    found->is_hearsay ? confirm(*found) : conclude_maybe(*found);
  });
  if (!probes_) return;
  sessions_.for_each([&](Session& other) {
    if (is_on(other, one, Place::kLocal)) one.completed[other.serial] = completed_by(other.group);
  });
  for (const auto& [way, over] : ways) one.probing.insert(way);
  // A probe may be over at once; the case stays until it is concluded, which waits for kGather.
  for (const auto& [way, over] : ways) {
    prober_.probe(over,
                  [this, name, begun, way = way](Trial trial) { tried(name, begun, way, trial); });
  }
}

void Locator::tried(const WayName& name, Time begun, Way way, Trial trial) {
  Case* const one = find(name);
  if (one == nullptr || one->begun != begun) return;
  one->trials[way] = trial;
  one->probing.erase(way);
  if (way == Way::kOwn) tell_peer(*one, trial);
  if (!one->is_over) conclude_maybe(*one);
}

// The peer cannot see how this end's NIC reaches its neighbour.
void Locator::tell_peer(const Case& one, Trial own) {
  const Session* speaker = sessions_.find_if([&one](const Session& session) {
    return peer_of(session) == one.name.peer && session.peer_probes &&
           session.search.is_proven_on(one.name.peer.channel);
  });
  if (speaker == nullptr || one.name.peer.channel == nullptr) return;
  using Result = wire::Probe::Result;
  const auto result = own == Trial::kPassed   ? Result::kPassed
                      : own == Trial::kFailed ? Result::kFailed
                                              : Result::kNothing;
  speaker->search.send(wire::Probe{speaker->ends.local,
                                   speaker->ends.remote,
                                   wire::Probe::Kind::kTold,
                                   static_cast<uint8_t>(one.name.from),
                                   static_cast<uint8_t>(one.name.to),
                                   0,
                                   result,
                                   {}});
}

void Locator::take(Session& session, const wire::Probe& message) {
  if (!probes_ || session.is_self) return;
  if (message.kind != wire::Probe::Kind::kTold) return prober_.take(session, message);
  const WayName name{peer_of(session), message.peer, message.own};
  const Trial trial = message.result == wire::Probe::Result::kPassed   ? Trial::kPassed
                      : message.result == wire::Probe::Result::kFailed ? Trial::kFailed
                                                                       : Trial::kNone;
  Case* const one = find(name);
  if (one == nullptr || one->is_over) {
    std::erase_if(words_, [now = loop_.now()](const auto& entry) {
      return now > entry.second.heard + kWord;
    });
    if (words_.size() < kCasesMax) words_.try_emplace(name, Word{loop_.now(), trial});
    return;
  }
  if (one->has_waited) return;
  one->has_waited = true;
  one->trials[Way::kPeers] = trial;
  conclude_maybe(*one);
}

Time Locator::since(const Session& session) {
  return std::max(session.made, session.round.active_since());
}

uint64_t Locator::completed_by(const group::Group& group) {
  return group.counters.done[0] + group.counters.done[1];
}

// ---- what goes

void Locator::channel_forget(const net::PeerChannel* channel) {
  sessions_.for_each([channel](Session& session) {
    if (session.ways && session.ways->channel == channel) session.ways.reset();
  });
  prober_.channel_forget(channel);
  std::erase_if(cases_, [channel](const Case& one) { return one.name.peer.channel == channel; });
  std::erase_if(words_,
                [channel](const auto& entry) { return entry.first.peer.channel == channel; });
}

void Locator::context_forget(const Context* context) {
  prober_.context_forget(context);
  std::erase_if(cases_, [context](const Case& one) { return one.name.peer.context == context; });
  std::erase_if(words_,
                [context](const auto& entry) { return entry.first.peer.context == context; });
}

}  // namespace shift::control
