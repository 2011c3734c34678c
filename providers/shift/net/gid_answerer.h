// Answers hosts on the link that ask which address has a GID of this host. The port owner of an
// address answers for it, so there is one answer, however many processes share the NIC.
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
  GidAnswerer(Reactor& reactor, RendezvousHost& host, uint32_t ip_be, uint16_t port, uint64_t key)
      : reactor_(reactor), host_(host), ip_be_(ip_be), port_(port), key_(key) {}
  ~GidAnswerer();
  GidAnswerer(const GidAnswerer&) = delete;
  GidAnswerer& operator=(const GidAnswerer&) = delete;

  // Begins to listen in the subnet that the address is in now; does nothing when it listens there
  // already. When it cannot listen, peers do not find the GIDs of the address, but still find the
  // address itself.
  void start();

 private:
  void on_readable();
  bool answer_one();

  Reactor& reactor_;
  RendezvousHost& host_;
  const uint32_t ip_be_;
  const uint16_t port_;
  const uint64_t key_;  // the id of the job key that questions are asked with, 0 without one
  Subnet subnet_;
  UniqueFd fd_;
};

}  // namespace shift::net
