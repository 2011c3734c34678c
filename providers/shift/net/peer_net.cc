// The network of peer processes, with one channel to each.
#include "net/peer_net.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "net/neighbours.h"
#include "net/tcp_rendezvous.h"
#include "util/log.h"

namespace shift::net {

namespace {

// No process has that many peers, and strangers that pretend to be peers must not eat its memory.
constexpr size_t kChannelsMax = 65536;
constexpr size_t kTakenMax = 65536;

// Descriptors that the process may open; the greater part is for the application.
size_t connections_max() {
  struct rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 256;
  return std::clamp<size_t>(limit.rlim_cur / 4, 32, kChannelsMax);
}

}  // namespace

PeerNet::PeerNet(Reactor& reactor, Delegate& delegate, PeerNetOptions options,
                 std::unique_ptr<JobKeys> keys)
    : reactor_(reactor),
      delegate_(delegate),
      options_(options),
      secrets_(std::move(keys)),
      alive_(std::make_shared<PeerNet*>(this)),
      rendezvous_(std::make_unique<TcpRendezvous>(reactor, static_cast<RendezvousHost&>(*this),
                                                  options.port)),
      finder_(reactor, *rendezvous_, *this) {}

PeerNet::~PeerNet() {
  reactor_.timer_cancel(keep_timer_);
  finder_.stop();
}

void PeerNet::add_address(uint32_t ip_be) {
  rendezvous_->serve_address(ip_be);
  if (served_.insert(ip_be).second) tell_store();
}

void PeerNet::name_address(uint32_t ip_be, std::vector<wire::Gid> gids) {
  if (std::exchange(gids_[ip_be], std::move(gids)) != gids_[ip_be]) tell_store();
}

void PeerNet::claim_gids(const std::vector<wire::Gid>& gids) {
  const size_t before = claimed_.size();
  claimed_.insert(gids.begin(), gids.end());
  if (claimed_.size() != before) tell_store();
}

void PeerNet::store_set(RedisServer server, bool by_gid) {
  by_gid_ = by_gid;
  store_ = std::make_unique<StoredHosts>(
      reactor_, std::move(server), [this](uint32_t ip_be) { rendezvous_->serve_address(ip_be); });
  tell_store();
}

void PeerNet::tell_store() {
  if (store_ == nullptr) return;
  std::vector<wire::Gid> gids(claimed_.begin(), claimed_.end());
  for (const uint32_t ip_be : served_) gids.push_back(wire::Gid::from_ipv4(ip_be));
  for (const auto& [ip_be, names] : gids_) gids.insert(gids.end(), names.begin(), names.end());
  store_->serve(std::move(gids), {served_.begin(), served_.end()});
}

bool PeerNet::look_up(const wire::Gid& gid, StoredCallback then) {
  return store_ != nullptr && store_->look_up(gid, std::move(then));
}

bool PeerNet::has_gid(uint32_t ip_be, const wire::Gid& gid) {
  const auto found = gids_.find(ip_be);
  return found != gids_.end() && std::ranges::find(found->second, gid) != found->second.end();
}

void PeerNet::remove_address(uint32_t ip_be) {
  // The address is left later, because this call may come from inside the port that goes away.
  reactor_.call_soon([weak = std::weak_ptr<PeerNet*>(alive_), ip_be] {
    const auto net = weak.lock();
    if (!net) return;
    (*net)->rendezvous_->leave_address(ip_be);
    if ((*net)->served_.erase(ip_be) != 0) (*net)->tell_store();
  });
}

void PeerNet::find_address(uint32_t local_ip_be, const wire::Gid& gid, AddressCallback callback) {
  if (!by_gid_) return callback(std::nullopt);
  auto known = [this, local_ip_be, gid] {
    const auto ip = gid.ipv4();
    return ip ? ip : rendezvous_->gid_address(local_ip_be, gid);
  };
  if (const auto ip = known()) return callback(ip);
  rendezvous_->gid_ask(local_ip_be, gid,
                       [known, callback = std::move(callback)](bool) { callback(known()); });
}

void PeerNet::find_peer(const FindRequest& request, FindCallback callback) {
  finder_.start(request, std::move(callback));
}

Channel* PeerNet::find_channel(const wire::Instance& peer) noexcept {
  const auto it = channels_.find(peer);
  return it == channels_.end() ? nullptr : it->second.get();
}

std::vector<uint16_t> PeerNet::ports() const {
  std::vector<uint16_t> all;
  for (const uint64_t key : secrets_.key_ids()) all.push_back(Secrets::port_of(options_.port, key));
  return all;
}

void PeerNet::retry_connections() {
  for (auto& [peer, channel] : channels_) channel->retry_connections();
}

// Whether a channel that something relies on leads to that address.
bool PeerNet::serves_at(uint32_t ip_be) {
  return std::ranges::any_of(channels_, [&](const auto& one) {
    return one.second->is_at(ip_be) && relies_on(*one.second);
  });
}

std::vector<uint32_t> PeerNet::others(const wire::Gid& gid) {
  std::vector<uint32_t> all = book_ == nullptr ? std::vector<uint32_t>{} : book_->others(gid);
  if (store_ == nullptr) return all;
  const auto usual = by_gid_ ? gid.ipv4() : std::nullopt;
  for (const uint32_t ip_be : store_->known(gid))
    if (ip_be != usual && std::ranges::find(all, ip_be) == all.end()) all.push_back(ip_be);
  return all;
}

bool PeerNet::leads_to(const PeerChannel& channel, const wire::Gid& gid) {
  const auto ip = gid.ipv4();
  if ((ip && channel.is_at(*ip)) || channel.is_keyed()) return true;
  return std::ranges::any_of(others(gid), [&](uint32_t other) { return channel.is_at(other); });
}

void PeerNet::host_seen(const wire::Gid& gid, const std::vector<uint32_t>& addresses_be) {
  if (book_ == nullptr || !book_->see(gid, addresses_be) || keep_timer_ != 0) return;
  // The first host is written at once, since the process may be over soon. In a job that begins,
  // hundreds come in a moment.
  constexpr std::chrono::milliseconds kPause{250};
  const auto due = std::max(Reactor::Clock::now(), kept_at_ + kPause);
  keep_timer_ = reactor_.timer_start(due, [this] {
    keep_timer_ = 0;
    kept_at_ = Reactor::Clock::now();
    book_->keep();
  });
}

bool PeerNet::is_at(const wire::Gid& gid, uint32_t local_ip_be, uint32_t remote_ip_be) {
  const auto ip = gid.ipv4();
  const std::vector<uint32_t> all = others(gid);
  if (ip == remote_ip_be || std::ranges::find(all, remote_ip_be) != all.end()) return true;
  if (ip) return secrets_.has_keys();
  const auto known = rendezvous_->gid_address(local_ip_be, gid);
  if (known == remote_ip_be) {
    return secrets_.has_keys() || !neighbour_contradicts(remote_ip_be, gid);
  }
  // Whoever knows the names of two QPs may say them from anywhere. It casts no doubt on an address
  // where a peer is.
  if (known && serves_at(*known)) return false;
  if (known) rendezvous_->gid_doubt(local_ip_be, gid);
  rendezvous_->gid_ask(local_ip_be, gid, [](bool) {});
  return false;
}

const PairKey* PeerNet::pair_key(const wire::Instance& peer) const {
  const auto found = channels_.find(peer);
  return found == channels_.end() ? nullptr : found->second->pair_key();
}

void PeerNet::on_inbound(Joining joining) {
  // The connection comes from a search of this very process, so it needs no channel here: the
  // dialing side takes the channel to itself.
  if (joining.peer != instance()) (void)join(std::move(joining));
}

std::unique_ptr<Channel> PeerNet::channel_make(const wire::Instance& peer, uint64_t key) {
  Channel::Host& host = *this;
  const auto before = taken_.extract(peer);
  const uint64_t taken = before.empty() ? 0 : before.mapped();
  return std::make_unique<Channel>(reactor_, *rendezvous_, host, peer, key, taken,
                                   Channel::Times{options_.grace, options_.idle_look});
}

Channel* PeerNet::self_channel() {
  auto& channel = channels_[instance()];
  if (!channel) channel = channel_make(instance(), 0);
  return channel.get();
}

// A channel needs one connection; only when there are few in all, it gets more than two.
bool PeerNet::is_crowded(bool first) const {
  size_t count = 0;
  for (const auto& [peer, channel] : channels_) count += channel->sockets();
  return count >= (first ? connections_max() : connections_max() / 2);
}

// Channels that nothing relies on give way to a connection that is needed.
bool PeerNet::has_room(bool is_needed) {
  while (is_crowded(is_needed))
    if (!is_needed || !idle_channels_.make_room()) return false;
  return true;
}

// The channel ends when another one needs the place and nothing relies on this one.
void PeerNet::idle_place_take(const wire::Instance& peer, uint32_t remote_ip_be) {
  idle_places_[peer] = idle_channels_.sit(remote_ip_be, [this, peer] {
    idle_places_.erase(peer);
    Channel* channel = find_channel(peer);
    if (channel != nullptr && !relies_on(*channel)) on_channel_dead(*channel);
  });
}

std::vector<Channel*> PeerNet::channels_at(uint32_t ip_be) {
  std::vector<Channel*> found;
  for (auto& [peer, channel] : channels_)
    if (channel->is_at(ip_be)) found.push_back(channel.get());
  return found;
}

Channel* PeerNet::join_dialed(Joining joining) {
  if (joining.peer == instance()) return self_channel();
  const uint32_t local_ip_be = joining.local_ip_be, remote_ip_be = joining.remote_ip_be;
  Channel* channel = join(std::move(joining));
  // The process that dialed a connection also dials it again when it is lost.
  if (channel != nullptr) channel->keep_found(local_ip_be, remote_ip_be);
  return channel;
}

Channel* PeerNet::join(Joining joining) {
  const wire::Instance peer = joining.peer;
  const uint32_t remote_ip_be = joining.remote_ip_be;
  const Channel* known = find_channel(peer);
  const bool has = has_room(known == nullptr || known->live_connections() < 2);
  Channel* channel = find_channel(peer);  // it may have given way itself
  if (!has) {
    SHIFT_WARN_LIMITED("too many control connections for RLIMIT_NOFILE: one more is turned away");
    return channel;
  }
  const bool first = channel == nullptr;
  if (first) {
    if (channels_.size() >= kChannelsMax) return nullptr;
    idle_place_take(peer, remote_ip_be);
    auto made = channel_make(peer, joining.key);
    channel = made.get();
    channels_.emplace(peer, std::move(made));
  }
  if (!channel->join(std::move(joining))) {
    // A channel that takes no further connection is full, and serves as well as it is.
    if (!first) return channel;
    channels_.erase(peer);
    idle_places_.erase(peer);
    return nullptr;
  }
  delegate_.on_connection_up(channel, channel->live_connections() == 1);
  return channel;
}

// (A channel that something relies on does not give way to its own connection.)
bool PeerNet::may_connect(Channel& channel, bool is_needed) {
  return is_needed && relies_on(channel) ? has_room(true) : !is_crowded(is_needed);
}

bool PeerNet::on_connection_dialed(Channel& channel, Joining joining) {
  const bool may = may_connect(channel, channel.live_connections() < 2);
  if (!may || !channel.join(std::move(joining))) return false;
  delegate_.on_connection_up(&channel, channel.live_connections() == 1);
  return true;
}

bool PeerNet::on_channel_message(Channel& channel, const wire::Message& message) {
  if (const auto* hello = std::get_if<wire::Hello>(&message)) return on_question(channel, *hello);
  if (const auto* reply = std::get_if<wire::HelloReply>(&message)) {
    if (reply->status == wire::HelloStatus::kOk && reply->instance != channel.peer()) return false;
    finder_.on_reply(channel, *reply);
    return true;
  }
  delegate_.on_message(&channel, message);
  return true;
}

// Whether the channel leads to the host of the asker's QP. The link is not asked here.
bool PeerNet::leads_to_asker(Channel& channel, const wire::Hello& hello) {
  if (leads_to(channel, hello.from.gid)) return true;
  if (hello.from.gid.ipv4()) return false;
  auto own = hello.want.gid.ipv4();
  for (const auto& [ip_be, gids] : gids_)
    if (!own && std::ranges::count(gids, hello.want.gid) != 0) own = ip_be;
  const auto ip = own ? rendezvous_->gid_address(*own, hello.from.gid) : std::nullopt;
  return ip && channel.is_at(*ip);
}

// A peer that has a channel to this process looks for one more of its QPs.
bool PeerNet::on_question(Channel& channel, const wire::Hello& hello) {
  if (hello.instance != channel.peer() || !hello.target.is_zero()) return false;
  wire::HelloReply reply;
  reply.instance = instance();
  reply.want = hello.want;
  reply.from = hello.from;
  // If no connection has come from the asker's address yet, the peer opens one there.
  const bool is_expected = expects(hello);
  if (!is_expected || !leads_to_asker(channel, hello)) reply.status = wire::HelloStatus::kNoSuchQp;
  if (is_expected && reply.status != wire::HelloStatus::kOk)
    (void)look_up(hello.from.gid, [](Stored) {});  // the asker comes again
  channel.send(reply);
  return true;
}

void PeerNet::on_channel_dead(Channel& channel) {
  const auto node = channels_.extract(channel.peer());
  if (node.empty()) return;
  idle_places_.erase(channel.peer());
  if (taken_.size() >= kTakenMax) taken_.erase(taken_.begin());
  taken_[channel.peer()] = channel.taken();
  finder_.on_channel_down(channel.peer());
  delegate_.on_channel_down(&channel);
}

}  // namespace shift::net
