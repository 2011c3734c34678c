// How the process behind a remote QP is reached. `tcp` needs nothing but the peer's NIC address;
// others (a store on a management network) can follow without a change above. Reactor thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "util/unique_fd.h"
#include "wire/messages.h"

namespace shift::net {

enum class DialError : uint8_t {
  kNone = 0,
  kNobody,       // the host is there and says that nobody listens
  kNoSuchQp,     // somebody listens, nobody owns the QP (or is the process) looked for
  kRefused,      // the owner does not want us
  kUnreachable,  // no answer in time
};

// What the process that serves can say about itself.
class RendezvousHost {
 public:
  virtual ~RendezvousHost() = default;
  virtual const wire::Instance& own_instance() const = 0;
  virtual bool owns_qp(const wire::QpName& name) = 0;
  virtual bool accepts(const wire::Hello& hello) = 0;
  // One of our ports has the GID and this address.
  virtual bool has_gid(uint32_t ip_be, const wire::Gid& gid) = 0;
  // A peer found us; the answer `ok` is on its way. Addresses in network byte order.
  virtual void on_inbound(UniqueFd fd, const wire::Hello& hello, uint32_t local_ip_be,
                          uint32_t remote_ip_be) = 0;
};

class Rendezvous {
 public:
  using DialId = uint64_t;  // 0 is never a dial
  // A connected socket on which `peer` answered `ok`, or an error.
  using DialCallback =
      std::function<void(DialError error, UniqueFd fd, const wire::Instance& peer)>;
  using AskCallback = std::function<void(bool answered)>;

  virtual ~Rendezvous() = default;

  // Peers may look for us at this address. Twice is once.
  virtual void serve_address(uint32_t ip_be) = 0;
  virtual void leave_address(uint32_t ip_be) = 0;

  // Where the holder of a GID that holds no address itself can be dialed from the local address, as
  // somebody on the link has said. It is a hint: who is there has to prove what it owns.
  virtual std::optional<uint32_t> gid_address(uint32_t local_ip_be, const wire::Gid& gid) = 0;
  // Asks for it once, for a bounded time. The callback runs exactly once, never from inside this
  // call, unless the rendezvous ends before.
  virtual void gid_ask(uint32_t local_ip_be, const wire::Gid& gid, AskCallback callback) = 0;
  // What was looked for is not there: who gives another address goes first next time.
  virtual void gid_doubt(uint32_t local_ip_be, const wire::Gid& gid) = 0;

  // One attempt from address to address, bounded in time. The callback runs exactly once unless
  // cancelled, never from inside this call.
  virtual DialId dial(uint32_t local_ip_be, uint32_t remote_ip_be, const wire::Hello& hello,
                      DialCallback callback) = 0;
  virtual void dial_cancel(DialId id) = 0;
};

}  // namespace shift::net
