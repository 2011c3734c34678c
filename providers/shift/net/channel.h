// The channel between this process and one peer process: any number of TCP connections over
// different NICs. It lives on the reactor thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "net/connection.h"
#include "net/network.h"
#include "net/reactor.h"
#include "net/rendezvous.h"
#include "net/seal.h"
#include "wire/messages.h"

namespace shift::net {

class Channel final : public PeerChannel {
 public:
  // Numbers are of all messages of a process, so those to one peer have gaps; but not such gaps.
  static constexpr uint64_t kJumpMax = uint64_t{1} << 40;

  // What a channel tells and asks the network that it belongs to.
  class Host {
   public:
    virtual ~Host() = default;
    virtual const wire::Instance& own_instance() const = 0;
    virtual const Secrets& secrets() const = 0;
    // Whether a QP of this process relies on the peer.
    virtual bool relies_on(Channel& channel) = 0;
    // The number of this process's next message to any peer, greater than all numbers before. All
    // channels share one count, since the peer's end of a channel may outlive this end.
    virtual uint64_t next_sequence() = 0;
    // Whether the process may have one more connection, or dial, of the channel. The first two of a
    // channel are needed.
    virtual bool may_connect(Channel& channel, bool is_needed) = 0;
    // Returns false when the message makes no sense; the connection is then closed.
    virtual bool on_channel_message(Channel& channel, const wire::Message& message) = 0;
    // A connection was dialed. The host lets it join() the channel and tells the delegate. Returns
    // false when it could not join.
    virtual bool on_connection_dialed(Channel& channel, Joining joining) = 0;
    // No connection came back during the grace period, or nothing has relied on the peer for a
    // while. The host deletes the channel here.
    virtual void on_channel_dead(Channel& channel) = 0;
  };

  struct Times {
    std::chrono::milliseconds grace;      // without a connection
    std::chrono::milliseconds idle_look;  // between two looks whether a QP relies on the peer
  };
  // `key` is the id of the job key that its messages are sealed with, 0 without one; `taken` the
  // number of the newest message that was taken from the peer before.
  Channel(Reactor& reactor, Rendezvous& rendezvous, Host& host, const wire::Instance& peer,
          uint64_t key, uint64_t taken, const Times& times);
  ~Channel() override;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  const wire::Instance& peer() const noexcept { return peer_; }
  // Such a channel has no sockets; its messages go through the loop.
  bool is_self() const noexcept override { return self_; }
  bool is_at(uint32_t ip_be) const override { return seen_at_.contains(ip_be); }
  bool is_keyed() const noexcept override { return key_ != 0; }
  size_t live_connections() const noexcept { return connections_.size(); }
  // The key that is shared with the peer; null to this very process, and with a job key.
  const PairKey* pair_key() const noexcept { return pair_key_ ? &*pair_key_ : nullptr; }
  // Its descriptors: those of connections, and of dials that have no answer yet.
  size_t sockets() const noexcept;
  uint64_t taken() const noexcept { return taken_; }

  // All messages of one turn of the reactor leave in one write.
  size_t send(const wire::Message& message) override;

  // A kept connection that is lost is dialed again, with growing pauses between the attempts.
  bool keep_connection(uint32_t local_ip_be, uint32_t remote_ip_be) override;
  void drop_connection(uint32_t local_ip_be, uint32_t remote_ip_be) override;
  // To be called when a NIC came back, or when those that are there may not work: dials every pair
  // of addresses without a connection, each at once or, when an earlier call has had it dialed, a
  // second after that.
  void retry_connections();
  // How long a pair of addresses waits after so many failures in a row.
  static std::chrono::milliseconds retry_pause(int failures, bool was_up);

  // The functions below are for the network only.
  bool join(Joining joining);
  // Keeps the addresses by which the peer was found, until keep_connection() and drop_connection()
  // were called for them.
  void keep_found(uint32_t local_ip_be, uint32_t remote_ip_be) {
    (void)kept_at(local_ip_be, remote_ip_be);
  }

 private:
  struct KeptPair {
    uint32_t local_ip_be;
    uint32_t remote_ip_be;
    uint8_t index;
    int users = 0;     // calls of keep_connection() less those of drop_connection()
    int failures = 0;  // since the last success; they set the pause
    bool was_up = false;
    Rendezvous::DialId dial = 0;
    Reactor::TimerId retry = 0;
    Reactor::Clock::time_point hinted_at{};  // when retry_connections() has it dialed
  };

  KeptPair* kept_at(uint32_t local_ip_be, uint32_t remote_ip_be);
  bool connected_over(const KeptPair& pair) const noexcept;
  size_t send_to_self(const wire::Message& message);
  bool on_frame(std::span<const uint8_t> frame);
  bool is_full();
  void look_idle();
  void pair_dial(KeptPair& pair, bool is_needed);
  void pair_retry_later(KeptPair& pair);
  void pair_dial_at(KeptPair& pair, Reactor::Clock::time_point at, bool is_needed);
  void on_dialed(KeptPair& pair, DialError error, Joining joining);
  void on_closed(Connection& connection, const char* reason);

  Reactor& reactor_;
  Rendezvous& rendezvous_;
  Host& host_;
  const wire::Instance peer_;
  const bool self_;
  const uint64_t key_;
  const Times times_;
  const std::shared_ptr<Channel*> alive_;  // shows queued tasks whether the channel still exists
  std::vector<std::shared_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<KeptPair>> kept_;
  std::set<uint32_t> seen_at_;        // remote addresses proven by a connection
  Reactor::TimerId grace_timer_ = 0;  // runs while there is no connection
  Reactor::TimerId idle_timer_ = 0;
  int idle_looks_ = 0;            // in a row at which nothing relied on the peer
  std::vector<uint8_t> encoded_;  // reused by send()
  std::optional<PairKey> pair_key_;
  uint64_t taken_;  // sequence of the newest message that was taken
};

}  // namespace shift::net
