// The control network of a simulation: messages between hosts travel in memory, in virtual time,
// and a test decides what is lost, delayed or doubled.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "control/network.h"
#include "sim/virtual_loop.h"
#include "wire/messages.h"

namespace shift::control {

class MemoryNetwork {
 public:
  // How often a message arrives: 0 is lost, 2 a copy.
  std::function<int(const wire::Message& message)> copies = [](const wire::Message&) { return 1; };
  // How long each copy takes.
  std::function<Loop::Clock::duration()> delay = [] { return std::chrono::microseconds(30); };
  size_t delivered = 0;

  explicit MemoryNetwork(VirtualTime& time) : time_(time) {}
  MemoryNetwork(const MemoryNetwork&) = delete;
  MemoryNetwork& operator=(const MemoryNetwork&) = delete;

  // The network as one host sees it.
  std::unique_ptr<PeerNetwork> host_add(Delegate& delegate) {
    hosts_.push_back(&delegate);
    return std::make_unique<Host>(*this, delegate);
  }
  // No message passes from here on; sending says so.
  void cut() { connected_ = false; }
  // Both ends learn that a connection joined.
  void restore() {
    connected_ = true;
    for (auto& channel : channels_) channel->owner.on_connection_up(channel.get(), false);
  }
  // Every channel ends, as after the grace period.
  void lose_channels() {
    for (auto& channel : channels_) {
      if (std::exchange(channel->alive, false)) channel->owner.on_channel_down(channel.get());
    }
  }

 private:
  struct Channel final : PeerChannel {
    Channel(MemoryNetwork& n, Delegate& d) : net(n), owner(d) {}
    bool is_self() const noexcept override { return other == this; }
    size_t send(const wire::Message& message) override {
      if (!net.connected_ || !alive) return 0;
      std::vector<uint8_t> bytes;
      EXPECT_TRUE(encode(message, bytes));
      for (int i = net.copies(message); i > 0; i--) {
        net.time_.in(net.delay(), [this, bytes] { deliver(bytes); });
      }
      return 1;
    }
    void add_path(uint32_t, uint32_t) override {}
    void deliver(const std::vector<uint8_t>& bytes) {
      wire::Message message;
      ASSERT_TRUE(decode(bytes, message));
      if (!net.connected_ || !other->alive) return;
      net.delivered++;
      other->owner.on_message(other, message);
    }

    MemoryNetwork& net;
    Delegate& owner;
    Channel* other = nullptr;
    bool alive = true;
  };

  struct Host final : PeerNetwork {
    Host(MemoryNetwork& n, Delegate& d) : net(n), owner(d) {}
    void add_address(uint32_t) override {}
    void retry_paths() override {}
    void find_peer(const FindRequest& request, FindCallback callback) override {
      net.time_.in(net.delay(), [this, request, callback] { net.find(owner, request, callback); });
    }

    MemoryNetwork& net;
    Delegate& owner;
  };

  void find(Delegate& asker, const FindRequest& request, const FindCallback& callback) {
    if (!connected_) return callback(nullptr, FindError::kUnreachable);
    for (Delegate* host : hosts_) {
      if (!host->knows_qp(request.remote)) continue;
      return callback(channel_between(asker, *host), FindError::kNone);
    }
    callback(nullptr, FindError::kNoSuchQp);
  }
  Channel* channel_between(Delegate& asker, Delegate& found) {
    for (auto& channel : channels_) {
      if (channel->alive && &channel->owner == &asker && &channel->other->owner == &found) {
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
  std::vector<Delegate*> hosts_;
  std::deque<std::unique_ptr<Channel>> channels_;
};

}  // namespace shift::control
