// Peers and backups: finds the process behind a remote QP, exchanges backup QPs, connects them, and
// takes in the peer's messages.
#include <algorithm>

#include "control/coordinator.h"
#include "group/keys.h"
#include "group/path_switch.h"
#include "util/config.h"
#include "util/log.h"

namespace shift::control {

using fsm::EpochIs;
using fsm::Event;
using fsm::State;
using group::Group;
using std::chrono::milliseconds;

namespace {

constexpr uint32_t kBindHasSqPsn = 1u << 0;  // the sender's QP has reached RTS

bool is_sending(Group& group) {
  std::lock_guard lock(group.attr_mutex);
  return group.attr_mask & IBV_QP_SQ_PSN;
}

uint32_t sq_psn(Group& group) {
  std::lock_guard lock(group.attr_mutex);
  return group.attr.sq_psn;
}

uint32_t rq_psn(Group& group) {
  std::lock_guard lock(group.attr_mutex);
  return group.attr.rq_psn;
}

}  // namespace

void Coordinator::group_add(Group* group) {
  control_.call_soon([this, group] {
    auto& slot = bindings_[group->serial];
    slot = std::make_unique<Binding>();
    slot->group = group;
    slot->serial = group->serial;
    // A group's life begins here, again after each reset; from now on feed() alone moves it.
    group->state = State::kUnbound;
    group->epoch = 0;
    by_name_[group->local] = slot.get();
    make_backup(*slot);
    // One end looks, the other is found; a QP connected to itself has both roles.
    if (group->local <= group->remote) look_for_peer(*slot);
  });
}

void Coordinator::group_sends(Group* group) {
  control_.call_soon([this, serial = group->serial] {
    Binding* binding = find(serial);
    if (binding == nullptr || !binding->own_connected) return;  // connect_backup() will see RTS
    worker_.call_soon([group = binding->group, own = binding->own] {
      if (group::backup_qp_start_sending(*group, own) != 0) {
        SHIFT_WARN_LIMITED("qp 0x%x: the backup QP cannot start sending", group->qpn());
      }
    });
  });
}

void Coordinator::group_forget(Group* group) {
  control_.call_and_wait([this, group] {
    Binding* binding = find(group->serial);
    if (binding == nullptr) return;
    feed(*binding, Event::kAppClosed);
    control_.timer_cancel(binding->deadline);
    control_.timer_cancel(binding->look_again);
    control_.timer_cancel(binding->key_deadline);
    by_name_.erase(group->local);
    bindings_.erase(group->serial);
  });
}

void Coordinator::look_for_peer(Binding& binding) {
  if (binding.looking || binding.channel != nullptr) return;
  binding.looking = true;
  FindRequest request;
  request.remote = binding.group->remote;
  request.local = binding.group->local;
  request.local_sq_psn = sq_psn(*binding.group);
  request.local_rq_psn = rq_psn(*binding.group);
  request.deadline = Reactor::Clock::now() + milliseconds(config().rendezvous_ms);
  net_->find_peer(request, [this, serial = binding.serial](Channel* channel, FindError error) {
    Binding* found = find(serial);
    if (found == nullptr) return;
    found->looking = false;
    if (channel == nullptr) {
      static bool told = false;  // one line per process says enough (C10)
      if (!std::exchange(told, true)) {
        SHIFT_WARN("qp 0x%x on %s is not protected: peer qp 0x%x: %s", found->group->qpn(),
                   found->group->context->device->dev.name, found->group->remote.qpn,
                   find_error_name(error));
      }
      SHIFT_EVENT("unprotected", {{"qp", found->group->qpn()}, {"cause", find_error_name(error)}});
      return;
    }
    found->channel = channel;
    send_bind(*found);
  });
}

void Coordinator::look_later(Binding& binding, milliseconds pause) {
  if (binding.group->remote < binding.group->local) return;  // the peer looks for us
  control_.timer_cancel(binding.look_again);
  binding.look_again = control_.timer_start(pause, [this, serial = binding.serial] {
    Binding* again = find(serial);
    if (again == nullptr) return;
    again->look_again = 0;
    look_for_peer(*again);
  });
}

void Coordinator::make_backup(Binding& binding) {
  worker_.call_soon([this, serial = binding.serial, group = binding.group] {
    group::BackupAddress own;
    const int error = group::backup_qp_create(*group, &own);
    control_.call_soon([this, serial, own, error] {
      Binding* made = find(serial);
      if (made == nullptr) return;
      if (error != 0) {
        SHIFT_WARN_LIMITED("qp 0x%x on %s is not protected: no backup QP on %s (errno %d)",
                           made->group->qpn(), made->group->context->device->dev.name,
                           made->group->context->device->real[group::kBackup]->name, error);
        return;
      }
      made->own = own;
      made->own_made = true;
      send_bind(*made);
      connect_backup(*made);
    });
  });
}

void Coordinator::send_bind(Binding& binding) {
  if (!binding.own_made || binding.channel == nullptr) return;
  Group& group = *binding.group;
  wire::Bind bind;
  bind.from = group.local;
  bind.to = group.remote;
  bind.rq_psn = rq_psn(group);
  if (is_sending(group)) {
    bind.sq_psn = sq_psn(group);
    bind.flags |= kBindHasSqPsn;
  }
  bind.backup_gid = binding.own.gid;
  bind.backup_qpn = binding.own.qpn;
  bind.backup_psn = binding.own.psn;
  bind.backup_mtu = static_cast<uint8_t>(binding.own.mtu);
  bind.epoch = group.epoch;
  binding.channel->send(bind);
}

// Both QPNs are in the names; the start PSNs are what only the two ends know (C11).
bool Coordinator::proof_fits(const Binding& binding, const wire::Bind& bind) {
  Group& group = *binding.group;
  if ((bind.flags & kBindHasSqPsn) && bind.sq_psn != rq_psn(group)) return false;
  return !is_sending(group) || bind.rq_psn == sq_psn(group);
}

Binding* Coordinator::addressee(Channel* channel, const wire::QpName& from,
                                const wire::QpName& to) {
  auto it = by_name_.find(to);
  if (it == by_name_.end() || it->second->group->remote != from) return nullptr;
  // Only the process that proved to own the peer QP speaks for it (C11).
  if (it->second->channel != nullptr && it->second->channel != channel) return nullptr;
  return it->second;
}

void Coordinator::on_bind(Channel* channel, const wire::Bind& message) {
  Binding* binding = addressee(channel, message.from, message.to);
  if (binding == nullptr) {
    return refuse(channel, message.to, message.from, message.epoch, wire::RefuseReason::kGone);
  }
  if (message.backup_mtu < IBV_MTU_256 || message.backup_mtu > IBV_MTU_4096) return;
  if (binding->group->state != State::kUnbound) {
    // The peer lost its connections before we noticed, and binds again.
    if (binding->group->state == State::kArmed && binding->peer.qpn == message.backup_qpn) {
      channel->send(wire::BindAck{message.to, message.from, 0, binding->group->epoch});
    }
    return;
  }
  if (!proof_fits(*binding, message)) {
    SHIFT_WARN_LIMITED("qp 0x%x: a peer could not prove that it owns qp 0x%x; ignored",
                       binding->group->qpn(), message.from.qpn);
    return;
  }
  const bool had_channel = std::exchange(binding->channel, channel) != nullptr;
  if (!had_channel) send_bind(*binding);
  if (binding->peer_known) {
    // A copy, or the peer starts over: answer again.
    if (binding->own_connected && binding->peer.qpn == message.backup_qpn) {
      channel->send(wire::BindAck{message.to, message.from, 0, binding->group->epoch});
    }
    return;
  }
  binding->peer.gid = message.backup_gid;
  binding->peer.qpn = message.backup_qpn;
  binding->peer.psn = message.backup_psn;
  binding->peer.mtu = static_cast<ibv_mtu>(message.backup_mtu);
  binding->peer_known = true;
  connect_backup(*binding);
}

void Coordinator::connect_backup(Binding& binding) {
  if (!binding.own_made || !binding.peer_known || binding.connecting || binding.own_connected) {
    return;
  }
  binding.connecting = true;
  // The control channel must not depend on the NIC that may fail.
  const auto local_ip = binding.own.gid.ipv4();
  const auto remote_ip = binding.peer.gid.ipv4();
  if (local_ip && remote_ip) binding.channel->add_path(*local_ip, *remote_ip);
  worker_.call_soon([this, serial = binding.serial, group = binding.group, own = binding.own,
                     peer = binding.peer] {
    const int error = group::backup_qp_connect(*group, own, peer);
    control_.call_soon([this, serial, error] {
      Binding* made = find(serial);
      if (made == nullptr) return;
      made->connecting = false;
      if (error != 0) {
        SHIFT_WARN_LIMITED("qp 0x%x is not protected: its backup QP cannot be connected (errno %d)",
                           made->group->qpn(), error);
        return;
      }
      made->own_connected = true;
      // It may have reached RTS in between.
      group_sends(made->group);
      if (made->channel != nullptr) {
        made->channel->send(
            wire::BindAck{made->group->local, made->group->remote, 0, made->group->epoch});
      }
      check_bound(*made);
    });
  });
}

void Coordinator::on_bind_ack(Channel* channel, const wire::BindAck& message) {
  Binding* binding = addressee(channel, message.from, message.to);
  if (binding == nullptr || message.status != 0) return;
  binding->peer_connected = true;
  check_bound(*binding);
}

void Coordinator::check_bound(Binding& binding) {
  if (!binding.own_connected || !binding.peer_connected) return;
  Group& group = *binding.group;
  if (group.state != State::kUnbound) return;
  {
    group::CqLock lock(group);
    if (group.accept[group::kDefault] == group::Accept::kPass) {
      group.accept[group::kDefault] = group::Accept::kGuard;
    }
  }
  watch_arm(binding);
  feed(binding, Event::kBound);
  SHIFT_DEBUG("qp 0x%x on %s is protected by qp 0x%x on %s", group.qpn(),
              group.context->device->dev.name, binding.own.qpn,
              group.context->device->real[group::kBackup]->name);
  SHIFT_EVENT("armed", {{"qp", group.qpn()},
                        {"device", group.context->device->dev.name},
                        {"peer_qp", group.remote.qpn}});
}

bool Coordinator::knows_qp(const wire::QpName& name) {
  return by_name_.contains(name);
}

void Coordinator::on_connection_up(Channel* channel, bool first) {
  // Whatever was sent on a connection that is gone now may be lost: say it again. Copies are rows
  // of the table.
  for (auto& [serial, binding] : bindings_) {
    if (binding->channel != channel) continue;
    Group& group = *binding->group;
    switch (group.state) {
      case State::kUnbound:
        send_bind(*binding);
        if (binding->own_connected) {
          channel->send(wire::BindAck{group.local, group.remote, 0, group.epoch});
        }
        break;
      case State::kFencing:
      case State::kFencingPeerReady:
        channel->send(wire::Switch{group.local, group.remote, group.epoch, ++group.sequence, 0});
        break;
      case State::kExchanging:
      case State::kResuming:
      case State::kOnBackup: {
        if (group.epoch == 0) break;
        wire::Progress progress;
        progress.from = group.local;
        progress.to = group.remote;
        progress.epoch = group.epoch;
        progress.seq = ++group.sequence;
        progress.notifications_received = binding->sent_progress;
        channel->send(progress);
        break;
      }
      default:
        break;
    }
    if (binding->query_pending) query_keys(*binding);
  }
}

void Coordinator::on_channel_down(Channel* channel) {
  for (auto& [serial, binding] : bindings_) {
    if (binding->channel != channel) continue;
    binding->channel = nullptr;
    // The backup QPs stay connected: an idle connection needs no channel.
    binding->peer_connected = false;
    feed(*binding, Event::kChannelLost);
  }
}

void Coordinator::on_message(Channel* channel, const wire::Message& message) {
  struct Visitor {
    Coordinator& self;
    Channel* channel;
    void operator()(const wire::Hello&) {}
    void operator()(const wire::HelloReply&) {}
    void operator()(const wire::Bind& m) { self.on_bind(channel, m); }
    void operator()(const wire::BindAck& m) { self.on_bind_ack(channel, m); }
    void operator()(const wire::Switch& m) { self.on_switch(channel, m); }
    void operator()(const wire::Progress& m) { self.on_progress(channel, m); }
    void operator()(const wire::KeyQuery& m) { self.on_key_query(channel, m); }
    void operator()(const wire::KeyReply& m) { self.on_key_reply(channel, m); }
    void operator()(const wire::Refuse& m) { self.on_refuse(channel, m); }
    void operator()(const wire::Close& m) { self.on_close(channel, m); }
  };
  std::visit(Visitor{*this, channel}, message);
}

void Coordinator::refuse(Channel* channel, const wire::QpName& from, const wire::QpName& to,
                         uint32_t epoch, wire::RefuseReason reason) {
  if (channel != nullptr) channel->send(wire::Refuse{from, to, epoch, reason});
}

void Coordinator::on_switch(Channel* channel, const wire::Switch& message) {
  Binding* binding = addressee(channel, message.from, message.to);
  if (binding == nullptr) {
    return refuse(channel, message.to, message.from, message.epoch, wire::RefuseReason::kGone);
  }
  switch (fsm::compare_epoch(message.epoch, binding->group->epoch)) {
    case EpochIs::kNext:
      if (binding->group->state == State::kUnbound) {
        return refuse(channel, message.to, message.from, message.epoch,
                      wire::RefuseReason::kNotProtected);
      }
      return feed_answer(*binding, message.epoch, Event::kPeerSwitchNext, "the peer left the path");
    case EpochIs::kCurrent:
      return feed_answer(*binding, message.epoch, Event::kPeerSwitchCurrent);
    case EpochIs::kStale:
      return feed(*binding, Event::kPeerMessageStale);
  }
}

void Coordinator::on_progress(Channel* channel, const wire::Progress& message) {
  Binding* binding = addressee(channel, message.from, message.to);
  if (binding == nullptr) {
    return refuse(channel, message.to, message.from, message.epoch, wire::RefuseReason::kGone);
  }
  Group& group = *binding->group;
  const EpochIs is = fsm::compare_epoch(message.epoch, group.epoch);
  // Stored before the event; only the first one of an epoch counts.
  const bool awaited = (is == EpochIs::kCurrent &&
                        (group.state == State::kFencing || group.state == State::kExchanging)) ||
                       (is == EpochIs::kNext && group.state == State::kArmed);
  if (awaited) group.peer_received = message.notifications_received;
  switch (is) {
    case EpochIs::kNext:
      return feed_answer(*binding, message.epoch, Event::kPeerProgressNext,
                         "the peer left the path");
    case EpochIs::kCurrent:
      return feed_answer(*binding, message.epoch, Event::kPeerProgressCurrent);
    case EpochIs::kStale:
      return feed(*binding, Event::kPeerMessageStale);
  }
}

void Coordinator::on_key_query(Channel* channel, const wire::KeyQuery& message) {
  Binding* binding = addressee(channel, message.from, message.to);
  if (binding == nullptr) return;
  // Behind every registration that is still under way on the worker.
  worker_.call_soon([this, serial = binding->serial, message] {
    control_.call_soon([this, serial, message] {
      Binding* asked = find(serial);
      if (asked == nullptr || asked->channel == nullptr) return;
      Group& group = *asked->group;
      wire::KeyReply reply{group.local, group.remote, message.query_id, {}};
      for (uint32_t rkey : message.rkeys) {
        wire::KeyPair pair{rkey, 0, false};
        pair.found = group::exported_key(*group.context, group.pd, rkey, &pair.new_rkey) ==
                     group::KeyState::kReady;
        reply.keys.push_back(pair);
      }
      asked->channel->send(reply);
    });
  });
}

void Coordinator::on_key_reply(Channel* channel, const wire::KeyReply& message) {
  Binding* binding = addressee(channel, message.from, message.to);
  if (binding == nullptr || message.query_id != binding->query_id) return;
  Group& group = *binding->group;
  {
    std::lock_guard lock(group.send.mutex);
    for (const wire::KeyPair& pair : message.keys) {
      if (pair.found) group.remote_keys.known[pair.rkey] = pair.new_rkey;
    }
  }
  if (!binding->query_pending) return;  // asked in advance, nobody waits
  for (uint32_t rkey : group::rkeys_missing(group)) {
    const bool denied = std::any_of(message.keys.begin(), message.keys.end(),
                                    [&](const wire::KeyPair& pair) { return pair.rkey == rkey; });
    if (denied) return key_denied(*binding);
  }
  control_.timer_cancel(std::exchange(binding->key_deadline, 0));
  binding->query_pending = false;
  if (group.state != State::kOnBackup) return feed(*binding, Event::kKeysReady);
  pump(*binding);
}

// Posts what waited for a key.
void Coordinator::pump(Binding& binding) {
  Group& group = *binding.group;
  if (group.state != State::kOnBackup) return;
  int error;
  {
    std::lock_guard lock(group.send.mutex);
    error = group::pump_backup(group);
  }
  if (error != 0) feed(binding, Event::kReplayRefused, "the backup refused a request");
}

// The key is as unknown there as it would be to the default NIC: the application's error.
void Coordinator::key_denied(Binding& binding) {
  Group& group = *binding.group;
  {
    std::lock_guard lock(group.send_cq->mutex);
    if (group.original_error.status == IBV_WC_SUCCESS) {
      group.original_error.status = IBV_WC_REM_ACCESS_ERR;
      group.original_error.vendor_err = 0x88;
    }
  }
  binding.query_pending = false;
  binding.refuse_reason = wire::RefuseReason::kKeyMissing;
  feed(binding, Event::kReplayRefused, "the peer does not know a memory key");
}

void Coordinator::on_refuse(Channel* channel, const wire::Refuse& message) {
  Binding* binding = addressee(channel, message.from, message.to);
  if (binding == nullptr) return;
  const bool current =
      fsm::compare_epoch(message.epoch, binding->group->epoch) == EpochIs::kCurrent;
  if (current && binding->group->state == State::kUnbound) {
    // Refused already when binding: the peer does not know the QP (yet).
    return;
  }
  // A peer that is gone may be so because all was done: late copies of our own messages draw this
  // answer, too. It weighs what its Close does.
  const Event event = !current                                      ? Event::kPeerMessageStale
                      : message.reason == wire::RefuseReason::kGone ? Event::kPeerClosed
                                                                    : Event::kPeerRefused;
  feed(*binding, event, "the peer cannot move this QP");
}

void Coordinator::on_close(Channel* channel, const wire::Close& message) {
  Binding* binding = addressee(channel, message.from, message.to);
  if (binding == nullptr) return;
  feed(*binding, Event::kPeerClosed, "the peer's application closed its QP");
}

}  // namespace shift::control
