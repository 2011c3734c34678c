// A port sharer: this process answers the questions of the port owner, which is another process of
// the host, and takes connections from it.
#pragma once

#include <functional>
#include <string>

#include "net/inbound.h"
#include "net/local_packet.h"
#include "net/reactor.h"
#include "net/rendezvous.h"
#include "util/unique_fd.h"

namespace shift::net {

class PortSharer {
 public:
  // `owner` is connected to the local socket of that name; `key` is the id of the job key that the
  // owner must know, 0 without one.
  PortSharer(Reactor& reactor, RendezvousHost& host, Inbound& inbound, UniqueFd owner,
             std::string name, uint64_t key)
      : reactor_(reactor),
        host_(host),
        inbound_(inbound),
        owner_(std::move(owner)),
        name_(std::move(name)),
        key_(key) {}
  ~PortSharer();
  PortSharer(const PortSharer&) = delete;
  PortSharer& operator=(const PortSharer&) = delete;

  // Registers with the owner. `lost` runs from the loop when the owner is gone, does not take this
  // process in, or does not know the key; it may destroy the PortSharer.
  [[nodiscard]] bool start(std::function<void()> lost);
  // The owner has taken this process in.
  bool is_welcome() const { return welcome_; }

 private:
  void on_readable();
  bool receive_one();
  // Returns false when the owner has to be left.
  bool take(const LocalPacket& packet, UniqueFd passed);
  bool register_with(const wire::Nonce& challenge);
  void leave();

  Reactor& reactor_;
  RendezvousHost& host_;
  Inbound& inbound_;
  UniqueFd owner_;
  const std::string name_;
  const uint64_t key_;
  bool welcome_ = false;
  wire::Nonce challenge_;
  wire::Hello registered_;
  Reactor::TimerId timer_ = 0;  // runs until the welcome
  std::function<void()> lost_;
};

}  // namespace shift::net
