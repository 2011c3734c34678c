// A fault of a NIC also cuts what the hosts say to each other over its IP address: as a black hole,
// not as a reset, and only until the NIC is healed.
//
// Means: a socket filter that drops everything (SO_ATTACH_FILTER, needs no privilege), put by every
// emulated process on its own sockets whose local or peer address is that of a faulted NIC.
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

  // Around the C library's calls. Each returns whether the socket belongs to a NIC (and so the
  // process needs somebody to call refresh() at changes of the fabric).
  //
  // connect: also makes the connection leave through this host's NIC of the same number, as routes
  // on a host with one subnet per rail do; otherwise a fault of the local NIC would cut nothing.
  bool before_connect(int fd, const sockaddr* peer, socklen_t length);
  bool after_bind_or_accept(int fd);

  void closing(int fd);
  // Puts filters on and takes them off as the faults are now. Thread-safe.
  void refresh();
  // In a child of fork(): no other thread can hold the lock any more.
  std::mutex& lock() { return mutex_; }

 private:
  FabricNic* nic_of(const sockaddr_storage&) const;
  // The faults of the NICs of a socket's two addresses; false when neither is of a NIC. `peer` is
  // the peer's NIC where it is known already: a socket that is connecting does not tell yet.
  bool faults_of(int fd, const FabricNic* peer, uint32_t* faults) const;
  void bind_same_rail(int fd, const sockaddr_storage& peer, const FabricNic& peer_nic) const;
  // What we know of a socket that belongs to a NIC.
  struct Tracked {
    const FabricNic* peer;  // where the application connected it, else nullptr: ask the socket
    bool cut;               // our filter is, or may be, on it
  };
  void track(int fd, Tracked);
  // Makes the filter as the faults are now. False when the socket belongs to no NIC any more.
  bool filter_update(int fd, Tracked*) const;

  Fabric* const fabric_;
  const int host_;
  FdTable* const fds_;
  std::mutex mutex_;
  std::unordered_map<int, Tracked> sockets_;  // guarded by mutex_
};

}  // namespace cxemu
