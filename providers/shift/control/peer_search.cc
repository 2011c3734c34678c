#include "control/peer_search.h"

#include <algorithm>

#include "group/context.h"
#include "group/locked.h"
#include "net/socket.h"
#include "util/config.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::control {

using std::chrono::milliseconds;

namespace {

// Advice for a GID that holds no IPv4 address.
constexpr char kHowToReach[] =
    " (SHIFT at the peer? UDP to its port must pass as broadcast; or choose a GID index with an "
    "IPv4 address)";

// The pauses between Binds that are not answered. In the first pause a peer can answer thousands of
// Binds.
constexpr milliseconds kBindPauseMin(100), kBindPauseMax(1000);
// A peer that was proven and cannot be found is looked for again after this pause.
constexpr milliseconds kAskAgain(1000);

// How often a follower that its leader has not found asks itself why.
constexpr milliseconds kFollowerPause(500);

// A round that has found no path for so long may have lost its channel. A path is found in a few
// milliseconds where both ends know the spare ones.
constexpr milliseconds kAsidePause(150);

constexpr unsigned kLoopback = 127;

unsigned first_octet(uint32_t ip_be) {
  return reinterpret_cast<const uint8_t*>(&ip_be)[0];
}

// Multicast, reserved and broadcast addresses are no NIC's, and the loopback ones belong to NICs
// only where this end's does, which is then an emulated one.
bool may_be_a_nics(uint32_t ip_be, bool on_loopback) {
  const unsigned first = first_octet(ip_be);
  return first != 0 && first < 224 && (first != kLoopback || on_loopback);
}

}  // namespace

PeerSearch::PeerSearch(group::Group& group, PeerSearchSink& sink, net::Loop& loop,
                       net::PeerNetwork& net, const NicWatch& nics)
    : group_(group),
      sink_(sink),
      loop_(loop),
      net_(net),
      nics_(nics),
      wrong_binds_(loop, kWrongBinds),
      look_again_(loop),
      aside_(loop),
      bind_again_(loop),
      no_peer_(loop) {}

PeerSearch::~PeerSearch() {
  set_channel(nullptr);
}

void PeerSearch::begin() {
  if (group_.life.control.is_leader) return look();
  await_search();
  look_if_cut_off();
}

// The leader knows this host by a NIC that may be broken, and may know no other address of it. So a
// follower that has heard nothing looks for its leader, once it has a reason to think so.
void PeerSearch::look_if_cut_off() {
  look_again_.start(kFollowerPause, [this] {
    if (heard_ || !no_peer_.is_running()) return;
    const bool is_hurt = !nics_.is_up(group_.context, group::kDefault) ||
                         fsm::kLeaving.has(group_.life.control.state);
    if (is_hurt) return look();
    look_if_cut_off();
  });
}

void PeerSearch::await_search() {
  no_peer_.start(milliseconds(config().rendezvous_ms), [this] {
    if (is_cut_off() || (kept_bind_ && is_patient())) return await_search();
    missing("nobody has asked for this QP");
  });
}

// Whether a fault has come before the two ends have met, while SHIFT is at the peer's host. That
// fault may keep the two ends apart, so the search goes on; the round has its own bound.
bool PeerSearch::is_cut_off() const {
  return group_.life.peer_present && fsm::kLeaving.has(group_.life.control.state) && !is_early();
}

bool PeerSearch::is_early() const {
  return !proven_ && !group::start_psns(group_).sends;
}

// Whether time is no sign against who was found, or against who has asked: their proof has to wait
// for RTS. A round must not wait for that, because the application's own change to RTS waits for
// the round.
bool PeerSearch::is_patient() const {
  return is_early() && !fsm::kLeaving.has(group_.life.control.state);
}

