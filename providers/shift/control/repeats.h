// Decides when everything that counts is said again on a channel, because a connection joined it:
// what was said on connections that are lost meanwhile, unnoticed, has not been heard. Hosts with
// eight NICs have up to 64 connections between two processes, and these join in a burst; one
// repetition for all of them is enough. Only the control loop uses this.
#pragma once

#include <chrono>
#include <functional>
#include <unordered_map>

#include "net/network.h"
#include "net/timer.h"

namespace shift::control {

class Repeats {
 public:
  // Says everything that counts on the channel.
  using Say = std::function<void(const net::PeerChannel* channel)>;
  Repeats(net::Loop& loop, Say say) : loop_(loop), say_(std::move(say)) {}

  // How long a connection that joins others waits for more that join.
  static constexpr std::chrono::milliseconds kTogether{10};

  // A connection joined the channel. `alone`: the channel has no other, so that nothing at all can
  // be heard before it is said, and it is said at once.
  void connection_up(const net::PeerChannel* channel, bool alone);
  // The channel ends.
  void forget(const net::PeerChannel* channel) { waiting_.erase(channel); }

 private:
  net::Loop& loop_;
  const Say say_;
  std::unordered_map<const net::PeerChannel*, net::Timer> waiting_;
};

}  // namespace shift::control
