// The control network of a simulation: messages between hosts travel in memory, in virtual time,
// and a test decides which messages are lost, delayed or doubled.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "net/network.h"
#include "net/test/virtual_loop.h"
#include "wire/messages.h"

namespace shift::net {

class MemoryNetwork {
 public:
  using Duration = Loop::Clock::duration;

  // How often a message arrives: with 0 it is lost, with 2 a copy arrives too.
  std::function<int(const wire::Message& message)> copies = [](const wire::Message&) { return 1; };
  // How long the first copy of a message travels.
  std::function<Duration()> delay = [] { return std::chrono::microseconds(30); };
  // How long each further copy travels, which comes over another connection.
  std::function<Duration()> copy_delay = [this] { return delay(); };
  // Called before and after a message is handed over.
  std::function<void(const Delegate&to, const wire::Message&message)> before, after;
  // Whether a connection has come from that address, or has reached it.
  std::function<bool(uint32_t ip_be)> is_reached = [](uint32_t) { return true; };
  // Whether the channel to that host leads to the address; not every host has every address.
  std::function<bool(const Delegate& host, uint32_t ip_be)> has_address =
      [](const Delegate&, uint32_t) { return true; };
  // A store says of these GIDs that they are the host's to which a channel leads; empty: there is
  // no store. Nobody knows before it is asked.
  std::set<wire::Gid> stored;
  size_t delivered = 0;
  size_t retries = 0;     // calls of retry_connections()
  bool in_order = false;  // first copies arrive in the order in which they were sent

  explicit MemoryNetwork(VirtualTime& time) : time_(time) {}
  MemoryNetwork(const MemoryNetwork&) = delete;
  MemoryNetwork& operator=(const MemoryNetwork&) = delete;

  // Returns the network as the added host sees it.
  std::unique_ptr<PeerNetwork> host_add(Delegate& delegate) {
    hosts_.push_back(&delegate);
    return std::make_unique<Host>(*this, delegate);
  }
  // Adds a host that is found before all others. Its delegate claims to own all QPs.
  void impostor_add(Delegate& delegate) { hosts_.insert(hosts_.begin(), &delegate); }
  // The channel from one host, which need not have been added, to another.
  PeerChannel* channel_open(Delegate& from, Delegate& to) { return channel_between(from, to); }
  // From here on no message passes, and send() returns 0.
  void cut() {
    connected_ = false;
    losses_++;
  }
  // Both ends learn that a connection joined, and every other time that it is one of several.
  void restore() {
    connected_ = true;
    for (auto& channel : channels_) {
      if (channel->alive) channel->owner.on_connection_up(channel.get(), losses_ % 2 == 0);
    }
  }
  bool is_cut() const { return !connected_; }
  // The own and the peer's address of each connection that a host keeps, once for each call of
  // keep_connection().
  using Paths = std::multiset<std::pair<uint32_t, uint32_t>>;
  Paths paths_of(const Delegate& owner) const {
    Paths all;
    for (const auto& channel : channels_) {
      if (channel->alive && &channel->owner == &owner) all.merge(Paths(channel->paths));
    }
    return all;
  }
  // Every channel ends, as it does after the grace period. The ends at `first` notice it at once,
  // the other ends after `gap`; without `first`, all ends notice it at once.
  void lose_channels(const Delegate* first = nullptr, Duration gap = {}) {
    losses_++;
    for (auto& channel : channels_) {
      if (!channel->alive) continue;
      channel->broken = true;
      if (first == nullptr || &channel->owner == first) {
        end(*channel);
      } else {
        time_.in(gap, [lost = channel.get()] {
          if (lost->alive) end(*lost);
        });
      }
    }
  }
  // The process `gone` ends; its peers notice it after `grace`.
  void host_remove(const Delegate& gone, Duration grace) {
    losses_++;
    std::erase(hosts_, &gone);
    for (auto& channel : channels_) {
      if (&channel->owner == &gone) {
        channel->alive = false;
      } else if (&channel->other->owner == &gone) {
        channel->broken = true;
        time_.in(grace, [lost = channel.get()] {
          if (lost->alive) end(*lost);
        });
      }
    }
  }