void PeerSearch::look() {
  if (looking_ || channel_ != nullptr) return;
  looking_ = true;
  net::FindRequest request;
  request.remote = group_.life.ends.remote;
  request.local = group_.life.ends.local;
  // If the peer was proven, a round needs to know soon whether it is gone.
  request.deadline =
      loop_.now() + milliseconds(proven_ ? std::min(config().rendezvous_ms, config().exchange_ms)
                                         : config().rendezvous_ms);
  request.local_ip_be = nics_.address_of(group_).ipv4().value_or(0);
  const uint8_t up = nics_.up(group_.context);
  request.is_first_usable = (up >> group::kDefault & 1) != 0;
  const std::vector<wire::Gid> own = nics_.addresses_of(group_);
  for (size_t m = group::kDefault + 1; m < own.size(); m++) {
    if (const auto ip = own[m].ipv4(); ip && (up >> m & 1) != 0)
      request.more_local_ip_be.push_back(*ip);
  }
  net_.find_peer(request, [this, alive = std::weak_ptr(alive_)](net::PeerChannel* channel,
                                                                net::FindError error) {
    if (alive.expired()) return;
    looking_ = false;
    using net::FindError;
    if (channel_ != nullptr || ended_) return;  // the peer was the first to find this end
    gone_ = proven_ && (error == FindError::kNoShift || error == FindError::kNoSuchQp ||
                        error == FindError::kRefused);
    if (is_peer_gone()) sink_.peer_gone();
    // A follower that was proven waits to be found: the leader would take its search for another.
    const bool is_leader = group_.life.control.is_leader;
    if (channel != nullptr && (is_leader || !proven_)) return found(channel);
    if (!is_leader && !proven_) {  // await_search() has the last word
      if (error != FindError::kNoShift && !heard_ && no_peer_.is_running()) look_later(kAskAgain);
      return;
    }
    if (proven_ || (error == FindError::kUnreachable && is_cut_off())) {
      return look_later(kAskAgain);
    }
    missing(net::find_error_name(error));
  });
}

void PeerSearch::found(net::PeerChannel* channel) {
  set_channel(channel);
  // What the process says counts only after it has proved on this channel, too, that it owns the
  // peer's QP.
  channel_proven_ = false;
  bind_begin();
}

void PeerSearch::bind_begin() {
  sink_.channel_found();
  bind_pause_ = kBindPauseMin;
  relied_until_ = bind_until_ = loop_.now() + milliseconds(config().rendezvous_ms);
  bind_again();
}

// A Bind that was said in RTR proved nothing to a peer in RTR, which may stay there.
void PeerSearch::sends_begin() {
  if (channel_ != nullptr && !channel_proven_ && !ended_) bind_begin();
}

void PeerSearch::missing(const char* cause) {
  if (proven_ || ended_) return;
  static bool logged = false;  // one line per process says enough (C10)
  if (!std::exchange(logged, true)) {
    const bool has_address = group_.life.ends.remote.gid.ipv4().has_value();
    SHIFT_WARN("qp 0x%x on %s is not protected: peer qp 0x%x%s%s: %s%s", group_.qpn(),
               group_.context->device->dev.name, group_.life.ends.remote.qpn,
               has_address ? "" : " at ",
               has_address ? "" : net::GidText(group_.life.ends.remote.gid).c_str(), cause,
               has_address ? "" : kHowToReach);
  }
  SHIFT_EVENT("unprotected", {{"qp", group_.qpn()}, {"cause", cause}});
  sink_.peer_missing(cause);
}

void PeerSearch::look_later(milliseconds pause) {
  if (ended_) return;
  look_again_.start(pause, [this] { look(); });
}

void PeerSearch::end() {
  ended_ = true;
}

// The process that was found may still hold the peer's QP as it was before a reset, because its
// application may reset the QP after the application of this end has reset its own. Then Bind has
// met PSNs that did not fit, and the QP's new life waits for a Bind.
void PeerSearch::bind_again() {
  if (proven_) return;
  const auto pause = std::min<net::Loop::Clock::duration>(bind_pause_, bind_until_ - loop_.now());
  bind_again_.start(pause, [this] {
    if (ended_ || channel_ == nullptr) return;  // without a channel the peer is looked for anew
    if (is_patient()) bind_until_ = loop_.now() + milliseconds(config().rendezvous_ms);
    if (loop_.now() >= bind_until_) {
      return missing("who was found does not prove that it owns the QP");
    }
    sink_.channel_found();
    bind_pause_ = std::min(bind_pause_ * 2, kBindPauseMax);
    bind_again();
  });
}

