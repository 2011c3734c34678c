// The control network of this process: it finds the process that owns a remote QP, and keeps one
// channel to each peer process. All calls must come on the reactor thread; other threads get there
// with Reactor::call_soon.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "net/channel.h"
#include "net/find.h"
#include "net/find_request.h"
#include "net/host_book.h"
#include "net/lobby.h"
#include "net/network.h"
#include "net/reactor.h"
#include "net/rendezvous.h"
#include "net/stored_hosts.h"
#include "wire/messages.h"

namespace shift::net {

struct PeerNetOptions {
  uint16_t port = 9473;
  std::chrono::milliseconds grace{3000};  // from the last connection lost to on_channel_down
  // A channel ends when no QP relies on it at two looks in a row.
  std::chrono::milliseconds idle_look{15000};
};

// From inside its functions, the Delegate may call the PeerNet and its channels, but may not
// destroy the PeerNet.
class PeerNet final : public PeerNetwork,
                      private RendezvousHost,
                      private Finder::Host,
                      private Channel::Host {
 public:
  // `reactor` and `delegate` outlive the PeerNet. It is made, used and destroyed on the reactor
  // thread, or while the reactor does not run.
  PeerNet(Reactor& reactor, Delegate& delegate, PeerNetOptions options,
          std::unique_ptr<JobKeys> keys = nullptr);
  // Searches that still run end with kStopped; channels end without on_channel_down.
  ~PeerNet() override;
  PeerNet(const PeerNet&) = delete;
  PeerNet& operator=(const PeerNet&) = delete;

  const Identity& identity() const noexcept { return secrets_.identity(); }
  const wire::Instance& instance() const noexcept { return identity().instance(); }

  void add_address(uint32_t ip_be) override;
  void name_address(uint32_t ip_be, std::vector<wire::Gid> gids) override;
  void claim_gids(const std::vector<wire::Gid>& gids) override;
  void remove_address(uint32_t ip_be);

  void find_address(uint32_t local_ip_be, const wire::Gid& gid, AddressCallback callback) override;
  void find_peer(const FindRequest& request, FindCallback callback) override;

  // Returns null when there is no channel to the peer.
  Channel* find_channel(const wire::Instance& peer) noexcept;
  size_t channel_count() const noexcept { return channels_.size(); }
  std::vector<uint16_t> ports() const override;
  void retry_connections() override;
  // Without this call, a host is known by the address in its GID alone.
  void book_set(std::unique_ptr<HostBook> book) { book_ = std::move(book); }
  // Has a store on the network asked for hosts, and told of this one. `by_gid`: peers are looked
  // for at the addresses in their GIDs, too.
  void store_set(RedisServer server, bool by_gid);
  std::vector<uint32_t> others(const wire::Gid& gid) override;
  bool look_up(const wire::Gid& gid, StoredCallback then) override;
  bool leads_to(const PeerChannel& channel, const wire::Gid& gid) override;
  void host_seen(const wire::Gid& gid, const std::vector<uint32_t>& addresses_be) override;

 private:
  const wire::Instance& own_instance() const override { return instance(); }
  const Secrets& secrets() const override { return secrets_; }
  const PairKey* pair_key(const wire::Instance& peer) const override;
  bool relies_on(Channel& channel) override { return delegate_.relies_on(&channel); }
  uint64_t next_sequence() override { return ++sequence_; }
  bool may_connect(Channel& channel, bool is_needed) override;
  bool owns_qp(const wire::QpName& name) override { return delegate_.knows_qp(name); }

  bool expects(const wire::Hello& hello) override {
    return delegate_.expects(hello.want, hello.from);
  }
  bool is_at(const wire::Gid& gid, uint32_t local_ip_be, uint32_t remote_ip_be) override;
  bool looks_by_gid() const override { return by_gid_; }
  bool has_store() const override { return store_ != nullptr; }
  void tell_store();
  bool has_gid(uint32_t ip_be, const wire::Gid& gid) override;
  bool serves_at(uint32_t ip_be);
  void on_inbound(Joining joining) override;

  Channel* self_channel() override;
  std::vector<Channel*> channels_at(uint32_t ip_be) override;
  Channel* join_dialed(Joining joining) override;

  bool on_channel_message(Channel& channel, const wire::Message& message) override;
  bool on_connection_dialed(Channel& channel, Joining joining) override;
  void on_channel_dead(Channel& channel) override;

  std::unique_ptr<Channel> channel_make(const wire::Instance& peer, uint64_t key);
  Channel* join(Joining joining);
  bool is_crowded(bool first) const;
  bool has_room(bool is_needed);
  void idle_place_take(const wire::Instance& peer, uint32_t remote_ip_be);
  bool leads_to_asker(Channel& channel, const wire::Hello& hello);
  bool on_question(Channel& channel, const wire::Hello& hello);

  Reactor& reactor_;
  Delegate& delegate_;
  const PeerNetOptions options_;
  const Secrets secrets_;
  uint64_t sequence_ = 0;                  // the number of the newest message to any peer
  const std::shared_ptr<PeerNet*> alive_;  // shows queued tasks whether the PeerNet still exists
  const std::unique_ptr<Rendezvous> rendezvous_;
  std::map<wire::Instance, std::unique_ptr<Channel>> channels_;
  // A peer that makes a new channel with each new instance gets no more than these. A channel keeps
  // its place until the place is needed and a QP relies on the channel.
  static constexpr size_t kIdleChannels = 48;
  Lobby idle_channels_{kIdleChannels};
  std::map<wire::Instance, Lobby::Seat> idle_places_;
  // The newest numbers taken on channels that are gone, by the peer's instance: what was recorded
  // then is not taken again on a new channel.
  std::map<wire::Instance, uint64_t> taken_;
  std::map<uint32_t, std::vector<wire::Gid>> gids_;  // by the address they belong to
  std::unique_ptr<HostBook> book_;
  Reactor::TimerId keep_timer_ = 0;  // of book_->keep()
  Reactor::Clock::time_point kept_at_{};
  std::set<uint32_t> served_;    // addresses
  std::set<wire::Gid> claimed_;  // GIDs that only the store is told of
  std::unique_ptr<StoredHosts> store_;
  bool by_gid_ = true;
  Finder finder_;
};

}  // namespace shift::net