 private:
  struct Channel final : PeerChannel {
    Channel(MemoryNetwork& n, Delegate& d) : net(n), owner(d) {}
    bool is_self() const noexcept override { return other == this; }
    bool is_at(uint32_t ip_be) const override {
      return net.is_reached(ip_be) && net.has_address(other->owner, ip_be);
    }
    size_t send(const wire::Message& message) override {
      if (!net.connected_ || !alive || broken) return 0;
      auto bytes = std::make_shared<std::vector<uint8_t>>();
      if (!encode(message, *bytes)) std::abort();
      const int count = net.copies(message);
      for (int i = 0; i < count; i++) {
        auto due = net.time_.now() + (i == 0 ? net.delay() : net.copy_delay());
        // One connection keeps the order of its messages. Further copies come over other
        // connections, and so at any time.
        if (i == 0 && net.in_order) due = last_due = std::max(due, last_due);
        net.time_.at(due, [this, bytes, losses = net.losses_] {
          if (losses == net.losses_) deliver(*bytes);
        });
      }
      return 1;
    }
    bool keep_connection(uint32_t local_ip_be, uint32_t remote_ip_be) override {
      paths.emplace(local_ip_be, remote_ip_be);
      return true;
    }
    void drop_connection(uint32_t local_ip_be, uint32_t remote_ip_be) override {
      const auto path = paths.find({local_ip_be, remote_ip_be});
      if (path == paths.end()) std::abort();
      paths.erase(path);
    }
    void deliver(const std::vector<uint8_t>& bytes) {
      wire::Message message;
      if (!decode(bytes, message)) std::abort();
      if (!other->alive) return;
      net.delivered++;
      if (net.before) net.before(other->owner, message);
      if (!net.connected_ || !other->alive || other->broken) return;  // `before` made a fault
      other->owner.on_message(other, message);
      if (net.after) net.after(other->owner, message);
    }

    MemoryNetwork& net;
    Delegate& owner;
    Channel* other = nullptr;
    Loop::Clock::time_point last_due{};
    bool alive = true;
    Paths paths;
    bool broken = false;  // nothing passes any more, but this end has not noticed it
  };

  struct Host final : PeerNetwork {
    Host(MemoryNetwork& n, Delegate& d) : net(n), owner(d) {}
    void add_address(uint32_t) override {}
    void retry_connections() override { net.retries++; }
    void find_peer(const FindRequest& request, FindCallback callback) override {
      net.time_.in(net.delay(), [this, request, callback] { net.find(owner, request, callback); });
    }

    bool leads_to(const PeerChannel& channel, const wire::Gid& gid) override {
      return asked.contains(gid) || PeerNetwork::leads_to(channel, gid);
    }
    bool look_up(const wire::Gid& gid, StoredCallback then) override {
      if (net.stored.empty() || asked.contains(gid)) return false;
      net.time_.in(net.delay(), [this, gid, then = std::move(then)] {
        const bool is_there = net.stored.contains(gid);
        if (is_there) asked.insert(gid);
        then(is_there ? Stored::kFound : Stored::kUnknown);
      });
      return true;
    }

    MemoryNetwork& net;
    Delegate& owner;
    std::set<wire::Gid> asked;  // and found
  };

  static void end(Channel& channel) {
    channel.alive = false;
    channel.owner.on_channel_down(&channel);
  }
  void find(Delegate& asker, const FindRequest& request, const FindCallback& callback) {
    if (!connected_) {
      if (time_.now() >= request.deadline) return callback(nullptr, FindError::kUnreachable);
      time_.in(std::chrono::milliseconds(20),
               [this, &asker, request, callback] { find(asker, request, callback); });
      return;
    }
    for (Delegate* host : hosts_) {
      if (!host->knows_qp(request.remote)) continue;
      return callback(channel_between(asker, *host), FindError::kNone);
    }
    callback(nullptr, FindError::kNoSuchQp);
  }
  Channel* channel_between(Delegate& asker, Delegate& found) {
    for (auto& channel : channels_) {
      if (channel->alive && !channel->broken && &channel->owner == &asker &&
          &channel->other->owner == &found) {
        return channel.get();
      }
    }
    Channel* near = channels_.emplace_back(std::make_unique<Channel>(*this, asker)).get();
    if (&asker == &found) return near->other = near;
    Channel* far = channels_.emplace_back(std::make_unique<Channel>(*this, found)).get();
    near->other = far;
    far->other = near;
    return near;
  }

  VirtualTime& time_;
  bool connected_ = true;
  uint64_t losses_ = 0;  // no message that was sent before a loss arrives after the loss
  std::vector<Delegate*> hosts_;
  std::deque<std::unique_ptr<Channel>> channels_;
};

}  // namespace shift::net