void PeerSearch::send_bind() {
  if (channel_ == nullptr) return;
  const group::StartPsns psns = group::start_psns(group_);
  wire::Bind bind;
  bind.from = group_.life.ends.local;
  bind.to = group_.life.ends.remote;
  bind.rq_psn = psns.rq;
  if (psns.sends) {
    bind.sq_psn = psns.sq;
    bind.flags |= wire::Bind::kHasSqPsn;
  }
  bind.flags |= wire::Bind::kForgetsKeys | wire::Bind::kHeedsAvoid | wire::Bind::kTellsNics;
  if (config().locate) bind.flags |= wire::Bind::kProbes;
  if (group_.asks_responder()) bind.flags |= wire::Bind::kAsksResponder;
  bind.members = own_addresses();
  if (bind.members.size() > wire::Bind::kMembersMax && !SHIFT_PLANT(bind_names_all)) {
    bind.flags |= wire::Bind::kHasMore;
    bind.members.resize(wire::Bind::kMembersMax);
  }
  bind.members_up = nics_.up(group_.context);
  bind.epoch = group_.life.control.epoch;
  channel_->send(bind);
  sink_.bind_sent();
}

bool PeerSearch::may_speak(const net::PeerChannel* channel) {
  if (channel_proven_) return channel_ == channel;
  if (channel->is_self()) return true;
  const wire::Gid& remote = group_.life.ends.remote.gid;
  if (net_.leads_to(*channel, remote)) return true;
  if (remote.ipv4()) return false;
  if (channel == channel_ || channel->is_keyed()) return true;
  ask_link();
  return link_address_ && channel->is_at(*link_address_);
}

// Asks for the address of a GID that holds none. The answer is there at once if it was asked for
// when the channel began; otherwise the peer says its Bind again.
void PeerSearch::ask_link() {
  const auto local = nics_.address_of(group_).ipv4();
  if (!local || asking_link_) return;
  asking_link_ = true;
  net_.find_address(*local, group_.life.ends.remote.gid,
                    [this, alive = std::weak_ptr(alive_)](std::optional<uint32_t> ip_be) {
                      if (alive.expired()) return;
                      asking_link_ = false;
                      link_address_ = ip_be;
                    });
}

bool PeerSearch::owns(const wire::Gid& gid) const {
  if (channel_ == nullptr) return false;
  return channel_->is_self() || channel_->is_keyed() || gid == group_.life.ends.remote.gid ||
         net_.leads_to(*channel_, gid);
}

void PeerSearch::ask_owner(const wire::Gid& gid) {
  (void)net_.look_up(gid, [this, alive = std::weak_ptr(alive_)](net::Stored stored) {
    if (!alive.expired() && stored == net::Stored::kFound) sink_.host_known();
  });
}

// Both QPNs are in the names, which the caller has compared.
PeerSearch::Proof PeerSearch::proof_of(const wire::Bind& bind) {
  heard_ = true;
  if (wrong_binds_.is_spent()) return Proof::kWrong;
  const group::StartPsns psns = group::start_psns(group_);
  const bool peer_sends = (bind.flags & wire::Bind::kHasSqPsn) != 0;
  if (!peer_sends && !psns.sends) return Proof::kNothing;
  const bool fits =
      (!peer_sends || bind.sq_psn == psns.rq) && (!psns.sends || bind.rq_psn == psns.sq);
  if (!fits) wrong_binds_.spend();
  return fits ? Proof::kFits : Proof::kWrong;
}

