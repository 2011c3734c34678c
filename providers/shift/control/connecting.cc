// The QPs of a group's members: made, connected for a path that the leader has offered, tried by a
// probe; and which members are up.
#include "control/connecting.h"

#include <algorithm>

#include "control/coordinator.h"
#include "group/completion.h"
#include "util/log.h"

namespace shift::control {

using group::Group;
using group::Probe;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using Stage = Binding::Attempt::Stage;
using Outcome = Binding::Attempt::Outcome;

wire::Gid own_gid(const Group& group, PathName path, int member) {
  // The application chose among them. One without an IPv4 address fits those of its kind only, and
  // the other NICs' have one.
  const bool is_original = path == PathName{group::kDefault, group::kDefault};
  if (member == group::kDefault && (is_original || group.life.ends.local.gid.ipv4()))
    return group.life.ends.local.gid;
  const auto& gids = group.context->members[member].gids;
  return gids.empty() ? wire::Gid{} : gids.front();
}

void Coordinator::members_make(Binding& binding) {
  for (int member = 0; member < binding.group->context->member_count; member++) {
    at_worker(
        binding, [member](Group& g) { return group::member_qp_create(g, member); },
        [this, member](Binding& b, int error) {
          if (error != 0) {
            SHIFT_WARN_LIMITED("qp 0x%x on %s cannot move to %s: no QP there (errno %d)",
                               b.group->qpn(), b.group->context->device->dev.name,
                               b.group->context->name(member), error);
            b.book.own_lacks(member);
          } else {
            b.qps[member].made = true;
          }
          tend(b);  // it may have waited for this one
        });
  }
}

// ---- the follower: what it is offered

void Coordinator::offer_take(Binding& binding, const wire::Offer& offer) {
  Group& group = *binding.group;
  const int member = offer.path.follower;
  if (!binding.book.exists(offer.path, group.life.control.is_leader && !binding.is_self) ||
      offer.address.mtu < IBV_MTU_256 || offer.address.mtu > IBV_MTU_4096) {
    return;
  }
  auto& qp = binding.qps[offer.path.follower];
  if (binding.is_self) {
    // One QP plays both parts; the leader's half connects it.
    return attempt_accepted(binding, {group.life.ends.local, group.life.ends.remote, offer.path,
                                      offer.generation, 0, offer.address});
  }
  if (qp.generation == offer.generation && qp.generation != 0) {
    if (qp.connected && qp.path == offer.path)
      offer_answer(binding, offer, wire::Accept::kAccepted);
    return;  // a copy
  }
  if (qp.generation != 0 && !generation_is_newer(offer.generation, qp.generation)) return;
  if (qp.busy) {
    qp.later = offer;
    return;
  }
  // The QP that carries the traffic, as far as we know: the leader must be a round ahead.
  const bool carries = group.life.path.member == member;
  if (carries) return offer_answer(binding, offer, wire::Accept::kBusy);
  if (!qp.made || binding.over || (members_up(group.context) >> member & 1) == 0) {
    return offer_answer(binding, offer, wire::Accept::kRefused);
  }
  qp.busy = true;
  qp.connected = false;
  at_worker(
      binding,
      [offer, gid = own_gid(group, offer.path, offer.path.follower)](Group& g) {
        NewAddress result;
        result.error = group::member_qp_address(g, offer.path.follower, gid, &result.address);
        if (result.error == 0) {
          result.error =
              group::member_qp_connect(g, offer.path.follower, result.address, offer.address);
        }
        return result;
      },
      [this, offer](Binding& b, const NewAddress& result) {
        b.qps[offer.path.follower].address = result.address;
        offer_connected(b, offer, result.error);
      });
}

void Coordinator::offer_connected(Binding& binding, const wire::Offer& offer, int error) {
  auto& qp = binding.qps[offer.path.follower];
  qp.busy = false;
  if (error == 0) {
    qp.connected = true;
    qp.path = offer.path;
    qp.generation = offer.generation;
  } else {
    SHIFT_DEBUG("qp 0x%x: path %u-%u cannot be connected: errno %d", binding.group->qpn(),
                offer.path.leader, offer.path.follower, error);
  }
  if (qp.later) {
    const wire::Offer next = *std::exchange(qp.later, std::nullopt);
    if (generation_is_newer(next.generation, offer.generation)) return offer_take(binding, next);
  }
  offer_answer(binding, offer, error == 0 ? wire::Accept::kAccepted : wire::Accept::kRefused);
}

void Coordinator::offer_answer(Binding& binding, const wire::Offer& offer, uint8_t status) {
  if (binding.channel == nullptr) return;
  wire::Accept answer{offer.to, offer.from, offer.path, offer.generation, status, {}};
  if (status == wire::Accept::kAccepted) {
    answer.address = binding.qps[offer.path.follower].address;
  }
  binding.channel->send(answer);
}

// ---- both: the probe

void Coordinator::probe_post(Binding& binding, int member) {
  Group& group = *binding.group;
  ibv_send_wr wr{}, *bad;
  wr.wr_id = group.tag + group::kProbeTag;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_qp* real = group.real[member];
  group.life.members[member].probe = Probe::kPosted;
  if (real->context->ops.post_send(real, &wr, &bad) == 0) {
    group.life.members[member].own_packets++;
  } else {
    group.life.members[member].probe = Probe::kFailed;
  }
  binding.probe_deadline = control_.now() + kAttemptMax;
}

// Polls for the probe's completion, wherever it was asked for.
void Coordinator::probe_check(Binding& binding) {
  Group& group = *binding.group;
  binding.probe_poll = 0;
  const bool leading = binding.attempt && binding.attempt->stage == Stage::kProbing;
  if (!leading && !binding.asked) return;
  const int m = leading ? binding.attempt->path.leader : binding.asked->path.follower;
  {
    std::lock_guard lock(group.send_cq->mutex);
    // The default's CQ belongs to the application's polling thread while anything is on it.
    if (m != group::kDefault) group::collect_member(*group.send_cq, m);
  }
  if (m == group::kDefault) group::inspect(*group.send_cq);
  const Probe probe = group.life.members[m].probe;
  if (probe == Probe::kPosted && control_.now() < binding.probe_deadline) {
    const auto waited = kAttemptMax - (binding.probe_deadline - control_.now());
    binding.probe_poll =
        later(binding, waited < milliseconds(1) ? microseconds(20) : microseconds(1000),
              [this](Binding& b) { probe_check(b); });
    return;
  }
  group.life.members[m].probe = Probe::kNone;
  if (leading) {
    return probe == Probe::kDone ? probe_ask(binding) : attempt_end(binding, Outcome::kBroken);
  }
  wire::Ready answer = *binding.asked;
  binding.asked.reset();
  std::swap(answer.from, answer.to);
  answer.kind = probe == Probe::kDone ? wire::Ready::Kind::kReady : wire::Ready::Kind::kBroken;
  binding.qps[m].tried = answer.generation;
  binding.qps[m].answer = answer.kind;
  if (binding.channel != nullptr) binding.channel->send(answer);
}

// ---- both: which members are up

uint8_t Coordinator::members_up(const group::Context* context) const {
  const auto up = up_.find(context), linkless = linkless_.find(context);
  if (up == up_.end()) return 0;
  return linkless == linkless_.end() ? up->second
                                     : static_cast<uint8_t>(up->second & ~linkless->second);
}

void Coordinator::members_up_changed(group::Context* context) {
  const uint8_t up = members_up(context);
  for (auto& [serial, binding] : bindings_) {
    if (binding->group->context != context) continue;
    binding->book.own_up_set(up);
    binding->book.ready_clean();
    if (binding->channel != nullptr) {
      binding->channel->send(wire::Members{binding->group->life.ends.local,
                                           binding->group->life.ends.remote, ++members_sequence_,
                                           up});
    }
  }
  // What failed while the link was down deserves another chance at once.
  for (auto& [key, link] : links_) {
    if (std::get<0>(key) == context) link.not_before = {};
  }
  for (auto& [serial, binding] : bindings_) {
    if (binding->group->context == context) tend(*binding);
  }
}

}  // namespace shift::control
