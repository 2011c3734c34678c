// The leader makes paths ready: Offer, Accept, a probe, Ready. Beside the machine; it is told of
// what it asked for (kPathReady) and of what is better than the path it has (kBetterPath).
#include <algorithm>

#include "control/connecting.h"
#include "control/coordinator.h"
#include "util/config.h"
#include "util/log.h"

namespace shift::control {

using fsm::Event;
using fsm::State;
using group::Group;
using std::chrono::milliseconds;
using Stage = Binding::Attempt::Stage;
using Outcome = Binding::Attempt::Outcome;

namespace {

// At a time, of all groups: more would only wait for each other, in the workers of both ends.
constexpr int kAttemptsMax = 32;
constexpr milliseconds kPauseMin{20}, kPauseMax{10'000};
// While nothing works at all, nobody has time for long pauses.
constexpr milliseconds kPauseSeeking{100};

}  // namespace

void Coordinator::tend(Binding& binding) {
  Group& group = *binding.group;
  const State state = group.life.control.state;
  if (!group.life.control.is_leader || binding.over || !binding.peer_proven ||
      binding.channel == nullptr) {
    return;
  }
  if (state != State::kActive && state != State::kSeeking) return;
  if (binding.trade.wanted && !binding.book.works(*binding.trade.wanted)) trade_end(binding);
  if (state == State::kActive) better_check(binding);
  if (binding.attempt || group.life.control.state != state) return;
  if (state == State::kSeeking && !binding.trade.wanted) {
    // Kept while a better one was tried.
    if (const auto* ready = binding.book.best_ready()) return path_take(binding, *ready);
  }
  const Time now = control_.now();
  Time again = Time::max();
  const auto usable_link = [&](PathName path) -> const Link& { return link_of(binding, path); };
  auto path = state == State::kSeeking ? binding.trade.wanted : std::nullopt;
  if (!path) path = binding.book.next(now, binding.serial, usable_link, &again);
  if (path && link_of(binding, *path).not_before > now) {
    again = link_of(binding, *path).not_before;  // of the wanted one: the peer was busy
    path.reset();
  }
  if (path) {
    if (attempt_may_start(binding)) attempt_start(binding, *path);
    return;
  }
  if (again == Time::max()) return;
  control_.timer_cancel(binding.tend_again);
  binding.tend_again = later(binding, again - now, [this](Binding& b) {
    b.tend_again = 0;
    tend(b);
  });
}

bool Coordinator::attempt_may_start(Binding& binding) {
  if (attempts_ < kAttemptsMax) return true;
  if (binding.group->life.control.state == State::kSeeking) {
    // Before those that have a path, also if it waited as one of them.
    if (std::exchange(binding.waits_for_turn, true)) std::erase(attempts_waiting_, binding.serial);
    attempts_waiting_.push_front(binding.serial);
  } else if (!std::exchange(binding.waits_for_turn, true)) {
    attempts_waiting_.push_back(binding.serial);
  }
  return false;
}

void Coordinator::attempts_next() {
  // Each at most once: who cannot use its turn, and wants another, comes after the others.
  for (size_t left = attempts_waiting_.size(); left > 0 && attempts_ < kAttemptsMax; left--) {
    Binding* binding = find(attempts_waiting_.front());
    attempts_waiting_.pop_front();
    if (binding == nullptr) continue;
    binding->waits_for_turn = false;
    tend(*binding);
  }
}

// The peer has to answer. How long our own worker takes says nothing about the path.
void Coordinator::attempt_watch(Binding& binding, Outcome if_silent) {
  auto& attempt = *binding.attempt;
  control_.timer_cancel(attempt.timeout);
  const auto most =
      binding.group->life.control.state == State::kSeeking ? kAttemptMax : 2 * kAttemptMax;
  attempt.timeout = later(binding, most, [this, if_silent](Binding& b) {
    b.attempt->timeout = 0;
    // Meanwhile another path gets its turn.
    Link& link = link_of(b, b.attempt->path);
    link.not_before = std::max(link.not_before, control_.now() + kPauseSeeking);
    attempt_end(b, if_silent);
  });
}

void Coordinator::attempt_start(Binding& binding, PathName path) {
  Group& group = *binding.group;
  auto& qp = binding.qps[path.leader];
  if (!qp.made || qp.busy) return;  // tend() comes again when the worker is done
  Link& link = link_of(binding, path);
  link.trying = binding.serial;
  binding.book.ready_drop(path);
  binding.attempt.emplace();
  attempts_++;
  auto& attempt = *binding.attempt;
  attempt.path = path;
  attempt.generation = binding.next_generation++;
  qp.connected = false;
  qp.busy = true;
  at_worker(
      binding,
      [path, gid = own_gid(group, path, path.leader)](Group& g) {
        NewAddress result;
        result.error = group::member_qp_address(g, path.leader, gid, &result.address);
        return result;
      },
      [this, path, generation = attempt.generation](Binding& b, const NewAddress& result) {
        auto& own = b.qps[path.leader];
        own.busy = false;
        if (!b.attempt || b.attempt->generation != generation) return tend(b);
        if (result.error != 0) return attempt_end(b, Outcome::kBroken);
        own.address = result.address;
        own.path = path;
        own.generation = generation;
        attempt_send(b);
      });
  SHIFT_DEBUG("qp 0x%x: trying path %u-%u, generation %u", group.qpn(), path.leader, path.follower,
              attempt.generation);
}

void Coordinator::attempt_accepted(Binding& binding, const wire::Accept& message) {
  if (!binding.attempt || binding.attempt->generation != message.generation ||
      binding.attempt->path != message.path || binding.attempt->stage != Stage::kOffered) {
    return;
  }
  if (message.status == wire::Accept::kBusy) {
    // It is on its way out of that path, as we are: nothing is wrong with the link.
    return attempt_end(binding, Outcome::kUndecided);
  }
  if (message.status != wire::Accept::kAccepted) return attempt_end(binding, Outcome::kBroken);
  binding.attempt->stage = Stage::kConnecting;
  control_.timer_cancel(std::exchange(binding.attempt->timeout, 0));
  auto& qp = binding.qps[message.path.leader];
  qp.busy = true;
  at_worker(
      binding,
      [member = message.path.leader, own = qp.address, peer = message.address](Group& g) {
        return group::member_qp_connect(g, member, own, peer);
      },
      [this, path = message.path, generation = message.generation](Binding& b, int error) {
        b.qps[path.leader].busy = false;
        attempt_connected(b, generation, error);
        tend(b);
      });
}

void Coordinator::attempt_connected(Binding& binding, uint32_t generation, int error) {
  if (!binding.attempt || binding.attempt->generation != generation) return;
  Group& group = *binding.group;
  auto& attempt = *binding.attempt;
  if (error != 0) {
    SHIFT_DEBUG("qp 0x%x: path %u-%u cannot be connected: errno %d", group.qpn(),
                attempt.path.leader, attempt.path.follower, error);
    return attempt_end(binding, Outcome::kBroken);
  }
  binding.qps[attempt.path.leader].connected = true;
  if (group.life.members[attempt.path.leader].can_send) {
    attempt.stage = Stage::kProbing;
    probe_post(binding, attempt.path.leader);
    binding.probe_poll = later(binding, {}, [this](Binding& b) { probe_check(b); });
    return;
  }
  probe_ask(binding);  // our application only receives
}

// The peer sends its own data on that path, too, if its application sends any.
void Coordinator::probe_ask(Binding& binding) {
  auto& attempt = *binding.attempt;
  // One QP plays both parts: it has just tried.
  if (binding.is_self) return attempt_end(binding, Outcome::kReady);
  attempt.stage = Stage::kAsked;
  if (binding.channel == nullptr) return attempt_end(binding, Outcome::kBroken);
  attempt_send(binding);
}

// What the attempt's stage wants of the peer, and for how long. Also once more, should the
// connection have been lost on which it was asked: the peer knows copies.
void Coordinator::attempt_send(Binding& binding) {
  if (!binding.attempt) return;
  const Group& group = *binding.group;
  const auto& attempt = *binding.attempt;
  const auto& own = binding.qps[attempt.path.leader];
  if (attempt.stage == Stage::kOffered && own.generation == attempt.generation) {
    // A peer that is only slow must not bring the link into disrepute with all groups.
    attempt_watch(binding, Outcome::kUndecided);
    if (binding.channel == nullptr) return;
    binding.channel->send(wire::Offer{group.life.ends.local, group.life.ends.remote, attempt.path,
                                      attempt.generation, own.address});
  } else if (attempt.stage == Stage::kAsked) {
    attempt_watch(binding, Outcome::kBroken);
    binding.channel->send(wire::Ready{group.life.ends.local, group.life.ends.remote, attempt.path,
                                      attempt.generation, wire::Ready::Kind::kAsk});
  }
}

void Coordinator::attempt_end(Binding& binding, Outcome outcome) {
  Group& group = *binding.group;
  const Binding::Attempt attempt = *binding.attempt;
  // A NIC of it went down after the probe had passed.
  if (outcome == Outcome::kReady && !binding.book.works(attempt.path)) outcome = Outcome::kBroken;
  binding.attempt.reset();
  attempts_--;
  control_.timer_cancel(attempt.timeout);
  // Not at once: whoever ends this one may be about to forget the group.
  if (!attempts_waiting_.empty()) control_.call_soon([this] { attempts_next(); });
  Link& link = link_of(binding, attempt.path);
  if (link.trying == binding.serial) link.trying = 0;
  const Time now = control_.now();
  const bool is_wanted = attempt.path == binding.trade.wanted;
  if (outcome == Outcome::kUndecided) {
    link.not_before = std::max(link.not_before, now + milliseconds(1));
  } else if (outcome == Outcome::kBroken) {
    const auto most = group.life.control.state == State::kSeeking ? kPauseSeeking : kPauseMax;
    link.not_before = now + std::min<std::chrono::nanoseconds>(
                                kPauseMin * (1 << std::min(link.failures, 10)), most);
    link.failures++;
    SHIFT_DEBUG("qp 0x%x: path %u-%u does not work, %d failures", group.qpn(), attempt.path.leader,
                attempt.path.follower, link.failures);
  }
  if (outcome != Outcome::kReady) {
    binding.qps[attempt.path.leader].connected = false;
    if (is_wanted && outcome == Outcome::kBroken) trade_end(binding);
    tend(binding);
    return tend_others(binding);
  }
  const bool was_broken = std::exchange(link.failures, 0) > 0;
  link.not_before = link.trade_not_before = {};
  binding.book.ready_add(attempt.path, attempt.generation,
                         now + milliseconds(std::max(config().failback_ms, 0)));
  if (binding.channel != nullptr) {
    binding.channel->send(wire::Ready{group.life.ends.local, group.life.ends.remote, attempt.path,
                                      attempt.generation, wire::Ready::Kind::kReady});
  }
  spare_ready(binding);
  if (group.life.control.state == State::kSeeking) {
    trade_end(binding);
    path_take(binding, {attempt.path, attempt.generation, {}});
  }
  if (was_broken) tend_others(binding);
  tend(binding);
}

// Who seeks goes on with it.
void Coordinator::path_take(Binding& binding, const PathBook::Ready& ready) {
  binding.target = ready.path;
  binding.target_generation = ready.generation;
  feed(binding, Event::kPathReady);
}

// The other groups of a link that was broken have waited for the one that tried it.
void Coordinator::tend_others(const Binding& binding) {
  for (auto& [serial, other] : bindings_) {
    if (other.get() != &binding && other->group->context == binding.group->context) tend(*other);
  }
}

// The first path beside the default: a fault will not have to wait for one.
void Coordinator::spare_ready(Binding& binding) {
  if (std::exchange(binding.armed, true)) return;
  const Group& group = *binding.group;
  watch_arm(binding);  // the other members' CQs are there by now
  SHIFT_EVENT("armed", {{"qp", group.qpn()},
                        {"device", group.context->device->dev.name},
                        {"peer_qp", group.life.ends.remote.qpn}});
}

Link& Coordinator::link_of(const Binding& binding, PathName path) {
  return links_[{binding.group->context, binding.group->life.ends.remote.gid, path}];
}

}  // namespace shift::control
