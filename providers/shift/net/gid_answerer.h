// Answers hosts on the link that ask which address has a GID of this host. Whoever owns the
// rendezvous port of an address answers for it, so there is one answer however many processes share
// the NIC.
#pragma once

#include <cstdint>
#include <optional>

#include "net/reactor.h"
#include "net/rendezvous.h"
#include "net/subnet.h"
#include "util/unique_fd.h"

namespace shift::net {

class GidAnswerer {
 public:
  GidAnswerer(Reactor& reactor, RendezvousHost& host, uint32_t ip_be, uint16_t port)
      : reactor_(reactor), host_(host), ip_be_(ip_be), port_(port) {}
  ~GidAnswerer();
  GidAnswerer(const GidAnswerer&) = delete;
  GidAnswerer& operator=(const GidAnswerer&) = delete;

  // Begins to listen, or does so in the subnet where the address is now. Harmless when it listens
  // already, or cannot: then the GIDs of the address are not found, the address itself is.
  void start();

 private:
  void on_readable();
  bool answer_one();

  Reactor& reactor_;
  RendezvousHost& host_;
  const uint32_t ip_be_;
  const uint16_t port_;
  Subnet subnet_;
  UniqueFd fd_;
};

}  // namespace shift::net
