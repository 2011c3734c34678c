// How this process reaches the process at an address, and is reached there. All of it runs on the
// reactor thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "net/find_request.h"
#include "net/secrets.h"
#include "util/unique_fd.h"
#include "wire/messages.h"

namespace shift::net {

enum class DialError : uint8_t {
  kNone = 0,
  kNobody,       // the peer's host answered that no process listens at the port
  kNoSuchQp,     // a process listens, but none owns the wanted QP (or has the wanted instance)
  kRefused,      // the QP's owner refuses this process
  kUnreachable,  // no answer in time
};

// A connection whose handshake is over, before it joins the channel to its peer. The addresses are
// in network byte order.
struct Joining {
  UniqueFd fd;
  wire::Instance peer;
  PairKey pair_key{};  // shared with the peer, without a job key
  uint64_t key = 0;    // the id of the job key of both ends; 0: none
  uint32_t local_ip_be = 0, remote_ip_be = 0;
};

// What the rendezvous asks of its own process, and tells it.
class RendezvousHost {
 public:
  virtual ~RendezvousHost() = default;
  virtual const wire::Instance& own_instance() const = 0;
  virtual const Secrets& secrets() const = 0;
  // The key that is shared with a process to which there is a channel; null without a channel, and
  // with job keys.
  virtual const PairKey* pair_key(const wire::Instance& peer) const = 0;
  // Whether the QP that the Hello wants is this process's and is connected to the asker's.
  virtual bool expects(const wire::Hello& hello) = 0;
  // Whether the QP of that GID is at the address from which a connection to the local address came:
  // it is the address in the GID or another one of that host or, for a GID that holds none, the one
  // that the link names. If that is not known, it is asked for, and the asker has to come again.
  // With job keys, who knows the key may come from anywhere, unless the link names an address.
  virtual bool is_at(const wire::Gid& gid, uint32_t local_ip_be, uint32_t remote_ip_be) = 0;
  // Whether there is a store that may name further addresses of hosts, and PeerNetwork::look_up().
  virtual bool has_store() const = 0;
  virtual bool look_up(const wire::Gid& gid, StoredCallback then) = 0;
  // Whether one NIC port of this process has both the GID and this address.
  virtual bool has_gid(uint32_t ip_be, const wire::Gid& gid) = 0;
  // A peer found this process, and proved itself.
  virtual void on_inbound(Joining joining) = 0;
};

class Rendezvous {
 public:
  using DialId = uint64_t;  // 0 is never a dial
  // A connection on which the peer said yes and proved itself, or an error.
  using DialCallback = std::function<void(DialError error, Joining joining)>;
  using AskCallback = std::function<void(bool answered)>;

  virtual ~Rendezvous() = default;

  // Lets peers look for this process at the address. A second call for an address only adapts to
  // the subnet that the address is in now.
  virtual void serve_address(uint32_t ip_be) = 0;
  virtual void leave_address(uint32_t ip_be) = 0;

  // The address at which the holder of a GID can be dialed from the local address, for a GID that
  // holds no address itself. Another host on the link has named it, so it is a hint only: the
  // process at that address has to prove what it owns.
  virtual std::optional<uint32_t> gid_address(uint32_t local_ip_be, const wire::Gid& gid) = 0;
  // Asks the link once for that address, for a bounded time. The callback runs exactly once, never
  // from inside this call; it does not run when the rendezvous ends first.
  virtual void gid_ask(uint32_t local_ip_be, const wire::Gid& gid, AskCallback callback) = 0;
  // The QP was not found at the address that gid_address() gives. The next question prefers an
  // answer that names another address.
  virtual void gid_doubt(uint32_t local_ip_be, const wire::Gid& gid) = 0;

  // Makes one attempt, bounded in time, to connect from address to address, with the job key that
  // the Hello names or, if it names none, with each of this process's. The callback runs exactly
  // once unless the dial is cancelled, and never from inside this call.
  virtual DialId dial(uint32_t local_ip_be, uint32_t remote_ip_be, const wire::Hello& hello,
                      DialCallback callback) = 0;
  virtual void dial_cancel(DialId id) = 0;
};

}  // namespace shift::net
