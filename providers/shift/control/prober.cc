#include "control/prober.h"

#include <algorithm>
#include <optional>
#include <utility>

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
// How long the peer may take to answer an offer.
constexpr milliseconds kOfferPatience{2000};
// A probe that passes is back within microseconds. One that needs half of what the NIC gives to one
// that fails may have met the end of a fault.
constexpr milliseconds kLate{15};
// By then the NIC has given up by any reading of the standard (four times the timeout for each
// try), if it works at all.
constexpr milliseconds kNoAnswer{150};
constexpr milliseconds kProbesPause{1};

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
  if (name.from == name.to && name.is_local()) return;
  if (!name.is_local() && !peers_.contains(name.peer.channel)) {
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

bool Prober::is_drained(const WayName& name) const {
  if (SHIFT_PLANT(drained_probed)) return false;
  const uint8_t own = orders_.drained(name.peer.context);
  const Session* session = name.is_local() ? nullptr : speaker(name.peer);
  const uint8_t far = name.is_local() ? own : session != nullptr ? session->book.peer_avoided() : 0;
  return (own >> name.from & 1) != 0 || (far >> name.to & 1) != 0;
}

// ---- what comes of an attempt

void Prober::fail(const WayName& name, OwnWay& way) {
  SHIFT_EVENT("way", {{"device", name.peer.context->name(name.from)},
                      {"to", name.to},
                      {"across", !name.is_local()},
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
  if (is_waiting) look_.start(kProbesPause, [this] { look(); });
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
                          {"across", !name.is_local()},
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
    if (!name.is_local()) peers_.insert(name.peer.channel);
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
    const bool is_at_it = name.from == member || (name.is_local() && name.to == member);
    if (name.peer.context != context || !is_at_it || way.state == State::kAway) continue;
    away(name, way);
    way.not_before = loop_.now() + kCalm;
  }
  tend_soon();
}

}  // namespace shift::control
