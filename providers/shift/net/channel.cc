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
// The bound for connections, which the peer may open too, and for pairs of addresses. No channel
// gains from more.
constexpr size_t kConnectionsMax = 64;
}  // namespace

Channel::Channel(Reactor& reactor, Rendezvous& rendezvous, Host& host, const wire::Instance& peer,
                 std::chrono::milliseconds grace)
    : reactor_(reactor),
      rendezvous_(rendezvous),
      host_(host),
      peer_(peer),
      self_(peer == host.own_instance()),
      grace_(grace),
      alive_(std::make_shared<Channel*>(this)) {}

Channel::~Channel() {
  reactor_.timer_cancel(grace_timer_);
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
bool Channel::on_message(uint64_t sequence, const wire::Message& message) {
  if (sequence <= taken_) return sequence != 0;
  taken_ = sequence;
  return host_.on_channel_message(*this, message);
}

bool Channel::join(UniqueFd fd, uint32_t local_ip_be, uint32_t remote_ip_be) {
  if (self_ || connections_.size() >= kConnectionsMax) return false;
  auto connection =
      std::make_shared<Connection>(reactor_, std::move(fd), local_ip_be, remote_ip_be);
  Connection::Events events;
  // The lambda may use `this`: ~Channel drops the connections before they can call again.
  events.on_message = [this](Connection&, uint64_t sequence, const wire::Message& message) {
    return on_message(sequence, message);
  };
  events.on_closed = [weak = std::weak_ptr<Channel*>(alive_)](Connection& c, const char* reason) {
    if (const auto channel = weak.lock()) (*channel)->on_closed(c, reason);
  };
  if (!connection->open(std::move(events))) return false;
  connections_.push_back(std::move(connection));
  seen_at_.insert(remote_ip_be);
  reactor_.timer_cancel(std::exchange(grace_timer_, 0));
  SHIFT_DEBUG("control connection %s -> %s up, %zu in all", IpText(local_ip_be).c_str(),
              IpText(remote_ip_be).c_str(), connections_.size());
  return true;
}

void Channel::on_closed(Connection& connection, const char* reason) {
  SHIFT_INFO("control connection %s -> %s lost: %s", IpText(connection.local_ip_be()).c_str(),
             IpText(connection.remote_ip_be()).c_str(), reason);
  std::erase_if(connections_, [&](const auto& c) { return c.get() == &connection; });
  for (auto& pair : kept_)
    if (!connected_over(*pair) && pair->dial == 0 && pair->retry == 0) pair_retry_later(*pair);
  if (connections_.empty() && grace_timer_ == 0)
    grace_timer_ = reactor_.timer_start(grace_, [this] {
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
  if (kept_.size() >= kConnectionsMax) return nullptr;
  const auto index = static_cast<uint8_t>(kept_.size() + 1);
  kept_.push_back(std::make_unique<KeptPair>(KeptPair{local_ip_be, remote_ip_be, index}));
  if (!connected_over(*kept_.back())) pair_dial(*kept_.back());
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

void Channel::retry_connections() {
  for (auto& pair : kept_) {
    if (connected_over(*pair) || pair->dial != 0) continue;
    pair->failures = 0;
    reactor_.timer_cancel(std::exchange(pair->retry, 0));
    pair_dial(*pair);
  }
}

void Channel::pair_dial(KeptPair& pair) {
  wire::Hello hello;
  hello.instance = host_.own_instance();
  hello.target = peer_;
  hello.pair = pair.index;
  pair.dial =
      rendezvous_.dial(pair.local_ip_be, pair.remote_ip_be, hello,
                       [this, &pair](DialError error, UniqueFd fd, const wire::Instance& peer) {
                         pair.dial = 0;
                         on_dialed(pair, error, std::move(fd), peer);
                       });
}

void Channel::on_dialed(KeptPair& pair, DialError error, UniqueFd fd, const wire::Instance& peer) {
  if (error != DialError::kNone) return pair_retry_later(pair);
  pair.failures = 0;
  if (!host_.on_connection_dialed(*this, std::move(fd), pair.local_ip_be, pair.remote_ip_be))
    pair_retry_later(pair);
}

void Channel::pair_retry_later(KeptPair& pair) {
  const auto pause = std::min(kRetryMin * (1 << std::min(pair.failures++, 10)), kRetryMax);
  pair.retry = reactor_.timer_start(pause, [this, &pair] {
    pair.retry = 0;
    // The peer may have opened the connection meanwhile.
    if (!connected_over(pair)) pair_dial(pair);
  });
}

}  // namespace shift::net
