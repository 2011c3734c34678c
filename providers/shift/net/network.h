// What the coordinator needs of the network between processes: it finds the process that owns a
// remote QP, and sends messages to that process. PeerNet does so over TCP, a simulation in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "net/find_request.h"
#include "wire/messages.h"

namespace shift::net {

// All connections between this process and one peer process.
class PeerChannel {
 public:
  virtual ~PeerChannel() = default;
  // Whether the channel leads to this very process, which then owns both QPs.
  virtual bool is_self() const noexcept = 0;
  // Whether a connection to that address of the peer, or from it, has joined the channel.
  virtual bool is_at(uint32_t ip_be) const = 0;
  // Whether the peer has proved with a job key that it belongs to the job.
  virtual bool is_keyed() const noexcept { return false; }
  // Queues the message on every live connection and returns the number of these connections; with
  // 0, nothing was sent. The peer takes the message once or never, and never after a message that
  // was sent later. The peer misses it when it was sent on a connection that failed, or that was
  // slower than a newer connection. So a caller that needs an answer repeats the message from
  // Delegate::on_connection_up or by timer.
  virtual size_t send(const wire::Message& message) = 0;
  // Keeps one more connection to the peer open over the given addresses (network byte order), until
  // drop_connection() was called for them as often as this function. Returns false when there are
  // too many pairs of addresses already.
  virtual bool keep_connection(uint32_t local_ip_be, uint32_t remote_ip_be) = 0;
  // Takes one call of keep_connection() back. An open connection stays open until it is lost.
  virtual void drop_connection(uint32_t local_ip_be, uint32_t remote_ip_be) = 0;
};

// The owner of the QPs implements it. The network calls it on the control loop only.
class Delegate {
 public:
  virtual ~Delegate() = default;

  // Whether the QP is a default QP of this process.
  virtual bool knows_qp(const wire::QpName& name) = 0;
  // Whether that QP of this process is connected to the asker's. Nobody else is told that it
  // exists.
  virtual bool expects(const wire::QpName& own, const wire::QpName& peer) = 0;

  // Whether a QP of this process has found its peer over the channel. Other channels are kept
  // small, and not for long.
  virtual bool relies_on(const PeerChannel* channel) = 0;

  // The message is never one of a handshake. The channel is valid until its on_channel_down
  // returns.
  virtual void on_message(PeerChannel* channel, const wire::Message& message) = 0;
  // A connection joined the channel (`alone`: the channel has no other). The delegate repeats all
  // messages that were not answered.
  virtual void on_connection_up(PeerChannel* channel, bool alone) {}
  // Every connection is lost, and none came back during the grace period. The channel is deleted
  // when this call returns. The loss says nothing about the peer's RDMA traffic.
  virtual void on_channel_down(PeerChannel* channel) = 0;
};

class PeerNetwork {
 public:
  virtual ~PeerNetwork() = default;
  // Lets peers look for this process's QPs at this address of a local NIC. A second call for an
  // address only adapts to the subnet that the address is in now.
  virtual void add_address(uint32_t ip_be) = 0;
  // Lets peers look for this process's QPs by GIDs of the NIC port that has this address. The GIDs
  // hold no address themselves; they replace those of an earlier call for the same address.
  virtual void name_address(uint32_t /*ip_be*/, std::vector<wire::Gid> /*gids*/) {}
  // Lets peers that ask the store find this host by these GIDs, too, which a broken NIC had and
  // will have again.
  virtual void claim_gids(const std::vector<wire::Gid>& /*gids*/) {}
  // Finds the address at which the holder of a GID can be reached from the local address, and asks
  // the link for it when needed. The callback runs once at most; it gets no address when no host
  // on the link knows one.
  using AddressCallback = std::function<void(std::optional<uint32_t> ip_be)>;
  virtual void find_address(uint32_t /*local_ip_be*/, const wire::Gid& gid,
                            AddressCallback callback) {
    callback(gid.ipv4());
  }
  // Further addresses of the host that has the GID, as far as they are known.
  virtual std::vector<uint32_t> others(const wire::Gid& /*gid*/) { return {}; }
  // Asks the store for more of them; others() has them when `then` runs, once and never from inside
  // this call. False, and nothing is done, where there is no store, or where it has just answered.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): those who have a store keep it
  virtual bool look_up(const wire::Gid& /*gid*/, StoredCallback /*then*/) { return false; }
  // Whether the channel leads to the host that has the GID: to the address in the GID, to another
  // one of the host's, or to a process that has proved to belong to the job.
  virtual bool leads_to(const PeerChannel& channel, const wire::Gid& gid) {
    const auto ip = gid.ipv4();
    return ip && channel.is_at(*ip);
  }
  // A process that has proved to own a QP of that GID was seen at these addresses.
  virtual void host_seen(const wire::Gid& /*gid*/, const std::vector<uint32_t>& /*addresses_be*/) {}
  // The callback runs exactly once, and never from inside this call.
  virtual void find_peer(const FindRequest& request, FindCallback callback) = 0;
  // The ports at which a peer may listen: one for each job key.
  virtual std::vector<uint16_t> ports() const { return {}; }
  // To be called when a NIC of this host came back: every channel dials its lost connections again.
  virtual void retry_connections() = 0;
};

}  // namespace shift::net
