// What the coordinator needs of the network between processes: to find the process behind a remote
// QP, and to send it messages. PeerNet does it over TCP, a simulation in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "net/find_request.h"
#include "wire/messages.h"

namespace shift::net {

// All that connects us with one peer process.
class PeerChannel {
 public:
  virtual ~PeerChannel() = default;
  // The channel to this very process: both QPs are ours.
  virtual bool is_self() const noexcept = 0;
  // Queues the message on every live connection and returns on how many. The peer takes it once or
  // never, and never after one that was sent later. Never: it was sent on a connection that failed
  // or was slower than one made since, so whoever needs an answer repeats from
  // Delegate::on_connection_up or by timer. 0: nothing was sent.
  virtual size_t send(const wire::Message& message) = 0;
  // Keeps one more connection to the same process open over the given addresses (network byte
  // order), until they are dropped as often as they were added. False: there are too many already.
  virtual bool keep_connection(uint32_t local_ip_be, uint32_t remote_ip_be) = 0;
  // A connection that is open stays so until it is lost.
  virtual void drop_connection(uint32_t local_ip_be, uint32_t remote_ip_be) = 0;
};

// What the owner of the QPs implements. Called on the control loop only.
class Delegate {
 public:
  virtual ~Delegate() = default;

  // Is this one of our default QPs? Asked by peers, and on behalf of them by other local processes.
  virtual bool knows_qp(const wire::QpName& name) = 0;
  // May this asker talk to us (do its PSNs fit, where they are known already)? Called only when
  // `hello.want` is ours.
  virtual bool accepts(const wire::Hello& hello) { return true; }

  // Never a Hello or HelloReply. The channel is valid until its on_channel_down returns.
  virtual void on_message(PeerChannel* channel, const wire::Message& message) = 0;
  // A connection joined (`first`: the channel is new): repeat whatever was not answered.
  virtual void on_connection_up(PeerChannel* channel, bool first) {}
  // Every connection is lost and none came back during the grace period. The channel is deleted
  // afterwards. This says nothing about the peer's RDMA traffic.
  virtual void on_channel_down(PeerChannel* channel) = 0;
};

class PeerNetwork {
 public:
  virtual ~PeerNetwork() = default;
  // This NIC address is ours: peers may look for our QPs there. Twice is once.
  virtual void add_address(uint32_t ip_be) = 0;
  // GIDs that hold no address themselves, of the port that has this one: peers may look for our QPs
  // by them. They take the place of those named before.
  virtual void name_address(uint32_t /*ip_be*/, std::vector<wire::Gid> /*gids*/) {}
  // Where the holder of a GID can be reached from the local address, asked for if it has to be.
  // Nothing: nobody knows. The callback runs once at most.
  using AddressCallback = std::function<void(std::optional<uint32_t> ip_be)>;
  virtual void find_address(uint32_t /*local_ip_be*/, const wire::Gid& gid,
                            AddressCallback callback) {
    callback(gid.ipv4());
  }
  // The callback runs exactly once, never from inside this call.
  virtual void find_peer(const FindRequest& request, FindCallback callback) = 0;
  // A NIC of this host came back: every channel dials its lost connections again.
  virtual void retry_connections() = 0;
};

}  // namespace shift::net
