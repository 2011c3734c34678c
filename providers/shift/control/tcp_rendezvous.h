// Rendezvous at the IP address that a RoCE GID holds, on one well-known port per address.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "control/handshake.h"
#include "control/port_share.h"
#include "control/reactor.h"
#include "control/rendezvous.h"

namespace shift::control {

class TcpRendezvous : public Rendezvous {
 public:
  TcpRendezvous(Reactor& reactor, RendezvousHost& host, uint16_t port)
      : reactor_(reactor), host_(host), port_(port) {}

  void serve_address(uint32_t ip_be) override;
  void leave_address(uint32_t ip_be) override;
  DialId dial(const wire::Gid& local, const wire::Gid& remote, const wire::Hello& hello,
              DialCallback callback) override;
  void dial_cancel(DialId id) override;

 private:
  Reactor& reactor_;
  RendezvousHost& host_;
  const uint16_t port_;
  std::map<uint32_t, std::unique_ptr<PortShare>> shares_;  // by address
  std::map<DialId, std::unique_ptr<TcpDial>> dials_;
  DialId next_dial_ = 1;
};

}  // namespace shift::control
