// Rendezvous over TCP: processes meet at one well-known port of a NIC's IPv4 address. That is the
// address that a RoCE GID holds, or the address that belongs to the GID on the link.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "net/dial.h"
#include "net/gid_resolver.h"
#include "net/inbound.h"
#include "net/lobby.h"
#include "net/port_share.h"
#include "net/reactor.h"
#include "net/rendezvous.h"

namespace shift::net {

class TcpRendezvous : public Rendezvous {
 public:
  TcpRendezvous(Reactor& reactor, RendezvousHost& host, uint16_t port)
      : reactor_(reactor), host_(host), port_(port), resolver_(reactor, host.secrets(), port) {}

  void serve_address(uint32_t ip_be) override;
  void leave_address(uint32_t ip_be) override;
  std::optional<uint32_t> gid_address(uint32_t local_ip_be, const wire::Gid& gid) override;
  void gid_ask(uint32_t local_ip_be, const wire::Gid& gid, AskCallback callback) override;
  void gid_doubt(uint32_t local_ip_be, const wire::Gid& gid) override;
  DialId dial(uint32_t local_ip_be, uint32_t remote_ip_be, const wire::Hello& hello,
              DialCallback callback) override;
  void dial_cancel(DialId id) override;

 private:
  Reactor& reactor_;
  RendezvousHost& host_;
  const uint16_t port_;
  // How many descriptors strangers may hold of this process.
  static constexpr size_t kLobby = 32, kGuests = 32, kLocalLobby = 16;

  GidResolver resolver_;
  // Those whose Hello was answered with yes have places of their own: a flood of others does not
  // push them out.
  Lobby lobby_{kLobby}, guests_{kGuests}, local_lobby_{kLocalLobby};
  Inbound inbound_{reactor_, host_, guests_};
  // By address and by the id of the job key.
  std::map<std::pair<uint32_t, uint64_t>, std::unique_ptr<PortShare>> shares_;
  std::map<DialId, std::unique_ptr<TcpDial>> dials_;
  DialId next_dial_ = 1;
};

}  // namespace shift::net