// The process that is found at the peer's address need not be the process that was there before.
net::PeerChannel* PeerSearch::take_channel(net::PeerChannel* channel) {
  channel_proven_ = true;
  kept_bind_.reset();
  return set_channel(channel);
}

void PeerSearch::set_proven() {
  proven_ = true;
  no_peer_.cancel();
  bind_again_.cancel();
  SHIFT_EVENT("bound", {{"qp", group_.qpn()}, {"peer_qp", group_.life.ends.remote.qpn}});
  sink_.peer_proven();
}

void PeerSearch::channel_lost() {
  set_channel(nullptr);
  channel_proven_ = false;
}

// Returns the channel of before. The connections of it that were kept for the session's sake are
// not kept any longer.
net::PeerChannel* PeerSearch::set_channel(net::PeerChannel* channel) {
  if (channel_ != channel) {
    for (const auto& [own, peer] : kept_) channel_->drop_connection(own, peer);
    kept_.clear();
  }
  return std::exchange(channel_, channel);
}

void PeerSearch::set_peer_addresses(const std::vector<wire::Gid>& members) {
  peer_addresses_.clear();
  const bool on_loopback = first_octet(nics_.address_of(group_).ipv4().value_or(0)) == kLoopback;
  for (const wire::Gid& gid : members) {
    const auto ip = gid.ipv4();
    if (ip && may_be_a_nics(*ip, on_loopback)) peer_addresses_.push_back(*ip);
  }
}

void PeerSearch::note_host() {
  if (channel_ == nullptr || !channel_proven_ || channel_->is_self()) return;
  std::vector<uint32_t> seen;
  for (const uint32_t ip_be : peer_addresses_)
    if (channel_->is_at(ip_be)) seen.push_back(ip_be);
  if (!seen.empty()) net_.host_seen(group_.life.ends.remote.gid, seen);
}

void PeerSearch::widen() {
  if (!group_.life.control.is_leader || channel_ == nullptr) return;  // one end's dials suffice
  connect_all();
}

void PeerSearch::path_left() {
  aside_.start(kAsidePause, [this] { try_all(); });
}

void PeerSearch::try_all() {
  if (ended_ || !fsm::kLeaving.has(group_.life.control.state)) return;
  if (channel_ != nullptr && !channel_->is_self()) {
    const wire::Gid& remote = group_.life.ends.remote.gid;
    if (!proven_) {  // the peer has not told its addresses
      (void)net_.look_up(remote, [](net::Stored) {});
      peer_addresses_ = net_.others(remote);
      if (const auto ip = remote.ipv4()) peer_addresses_.push_back(*ip);
    }
    connect_all();
  }
  aside_.start(kAskAgain, [this] { try_all(); });
}

void PeerSearch::connect_all() {
  std::vector<uint32_t> own_addresses;
  for (const wire::Gid& own : nics_.addresses_of(group_)) {
    if (const auto ip = own.ipv4()) own_addresses.push_back(*ip);
  }
  // First those that have no NIC in common: a process that may not have all of them keeps these.
  std::vector<AddressPair> wanted;
  for (size_t step = 0; step < peer_addresses_.size(); step++) {
    for (size_t own = 0; own < own_addresses.size(); own++)
      wanted.emplace_back(own_addresses[own],
                          peer_addresses_[(own + step) % peer_addresses_.size()]);
  }
  const auto holds = [](const std::vector<AddressPair>& pairs, const AddressPair& pair) {
    return std::ranges::find(pairs, pair) != pairs.end();
  };
  // Unwanted connections are dropped first, which makes room for others.
  std::erase_if(kept_, [&](const AddressPair& pair) {
    if (holds(wanted, pair)) return false;
    channel_->drop_connection(pair.first, pair.second);
    return true;
  });
  for (const AddressPair& pair : wanted) {
    if (holds(kept_, pair)) continue;
    if (channel_->keep_connection(pair.first, pair.second)) kept_.push_back(pair);
  }
}

}  // namespace shift::control
