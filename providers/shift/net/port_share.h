// One rendezvous port of one NIC address, which all SHIFT processes of the host share. One process
// owns the port, and the others are its sharers; when the owner ends, a sharer takes its place.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "net/gid_answerer.h"
#include "net/port_owner.h"
#include "net/port_sharer.h"
#include "net/reactor.h"
#include "net/rendezvous.h"

namespace shift::net {

class PortShare {
 public:
  // `port` is the TCP port, and `key` the id of the job key of all who share it, 0 without one.
  PortShare(Reactor& reactor, RendezvousHost& host, const PortOwner::Rooms& rooms, uint32_t ip_be,
            uint16_t port, uint64_t key)
      : reactor_(reactor),
        host_(host),
        rooms_(rooms),
        ip_be_(ip_be),
        port_(port),
        key_(key),
        answerer_(reactor, host, ip_be, port, key) {}
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
  void on_lost();
  std::string local_name() const { return host_.secrets().local_name(ip_be_, port_, key_); }

  Reactor& reactor_;
  RendezvousHost& host_;
  const PortOwner::Rooms rooms_;
  const uint32_t ip_be_;
  const uint16_t port_;
  const uint64_t key_;
  GidAnswerer answerer_;              // runs while this process is the owner
  std::unique_ptr<PortOwner> owner_;  // at most one of these two is set
  std::unique_ptr<PortSharer> sharer_;
  std::chrono::milliseconds pause_{0};  // before the next attempt
  int refusals_ = 0;                    // in a row, by the owner
  Reactor::TimerId retry_ = 0;
};

}  // namespace shift::net
