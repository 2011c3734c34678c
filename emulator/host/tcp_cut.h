// A fault of a NIC also cuts the hosts' TCP traffic over its IP address. It acts as a black hole,
// not as a reset, and only until the NIC is healed.
//
// Each emulated process attaches a socket filter that drops everything (SO_ATTACH_FILTER, which
// needs no privilege) to its own sockets whose local or peer address is that of a faulted NIC.
#pragma once

#include <sys/socket.h>

#include <mutex>
#include <unordered_map>

#include "fabric/fabric.h"
#include "host/fd_table.h"

namespace cxemu {

class TcpCut {
 public:
  TcpCut(Fabric* fabric, int host, FdTable* fds) : fabric_(fabric), host_(host), fds_(fds) {}

  // Called around the C library's calls. Each returns whether the socket belongs to a NIC; if so,
  // the process must call refresh() at changes of the fabric.
  //
  // connect: also makes the connection leave through this host's NIC of the same number, as routes
  // on a host with one subnet per rail do; otherwise a fault of the local NIC would cut nothing.
  bool before_connect(int fd, const sockaddr* peer, socklen_t length);
  bool after_bind_or_accept(int fd);

  void closing(int fd);
  // Attaches and removes filters according to the current faults. Thread-safe.
  void refresh();
  // For a child of fork(), in which no other thread can hold the lock any more.
  std::mutex& lock() { return mutex_; }

 private:
  FabricNic* nic_of(const sockaddr_storage&) const;
  // The faults of the NICs of a socket's two addresses; returns false when neither belongs to a
  // NIC. `peer` is the peer's NIC if it is already known: a socket that is still connecting does
  // not tell.
  bool faults_of(int fd, const FabricNic* peer, uint32_t* faults) const;
  void bind_same_rail(int fd, const sockaddr_storage& peer, const FabricNic& peer_nic) const;
  // What we know about a socket that belongs to a NIC.
  struct Tracked {
    const FabricNic* peer;  // where the application connected it; nullptr: ask the socket
    bool cut;               // our filter is, or may be, attached to it
  };
  void track(int fd, Tracked);
  // Attaches or removes the filter according to the current faults. Returns false when the socket
  // no longer belongs to a NIC.
  bool filter_update(int fd, Tracked*) const;

  Fabric* const fabric_;
  const int host_;
  FdTable* const fds_;
  std::mutex mutex_;
  std::unordered_map<int, Tracked> sockets_;  // guarded by mutex_
};

}  // namespace cxemu
