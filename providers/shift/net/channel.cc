// The connections to one peer process.
#include "net/channel.h"

#include <algorithm>

#include "net/socket.h"
#include "util/log.h"

namespace shift::net {

using namespace std::chrono_literals;

namespace {
constexpr std::chrono::milliseconds kRetryMin = 50ms;
constexpr std::chrono::milliseconds kRetryMax = 5s;
// Nobody may ever have listened at an address that the peer named.
constexpr std::chrono::milliseconds kRetryNeverUpMax = 60s;
// The peer may say again and again that a NIC of its came back.
constexpr std::chrono::milliseconds kHintPause = 1s;
// The bound for pairs of addresses: two hosts of eight NICs have no more.
constexpr size_t kPairsMax = 64;
// Both ends may dial a pair at the same time. A pair that found no place because another had two
// would be missed when it is the only one that works.
constexpr size_t kConnectionsMax = 2 * kPairsMax;
constexpr size_t kStrangerConnectionsMax = 4;  // while nothing relies on the peer
}  // namespace

Channel::Channel(Reactor& reactor, Rendezvous& rendezvous, Host& host, const wire::Instance& peer,
                 uint64_t key, uint64_t taken, const Times& times)
    : reactor_(reactor),
      rendezvous_(rendezvous),
      host_(host),
      peer_(peer),
      self_(peer == host.own_instance()),
      key_(key),
      times_(times),
      alive_(std::make_shared<Channel*>(this)),
      taken_(taken) {
  if (!self_) idle_timer_ = reactor_.timer_start(times_.idle_look, [this] { look_idle(); });
}

Channel::~Channel() {
  reactor_.timer_cancel(grace_timer_);
  reactor_.timer_cancel(idle_timer_);
  for (auto& pair : kept_) {
    reactor_.timer_cancel(pair->retry);
    rendezvous_.dial_cancel(pair->dial);
  }
}

size_t Channel::send(const wire::Message& message) {
  if (self_) return send_to_self(message);
  if (connections_.empty()) return 0;
  encoded_.clear();
  if (!wire::encode(message, encoded_, host_.next_sequence())) {
    SHIFT_WARN_LIMITED("%s message does not fit", wire::message_name(message));
    return 0;
  }
  const Way way{host_.own_instance(), peer_};
  if (key_ != 0 && !seal(host_.secrets().job_key(key_), key_, way, encoded_)) return 0;
  size_t count = 0;
  for (auto& connection : connections_) count += connection->queue(encoded_);
  if (encoded_.capacity() > 64 * 1024) encoded_ = {};
  return count;
}

size_t Channel::send_to_self(const wire::Message& message) {
  const bool queued = reactor_.call_soon([weak = std::weak_ptr<Channel*>(alive_), message] {
    if (const auto channel = weak.lock())
      (void)(*channel)->host_.on_channel_message(**channel, message);
  });
  return queued ? 1 : 0;
}

// Takes the first copy of each message. A message that a slow connection brings after a newer one
// is dropped, even when it is the only copy: it may be about a queue pair that has been connected
// anew (C8), and the peer has repeated on the newer connections what it sent on the slow one alone.
bool Channel::on_frame(std::span<const uint8_t> frame) {
  const uint64_t sequence = wire::frame_sequence(frame);
  if (sequence <= taken_) return sequence != 0;
  if (sequence - taken_ > kJumpMax || wire::frame_is_sealed(frame) != (key_ != 0)) return false;
  std::vector<uint8_t> opened;
  if (key_ != 0) {
    const SecretKey key = host_.secrets().job_key(sealed_with(frame));
    if (key.empty() || !unseal(key, {peer_, host_.own_instance()}, frame, opened)) return false;
    frame = opened;
  }
  wire::Message message;
  if (!wire::decode(frame, message)) return false;
  taken_ = sequence;
  return host_.on_channel_message(*this, message);
}

bool Channel::is_full() {
  const size_t count = connections_.size();
  return count >= kConnectionsMax || (count >= kStrangerConnectionsMax && !host_.relies_on(*this));
}

// Only QPs need a channel: the descriptors of one that serves none are given back.
void Channel::look_idle() {
  idle_looks_ = host_.relies_on(*this) ? 0 : idle_looks_ + 1;
  idle_timer_ = 0;
  if (idle_looks_ >= 2) return host_.on_channel_dead(*this);  // destroys this
  idle_timer_ = reactor_.timer_start(times_.idle_look, [this] { look_idle(); });
}

bool Channel::join(Joining joining) {
  if (self_ || is_full()) return false;
  const uint32_t local_ip_be = joining.local_ip_be, remote_ip_be = joining.remote_ip_be;
  auto connection =
      std::make_shared<Connection>(reactor_, std::move(joining.fd), local_ip_be, remote_ip_be);
  Connection::Events events;
  // The lambdas may use `this`: ~Channel drops the connections before they can call again.
  events.on_frame = [this](Connection&, std::span<const uint8_t> frame) { return on_frame(frame); };
  events.is_relied_on = [this] { return host_.relies_on(*this); };
  events.on_closed = [weak = std::weak_ptr<Channel*>(alive_)](Connection& c, const char* reason) {
    if (const auto channel = weak.lock()) (*channel)->on_closed(c, reason);
  };
  if (!connection->open(std::move(events))) return false;
  connections_.push_back(std::move(connection));
  seen_at_.insert(remote_ip_be);
  if (key_ == 0) pair_key_ = joining.pair_key;
  reactor_.timer_cancel(std::exchange(grace_timer_, 0));
  SHIFT_DEBUG("control connection %s -> %s up, %zu in all", IpText(local_ip_be).c_str(),
              IpText(remote_ip_be).c_str(), connections_.size());
  return true;
}

void Channel::on_closed(Connection& connection, const char* reason) {
  SHIFT_INFO_FEW("control connection %s -> %s lost: %s", IpText(connection.local_ip_be()).c_str(),
                 IpText(connection.remote_ip_be()).c_str(), reason);
  std::erase_if(connections_, [&](const auto& c) { return c.get() == &connection; });
  for (auto& pair : kept_)
    if (!connected_over(*pair) && pair->dial == 0 && pair->retry == 0) pair_retry_later(*pair);
  if (connections_.empty() && grace_timer_ == 0)
    grace_timer_ = reactor_.timer_start(times_.grace, [this] {
      grace_timer_ = 0;
      host_.on_channel_dead(*this);
    });
}

bool Channel::connected_over(const KeptPair& pair) const noexcept {
  return std::any_of(connections_.begin(), connections_.end(), [&](const auto& c) {
    return c->is_open() && c->local_ip_be() == pair.local_ip_be &&
           c->remote_ip_be() == pair.remote_ip_be;
  });
}

// Returns null when there are too many pairs.
Channel::KeptPair* Channel::kept_at(uint32_t local_ip_be, uint32_t remote_ip_be) {
  for (auto& pair : kept_)
    if (pair->local_ip_be == local_ip_be && pair->remote_ip_be == remote_ip_be) return pair.get();
  if (kept_.size() >= kPairsMax) return nullptr;
  const auto index = static_cast<uint8_t>(kept_.size() + 1);
  kept_.push_back(std::make_unique<KeptPair>(KeptPair{local_ip_be, remote_ip_be, index}));
  if (!connected_over(*kept_.back())) pair_dial(*kept_.back(), sockets() < 2);
  return kept_.back().get();
}

bool Channel::keep_connection(uint32_t local_ip_be, uint32_t remote_ip_be) {
  KeptPair* pair = self_ ? nullptr : kept_at(local_ip_be, remote_ip_be);
  if (pair != nullptr) pair->users++;
  return pair != nullptr;
}

void Channel::drop_connection(uint32_t local_ip_be, uint32_t remote_ip_be) {
  const auto it = std::ranges::find_if(kept_, [&](const auto& pair) {
    return pair->local_ip_be == local_ip_be && pair->remote_ip_be == remote_ip_be;
  });
  if (it == kept_.end() || (*it)->users == 0 || --(*it)->users > 0) return;
  reactor_.timer_cancel((*it)->retry);
  rendezvous_.dial_cancel((*it)->dial);
  kept_.erase(it);
}

// Nobody has ever answered at the address of a pair that was never up, and that stays as unlikely.
void Channel::retry_connections() {
  const auto now = Reactor::Clock::now();
  for (auto& pair : kept_) {
    if (pair->hinted_at > now || pair->dial != 0 || connected_over(*pair)) continue;
    if (pair->was_up) pair->failures = 0;
    pair->hinted_at = std::max(now, pair->hinted_at + kHintPause);
    pair_dial_at(*pair, pair->hinted_at, true);
  }
}

size_t Channel::sockets() const noexcept {
  const auto dials = std::ranges::count_if(kept_, [](const auto& pair) { return pair->dial != 0; });
  return connections_.size() + static_cast<size_t>(dials);
}

// With two connections a channel does not need another one, unless these may not work.
void Channel::pair_dial(KeptPair& pair, bool is_needed) {
  if (!host_.may_connect(*this, is_needed)) return pair_retry_later(pair);
  wire::Hello hello;
  hello.instance = host_.own_instance();
  hello.target = peer_;
  hello.pair = pair.index;
  hello.key = key_;
  pair.dial = rendezvous_.dial(pair.local_ip_be, pair.remote_ip_be, hello,
                               [this, &pair](DialError error, Joining joining) {
                                 pair.dial = 0;
                                 on_dialed(pair, error, std::move(joining));
                               });
}

void Channel::on_dialed(KeptPair& pair, DialError error, Joining joining) {
  if (error != DialError::kNone) return pair_retry_later(pair);
  pair.failures = 0;
  pair.was_up = true;
  if (!host_.on_connection_dialed(*this, std::move(joining))) pair_retry_later(pair);
}

std::chrono::milliseconds Channel::retry_pause(int failures, bool was_up) {
  return std::min(kRetryMin * (1 << std::min(failures, 11)), was_up ? kRetryMax : kRetryNeverUpMax);
}

void Channel::pair_retry_later(KeptPair& pair) {
  const auto pause = retry_pause(pair.failures++, pair.was_up);
  pair_dial_at(pair, Reactor::Clock::now() + pause, false);
}

void Channel::pair_dial_at(KeptPair& pair, Reactor::Clock::time_point at, bool is_needed) {
  reactor_.timer_cancel(pair.retry);
  pair.retry = reactor_.timer_start(at, [this, &pair, is_needed] {
    pair.retry = 0;
    // The peer may have opened the connection meanwhile.
    if (!connected_over(pair)) pair_dial(pair, is_needed || sockets() < 2);
  });
}

}  // namespace shift::net
