// Searches for the process that owns a QP's peer, and keeps the channel to it. The leader looks for
// the follower, and the follower is found; only a follower whose own NIC is hurt looks as well, if
// it has heard nothing. Each session has one search, which only the control loop uses.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "control/budget.h"
#include "control/nic_watch.h"
#include "group/group.h"
#include "net/network.h"
#include "net/timer.h"
#include "wire/messages.h"

namespace shift::control {

// What a search tells its session.
class PeerSearchSink {
 public:
  // There is a channel to the process that may own the peer's QP: everything that counts has to be
  // said on the channel.
  virtual void channel_found() = 0;
  // A Bind was sent.
  virtual void bind_sent() {}
  // The peer is found, and has proven that it is the peer. Called once.
  virtual void peer_proven() = 0;
  // No process owns the peer's QP, or there is no process to ask. Never called after the peer has
  // been proven.
  virtual void peer_missing(const char* cause) = 0;
  // The peer was proven, and its process or its QP is gone.
  virtual void peer_gone() = 0;
  // More is known of the peer's host: owns() may answer otherwise now.
  virtual void host_known() = 0;

 protected:
  ~PeerSearchSink() = default;
};

class PeerSearch {
 public:
  PeerSearch(group::Group& group, PeerSearchSink& sink, net::Loop& loop, net::PeerNetwork& net,
             const NicWatch& nics);
  // Gives up the connections that were kept for the session's sake.
  ~PeerSearch();

  // The session begins: a leader looks for its peer, and a follower waits to be found.
  void begin();
  // Looks again after a pause; without the pause, a peer that has gone would be asked again at
  // once. A follower looks only to learn whether the peer's process is gone, and still waits to be
  // found.
  void look_later(std::chrono::milliseconds pause);
  // The QP has reached RTS, so from here on Binds can be told right from wrong.
  void sends_begin();
  // From here on there are no more searches, and no more repeated Binds.
  void end();

  // Null if there is no channel now.
  net::PeerChannel* channel() const { return channel_; }
  // Sends on the channel, if there is one.
  template <typename Message>
  void send(const Message& message) const {
    if (channel_ != nullptr) channel_->send(message);
  }
  void send_bind();

  // The peer has shown that it owns the other QP.
  bool is_proven() const { return proven_; }
  // Nobody has proved anything, and the QP is in RTR, as its peer's may be: then nobody can.
  bool is_early() const;
  // The peer has shown that on this channel.
  bool is_proven_on(const net::PeerChannel* channel) const {
    return proven_ && channel_proven_ && channel_ == channel;
  }
  // Whether the search needs the channel: the peer has shown that on it, or may still be about to,
  // or has said there the Bind that is kept. So one QP needs two channels at most.
  bool relies_on(const net::PeerChannel* channel) const {
    return (channel_ == channel && (channel_proven_ || loop_.now() < relied_until_)) ||
           (kept_bind_ && kept_bind_->channel == channel);
  }
  // Whether the channel may speak for the peer: it leads to the address of the peer's QP, which is
  // in its GID, or which the link names. Once a process has proved that it owns that QP, no other
  // process may (C11).
  bool may_speak(const net::PeerChannel* channel);

  // Whether the peer may name this GID as one of its NICs': the channel leads to the host that has
  // it, or the application's own connection goes there (C11).
  bool owns(const wire::Gid& gid) const;
  // It does not own() this GID, as far as is known. A store may know better.
  void ask_owner(const wire::Gid& gid);

  // Whether a proven peer is gone: there is no channel to it, and the last search found that its
  // process or its QP is gone.
  bool is_peer_gone() const { return gone_ && channel_ == nullptr; }

  // Whether a Bind knows the start PSNs, which only the two ends know (C11). While both QPs are in
  // RTR, neither end has a PSN that it can compare. Nobody may guess PSNs at will: after many wrong
  // Binds even a right one is not looked at for a moment, and an honest peer says it again.
  enum class Proof : uint8_t { kFits, kWrong, kNothing };
  Proof proof_of(const wire::Bind& bind);
  // Keeps a Bind that proves nothing yet. The newest one is kept, until take_kept().
  void keep(net::PeerChannel* channel, const wire::Bind& bind) { kept_bind_ = {channel, bind}; }
  struct KeptBind {
    net::PeerChannel* channel;
    wire::Bind bind;
  };
  std::optional<KeptBind> take_kept() { return std::exchange(kept_bind_, {}); }
  // A Bind with a proof that fits came on this channel, which is the peer's from here on. Returns
  // the channel that the peer had before.
  net::PeerChannel* take_channel(net::PeerChannel* channel);
  // The first Bind with a proof that fits ends the search.
  void set_proven();
  // The addresses of this end's NICs, by members.
  std::vector<wire::Gid> own_addresses() const { return nics_.addresses_of(group_); }
  // Sets the peer's addresses, which its newest Bind or Nics names.
  void set_peer_addresses(const std::vector<wire::Gid>& members);
  // Leader: keeps one connection for each pair of addresses that the two ends have now, because the
  // channel must not depend on the NICs that may fail.
  void widen();
  // The session has left its path. The channel may have died with the NIC, before the two ends had
  // opened more connections: then each end tries all addresses that it knows, until a path is
  // found.
  void path_left();
  // Remembers at which of its addresses the peer was seen: one of them may be down the next time.
  // To be called when a connection has joined the channel.
  void note_host();
  // All connections of the channel are lost.
  void channel_lost();
  // The channel, which need not be this search's, is about to be deleted.
  void channel_ends(const net::PeerChannel* channel) {
    if (kept_bind_ && kept_bind_->channel == channel) kept_bind_.reset();
  }

 private:
  // A peer whose QP is still in its last life is wrong once for each connection and pause.
  static constexpr Budget::Rate kWrongBinds{64, 20};

  // The addresses of a connection that is kept: this end's and the peer's, in network byte order.
  using AddressPair = std::pair<uint32_t, uint32_t>;

  void look();
  void found(net::PeerChannel* channel);
  void missing(const char* cause);
  void await_search();
  void look_if_cut_off();
  void try_all();
  void connect_all();
  bool is_cut_off() const;
  bool is_patient() const;
  void bind_begin();
  void bind_again();
  void ask_link();
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
  bool heard_ = false;  // somebody has said a Bind: this end can be found
  // The address of the peer's QP as the link named it last, and whether the link is being asked.
  std::optional<uint32_t> link_address_;
  bool asking_link_ = false;
  Budget wrong_binds_;
  std::vector<uint32_t> peer_addresses_;
  std::vector<AddressPair> kept_;
  // A search that is under way ends with its answer. The answer may come when this object is gone,
  // which `alive_` shows.
  bool looking_ = false;
  std::shared_ptr<const bool> alive_ = std::make_shared<bool>(true);
  net::Timer look_again_;
  net::Timer aside_;  // of try_all()
  // Bind is repeated to a peer that was found and has proved nothing: when, after which pause, and
  // until when.
  net::Timer bind_again_;
  std::chrono::milliseconds bind_pause_{};
  Time bind_until_{};
  // Until when the channel counts as relied on before anything is proven. In RTR that ends,
  // although Binds go on: whoever was found may be false.
  Time relied_until_{};
  std::optional<KeptBind> kept_bind_;
  // Follower: the time within which the leader has to look for it.
  net::Timer no_peer_;
};

}  // namespace shift::control
