// One rendezvous port of one NIC address, which all SHIFT processes of the host share. One process
// owns the port, and the others are its sharers; when the owner ends, a sharer takes its place.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "net/gid_answerer.h"
#include "net/port_owner.h"
#include "net/port_sharer.h"
#include "net/reactor.h"
#include "net/rendezvous.h"

namespace shift::net {

class PortShare {
 public:
  PortShare(Reactor& reactor, RendezvousHost& host, uint32_t ip_be, uint16_t port)
      : reactor_(reactor),
        host_(host),
        ip_be_(ip_be),
        port_(port),
        answerer_(reactor, host, ip_be, port) {}
  ~PortShare();
  PortShare(const PortShare&) = delete;
  PortShare& operator=(const PortShare&) = delete;

  void start() { seek(); }
  // To be called when the address may have come back, or may be in another subnet.
  void refresh();

 private:
  void seek();
  bool try_own();
  bool try_join();
  void seek_later();

  Reactor& reactor_;
  RendezvousHost& host_;
  const uint32_t ip_be_;
  const uint16_t port_;
  GidAnswerer answerer_;              // runs while this process is the owner
  std::unique_ptr<PortOwner> owner_;  // at most one of these two is set
  std::unique_ptr<PortSharer> sharer_;
  std::chrono::milliseconds pause_{0};  // before the next attempt
  Reactor::TimerId retry_ = 0;
};

}  // namespace shift::net
