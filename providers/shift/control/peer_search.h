// The search for the process that owns a QP's peer, and the channel to it: one for each session.
// The leader looks, the follower is found. Control loop only.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "control/nic_watch.h"
#include "group/group.h"
#include "net/network.h"
#include "net/timer.h"
#include "wire/messages.h"

namespace shift::control {

// What a search tells its session.
class PeerSearchSink {
 public:
  // There is a channel to the process that may own the peer's QP: whatever counts has to be said on
  // it.
  virtual void channel_found() = 0;
  // Nobody owns the peer's QP, or nobody can be asked. Never after the peer has been proven.
  virtual void peer_missing(const char* cause) = 0;

 protected:
  ~PeerSearchSink() = default;
};

class PeerSearch {
 public:
  PeerSearch(group::Group& group, PeerSearchSink& sink, net::Loop& loop, net::PeerNetwork& net,
             const NicWatch& nics);
  // Gives up the connections that were kept for the session's sake.
  ~PeerSearch();

  // The session begins: its leader looks, its follower waits to be asked.
  void begin();
  // Looks again after a pause, without which a peer that has gone would be asked at once. A
  // follower does so only to learn whether the peer's process is gone, and waits to be found.
  void look_later(std::chrono::milliseconds pause);
  // No more searches, and no more Binds.
  void end();

  // Null: there is none now.
  net::PeerChannel* channel() const { return channel_; }
  // Sends on the channel, if there is one.
  template <typename Message>
  void send(const Message& message) const {
    if (channel_ != nullptr) channel_->send(message);
  }
  void send_bind();

  // The peer has shown that it owns the other QP.
  bool is_proven() const { return proven_; }
  // ... and has said so on this channel.
  bool is_proven_on(const net::PeerChannel* channel) const {
    return proven_ && channel_proven_ && channel_ == channel;
  }
  // Whether the channel may speak for the peer: only the process that proved to own the peer's QP
  // does (C11), if any has.
  bool may_speak(const net::PeerChannel* channel) const {
    return !channel_proven_ || channel_ == channel;
  }

  // Of a proven peer to which there is no channel: the last search found that its process is gone,
  // or its QP.
  bool is_peer_gone() const { return gone_ && channel_ == nullptr; }

  // Whether a Bind knows the start PSNs, which only the two ends know (C11).
  bool proof_fits(const wire::Bind& bind) const;
  // A Bind with a proof that fits came on this channel, which is the peer's from here on. The
  // channel that it was before.
  net::PeerChannel* take_channel(net::PeerChannel* channel);
  // The first such Bind ends the search.
  void set_proven();
  // The addresses that the peer's newest Bind names.
  void set_peer_addresses(const std::vector<wire::Gid>& members);
  // Leader: the channel must not depend on the NICs that may fail. Keeps one connection for each
  // pair of addresses that the two ends have now.
  void widen();
  // All connections of the channel are lost.
  void channel_lost();

 private:
  // Of a connection that is kept: ours and the peer's, in network byte order.
  using AddressPair = std::pair<uint32_t, uint32_t>;

  void look();
  void found(net::PeerChannel* channel);
  void missing(const char* cause);
  void await_search();
  bool is_cut_off() const;
  void bind_again();
  net::PeerChannel* set_channel(net::PeerChannel* channel);

  group::Group& group_;
  PeerSearchSink& sink_;
  net::Loop& loop_;
  net::PeerNetwork& net_;
  const NicWatch& nics_;

  net::PeerChannel* channel_ = nullptr;
  bool proven_ = false, channel_proven_ = false;
  bool ended_ = false;
  bool gone_ = false;
  std::vector<uint32_t> peer_addresses_;
  std::vector<AddressPair> kept_;
  // A search that is under way ends with its answer, which may come when this is gone.
  bool looking_ = false;
  std::shared_ptr<const bool> alive_ = std::make_shared<bool>(true);
  net::Timer look_again_;
  // When Bind is said again to a peer that was found and has proved nothing, after which pause, and
  // until when.
  net::Timer bind_again_;
  std::chrono::milliseconds bind_pause_{};
  Time bind_until_{};
  // Follower: nobody has looked for it.
  net::Timer no_peer_;
};

}  // namespace shift::control
