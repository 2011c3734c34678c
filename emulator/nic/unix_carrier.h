// Carrier over abstract unix SOCK_SEQPACKET sockets: one listening socket per process, and one
// connection per direction and pair of processes. Packets to one process are gathered into
// datagrams of up to 64 KiB, so that system calls are rare. Packets to the own process never leave
// it.
#pragma once

#include <memory>
#include <vector>

#include "nic/carrier.h"

namespace cxemu {

class UnixCarrier final : public Carrier {
 public:
  // `net` and `slot` determine the socket's name. Returns nullptr and errno on failure.
  static std::unique_ptr<UnixCarrier> open(uint32_t net, int slot);
  ~UnixCarrier() override;

  // Every process has one socket for all NICs.
  void address_open(uint32_t) override {}
  void address_close(uint32_t) override {}
  uint8_t* reserve(int slot, size_t size) override;
  void commit(uint32_t src_ipv4_be, uint32_t dst_ipv4_be, size_t size, bool corrupt) override;
  bool flush() override;
  Received receive(FrameSink& sink, size_t max_bytes) override;
  int wait_fd() const override { return epoll_fd_; }
  void abandon() override;

 private:
  // The way to one process. `buffer` is allocated at its first use and then kept.
  struct Peer {
    int fd = -1;
    uint32_t used = 0;      // bytes gathered
    bool waiting = false;   // in dirty_
    uint64_t retry_ns = 0;  // no new connection before this time
    std::unique_ptr<uint8_t[]> buffer;
  };

  UnixCarrier(uint32_t net, int slot) : net_(net), slot_(slot) {}
  bool listen();
  bool connect(int slot, Peer& peer);
  bool peer_send(int slot, Peer& peer);
  void connection_accept();
  // Returns false when more is left than may be delivered now.
  bool connection_receive(int fd, FrameSink& sink, size_t max_bytes);
  bool loopback_deliver(FrameSink& sink);

  uint32_t net_;
  int slot_;
  int listen_fd_ = -1;
  int epoll_fd_ = -1;
  std::vector<Peer> peers_;
  std::vector<int> dirty_;     // slots with gathered bytes
  std::vector<int> incoming_;  // accepted connections
  int reserved_slot_ = -1;
  std::unique_ptr<uint8_t[]> receive_buffer_;
  std::unique_ptr<uint8_t[]> loopback_buffer_;  // swapped with the own Peer's buffer at delivery
};

}  // namespace cxemu
