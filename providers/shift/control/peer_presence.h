// Finds out whether SHIFT runs at the other end of a connection that an application is about to
// make. The application's threads call this.
#pragma once

#include <optional>
#include <vector>

#include "control/nic_watch.h"
#include "net/network.h"
#include "net/presence.h"

namespace shift::control {

class PeerPresence {
 public:
  PeerPresence(net::Loop& control, const NicWatch& nics);
  // Must be called before the first question.
  void network_set(net::PeerNetwork* network) {
    net_ = network;
    if (auto ports = network->ports(); !ports.empty()) presence_.ports_set(std::move(ports));
  }

  // Whether SHIFT runs at `remote`. Waits for one round trip: 100 ms at most, as long again where
  // the address does not answer and others are known, half a second more where a store is asked
  // for these, and a second more for a GID that holds no address. False, too, if this cannot be
  // found out, because the patience that the application asked for is always safe. Thread-safe.
  bool at(const group::Context* context, const wire::Gid& local, const wire::Gid& remote) noexcept;

 private:
  std::optional<net::Presence::Addresses> addresses_find(const group::Context* context,
                                                         const wire::Gid& local,
                                                         const wire::Gid& remote);
  std::vector<net::Presence::Addresses> more_find(const group::Context* context,
                                                  const wire::Gid& local, const wire::Gid& remote);

  net::Loop& control_;
  const NicWatch& nics_;  // used on the control loop only
  net::PeerNetwork* net_ = nullptr;
  net::Presence presence_;
};

}  // namespace shift::control
