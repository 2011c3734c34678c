// Finding the process behind a remote QP, and what is said again when a connection comes back.
#include <algorithm>
#include <exception>
#include <future>

#include "control/coordinator.h"
#include "net/socket.h"
#include "util/config.h"
#include "util/log.h"
#include "util/uncancellable.h"

namespace shift::control {

using fsm::Event;
using fsm::State;
using group::Group;
using std::chrono::milliseconds;

namespace {

// What helps where a GID holds no IPv4 address.
constexpr char kHowToReach[] =
    " (SHIFT at the peer? UDP to its port must pass as broadcast; or choose a GID index with an "
    "IPv4 address)";

// Behind the question's own bound (GidResolver), so that only a busy machine meets this one.
constexpr milliseconds kAddressPatience(1000);

// Between Binds that are not answered. In the first a peer can answer thousands.
constexpr milliseconds kBindPauseMin(100), kBindPauseMax(1000);

struct Psns {
  bool sends;
  uint32_t sq, rq;
};

Psns psns_of(Group& group) {
  std::lock_guard lock(group.attr_mutex);
  return {(group.life.asked.mask & IBV_QP_SQ_PSN) != 0, group.life.asked.attr.sq_psn,
          group.life.asked.attr.rq_psn};
}

}  // namespace

// On the thread of the application that connects its QP.
std::optional<Presence::Addresses> Coordinator::addresses_find(group::Context* context,
                                                               const wire::Gid& local,
                                                               const wire::Gid& remote) {
  using Addresses = std::optional<Presence::Addresses>;
  if (local.ipv4() && remote.ipv4()) return Addresses({*local.ipv4(), *remote.ipv4()});
  auto found = std::make_shared<std::promise<Addresses>>();
  auto future = found->get_future();
  // The QP may be gone by then; its context takes its turn behind this.
  control_.call_soon([this, context, local, remote, found] {
    const auto local_ip = address_of(context, local).ipv4();
    if (!local_ip) return found->set_value({});
    net_->find_address(*local_ip, remote, [=](std::optional<uint32_t> ip) {
      found->set_value(ip ? Addresses({*local_ip, *ip}) : Addresses());
    });
  });
  if (future.wait_for(kAddressPatience) != std::future_status::ready) return {};
  return future.get();
}

bool Coordinator::peer_present(group::Context* context, const wire::Gid& local,
                               const wire::Gid& remote) noexcept try {
  const Uncancellable shield;
  return presence_.at(local, remote, [&] { return addresses_find(context, local, remote); });
} catch (const std::exception&) {
  return false;  // no memory, or the control loop does not run: the application's patience is safe
}

void Coordinator::look_for_peer(Binding& binding) {
  if (binding.looking || binding.channel != nullptr) return;
  binding.looking = true;
  const Psns psns = psns_of(*binding.group);
  FindRequest request;
  request.remote = binding.group->life.ends.remote;
  request.local = binding.group->life.ends.local;
  request.local_sq_psn = psns.sq;
  request.local_rq_psn = psns.rq;
  request.deadline = control_.now() + milliseconds(config().rendezvous_ms);
  request.local_ip_be = address_of(*binding.group).ipv4().value_or(0);
  net_->find_peer(request, [this, serial = binding.serial](PeerChannel* channel, FindError error) {
    Binding* found = find(serial);
    if (found == nullptr) return;
    found->looking = false;
    if (channel == nullptr) {
      if (found->peer_proven) return look_later(*found, milliseconds(1000));
      return peer_missing(*found, find_error_name(error));
    }
    // What it says counts when it has proved on this channel, too, that it owns the peer's QP.
    channel_set(*found, channel);
    found->channel_proven = false;
    repeat(*found);
    found->bind_pause = kBindPauseMin;
    found->bind_until = control_.now() + milliseconds(config().rendezvous_ms);
    bind_watch(*found);
  });
}

void Coordinator::peer_missing(Binding& binding, const char* cause) {
  if (binding.peer_proven || binding.over) return;
  const Group& group = *binding.group;
  static bool told = false;  // one line per process says enough (C10)
  if (!std::exchange(told, true)) {
    const bool has_address = group.life.ends.remote.gid.ipv4().has_value();
    SHIFT_WARN("qp 0x%x on %s is not protected: peer qp 0x%x%s%s: %s%s", group.qpn(),
               group.context->device->dev.name, group.life.ends.remote.qpn,
               has_address ? "" : " at ",
               has_address ? "" : net::GidText(group.life.ends.remote.gid).c_str(), cause,
               has_address ? "" : kHowToReach);
  }
  SHIFT_EVENT("unprotected", {{"qp", group.qpn()}, {"cause", cause}});
  feed(binding, Event::kNoPeer, cause);
}

void Coordinator::peer_found(Binding& binding) {
  binding.peer_proven = true;
  for (Loop::TimerId* timer : {&binding.no_peer, &binding.bind_again}) {
    control_.timer_cancel(std::exchange(*timer, 0));
  }
  const Group& group = *binding.group;
  SHIFT_EVENT("bound", {{"qp", group.qpn()}, {"peer_qp", group.life.ends.remote.qpn}});
  feed(binding, Event::kBound);
}

void Coordinator::look_later(Binding& binding, milliseconds pause) {
  if (!binding.group->life.control.is_leader || binding.over) return;  // the leader looks
  control_.timer_cancel(binding.look_again);
  binding.look_again = later(binding, pause, [this](Binding& again) {
    again.look_again = 0;
    look_for_peer(again);
  });
}

void Coordinator::send_bind(Binding& binding) {
  if (binding.channel == nullptr) return;
  Group& group = *binding.group;
  const Psns psns = psns_of(group);
  wire::Bind bind;
  bind.from = group.life.ends.local;
  bind.to = group.life.ends.remote;
  bind.rq_psn = psns.rq;
  if (psns.sends) {
    bind.sq_psn = psns.sq;
    bind.flags |= wire::Bind::kHasSqPsn;
  }
  if (group.exact) bind.flags |= wire::Bind::kAsksResponder;
  bind.members.push_back(address_of(group));
  for (int m = 1; m < group.context->member_count; m++) {
    const auto& gids = group.context->members[m].gids;
    bind.members.push_back(gids.empty() ? wire::Gid{} : gids.front());
  }
  bind.members_up = members_up(group.context);
  bind.epoch = group.life.control.epoch;
  binding.channel->send(bind);
}

// Who was found may hold the peer's QP as it was before a reset, which its application makes only
// after ours: then Bind has met PSNs that did not fit, and the QP's new life waits to be asked.
void Coordinator::bind_watch(Binding& binding) {
  if (binding.peer_proven) return;
  control_.timer_cancel(binding.bind_again);
  const auto pause =
      std::min<Loop::Clock::duration>(binding.bind_pause, binding.bind_until - control_.now());
  binding.bind_again = later(binding, pause, [this](Binding& again) {
    again.bind_again = 0;
    if (again.over || again.channel == nullptr) return;  // without one it is looked for anew
    if (control_.now() >= again.bind_until) {
      return peer_missing(again, "who was found does not prove that it owns the QP");
    }
    repeat(again);
    again.bind_pause = std::min(again.bind_pause * 2, kBindPauseMax);
    bind_watch(again);
  });
}

// What it was before. Connections that were kept for the binding's sake are not any longer.
PeerChannel* Coordinator::channel_set(Binding& binding, PeerChannel* channel) {
  if (binding.channel != channel) {
    for (const auto& [own, peer] : binding.routes) binding.channel->drop_path(own, peer);
    binding.routes.clear();
  }
  return std::exchange(binding.channel, channel);
}

// The control channel must not depend on the NICs that may fail: one connection for each pair of
// addresses that the two ends have now.
void Coordinator::channel_widen(Binding& binding) {
  const Group& group = *binding.group;
  if (!group.life.control.is_leader || binding.channel == nullptr) return;  // one end dials
  std::vector<Binding::Route> wanted;
  for (int m = 0; m < group.context->member_count; m++) {
    const auto& gids = group.context->members[m].gids;
    const auto own =
        m == 0 ? address_of(group).ipv4() : (gids.empty() ? std::nullopt : gids.front().ipv4());
    if (!own) continue;
    for (const uint32_t peer : binding.peer_ips) wanted.emplace_back(*own, peer);
  }
  const auto holds = [](const std::vector<Binding::Route>& routes, const Binding::Route& route) {
    return std::ranges::find(routes, route) != routes.end();
  };
  // First, since it makes room.
  std::erase_if(binding.routes, [&](const Binding::Route& route) {
    if (holds(wanted, route)) return false;
    binding.channel->drop_path(route.first, route.second);
    return true;
  });
  for (const Binding::Route& route : wanted) {
    if (holds(binding.routes, route)) continue;
    if (binding.channel->add_path(route.first, route.second)) binding.routes.push_back(route);
  }
}

// Both QPNs are in the names; the start PSNs are what only the two ends know (C11).
bool Coordinator::proof_fits(const Binding& binding, const wire::Bind& bind) {
  const Psns psns = psns_of(*binding.group);
  if ((bind.flags & wire::Bind::kHasSqPsn) && bind.sq_psn != psns.rq) return false;
  return !psns.sends || bind.rq_psn == psns.sq;
}

Binding* Coordinator::addressee(PeerChannel* channel, const wire::QpName& from,
                                const wire::QpName& to) {
  auto it = by_name_.find(to);
  if (it == by_name_.end() || it->second->group->life.ends.remote != from) return nullptr;
  // Only the process that proved to own the peer QP speaks for it (C11).
  if (it->second->channel_proven && it->second->channel != channel) return nullptr;
  return it->second;
}

Binding* Coordinator::proven_addressee(PeerChannel* channel, const wire::QpName& from,
                                       const wire::QpName& to) {
  Binding* binding = addressee(channel, from, to);
  return binding != nullptr && is_proven(*binding, channel) ? binding : nullptr;
}

bool Coordinator::is_proven(const Binding& binding, const PeerChannel* channel) {
  return binding.peer_proven && binding.channel_proven && binding.channel == channel;
}

// Whatever was sent on a connection that is gone now may be lost. Copies are rows of the table.
void Coordinator::repeat(Binding& binding) {
  Group& group = *binding.group;
  PeerChannel* channel = binding.channel;
  send_bind(binding);
  channel->send(wire::Members{group.life.ends.local, group.life.ends.remote, ++members_sequence_,
                              members_up(group.context)});
  for (const auto& ready : binding.book.all_ready()) {
    channel->send(wire::Ready{group.life.ends.local, group.life.ends.remote, ready.path,
                              ready.generation, wire::Ready::Kind::kReady});
  }
  switch (group.life.control.state) {
    case State::kDraining:
      send_drain(binding, wire::Drain::Kind::kAsk);
      break;
    case State::kHeld:
      if (binding.own_drained) send_drain(binding, wire::Drain::Kind::kDone);
      break;
    case State::kFencing:
    case State::kFencingTargeted:
    case State::kSeeking:
      send_switch(binding);
      break;
    case State::kActive:
      // The follower of a drain stays parked while the channel is down.
      if (group.life.control.is_leader && binding.drain_attempt != 0) {
        send_drain(binding, wire::Drain::Kind::kCancel);
      }
      [[fallthrough]];
    case State::kExchanging:
    case State::kResuming:
      if (binding.told) channel->send(*binding.told);
      break;
    default:
      break;
  }
  if (binding.query_pending) query_keys(binding);
  attempt_send(binding);
}

void Coordinator::on_connection_up(PeerChannel* channel, bool first) {
  for (auto& [serial, binding] : bindings_) {
    if (binding->channel == channel) repeat(*binding);
  }
}

void Coordinator::on_channel_down(PeerChannel* channel) {
  for (auto& [serial, binding] : bindings_) {
    if (binding->channel != channel) continue;
    // Connected QPs stay connected: an idle connection needs no channel.
    channel_set(*binding, nullptr);
    binding->channel_proven = false;
    if (binding->attempt) attempt_end(*binding, Binding::Attempt::Outcome::kUndecided);
    feed(*binding, Event::kChannelLost);
  }
}

}  // namespace shift::control
