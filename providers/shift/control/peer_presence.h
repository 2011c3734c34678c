// Whether SHIFT runs at the other end of a connection that an application is about to make. Called
// by the application's threads.
#pragma once

#include <optional>

#include "control/nic_watch.h"
#include "net/network.h"
#include "net/presence.h"

namespace shift::control {

class PeerPresence {
 public:
  PeerPresence(net::Loop& control, const NicWatch& nics);
  // Before the first question.
  void network_set(net::PeerNetwork* network) { net_ = network; }

  // Waits for one round trip; 100 ms at most, and a second more for a GID that holds no address.
  // False also where it cannot be found out: the application's patience is safe. Thread-safe.
  bool at(const group::Context* context, const wire::Gid& local, const wire::Gid& remote) noexcept;

 private:
  std::optional<net::Presence::Addresses> addresses_find(const group::Context* context,
                                                         const wire::Gid& local,
                                                         const wire::Gid& remote);

  net::Loop& control_;
  const NicWatch& nics_;  // asked on the control loop
  net::PeerNetwork* net_ = nullptr;
  net::Presence presence_;
};

}  // namespace shift::control
