// A port sharer: this process answers the questions of the port owner, which is another process of
// the host, and takes connections from it.
#pragma once

#include <functional>

#include "net/reactor.h"
#include "net/rendezvous.h"
#include "util/unique_fd.h"

namespace shift::net {

class PortSharer {
 public:
  PortSharer(Reactor& reactor, RendezvousHost& host, UniqueFd owner)
      : reactor_(reactor), host_(host), owner_(std::move(owner)) {}
  ~PortSharer();
  PortSharer(const PortSharer&) = delete;
  PortSharer& operator=(const PortSharer&) = delete;

  // Registers with the owner. `lost` runs from the loop when the owner is gone; it may destroy the
  // PortSharer.
  [[nodiscard]] bool start(std::function<void()> lost);

 private:
  void on_readable();
  bool receive_one();

  Reactor& reactor_;
  RendezvousHost& host_;
  UniqueFd owner_;
  std::function<void()> lost_;
};

// Answers the Hello of a connection that came to this process, and gives the connection to `host`
// when the Hello is for this process and `host` accepts it.
void inbound_take(RendezvousHost& host, UniqueFd fd, const wire::Hello& hello);

}  // namespace shift::net
