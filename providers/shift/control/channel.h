// All that connects us with one peer process: any number of TCP connections over different NICs.
// Lives on the reactor thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "control/connection.h"
#include "control/reactor.h"
#include "control/rendezvous.h"
#include "wire/messages.h"

namespace shift::control {

class PeerNet;

class Channel {
 public:
  const wire::Instance& peer() const noexcept { return peer_; }
  // The channel to this very process (both QPs are ours): no sockets, messages go round the loop.
  bool is_self() const noexcept { return self_; }
  size_t live_connections() const noexcept { return connections_.size(); }

  // Queues the message on every live connection and returns on how many. The peer sees duplicates,
  // and order holds per connection only: receivers go by epoch and seq. 0 means nothing was sent;
  // whoever needs an answer repeats from Delegate::on_connection_up or by timer. What is sent in
  // one turn of the reactor leaves in one write.
  size_t send(const wire::Message& message);

  // Keeps one more connection to the same process open over the given addresses (network byte
  // order), and reopens it with growing pauses when it is lost. Known paths are left alone.
  void add_path(uint32_t local_ip_be, uint32_t remote_ip_be);
  // Retries every lost path now: a link came back.
  void retry_paths();

 private:
  friend class PeerNet;
  struct Path {
    uint32_t local_ip_be;
    uint32_t remote_ip_be;
    uint8_t index;
    Rendezvous::DialId dial = 0;
    int failures = 0;  // since the last success: sets the pause
    Reactor::TimerId retry = 0;
  };

  Channel(PeerNet& net, const wire::Instance& peer, bool self)
      : net_(net), peer_(peer), self_(self) {}

  bool connected_over(uint32_t local_ip_be, uint32_t remote_ip_be) const noexcept;
  void path_dial(Path& path);
  void path_retry_later(Path& path);

  PeerNet& net_;
  const wire::Instance peer_;
  const bool self_;
  std::vector<std::shared_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Path>> paths_;
  Reactor::TimerId grace_ = 0;  // runs while there is no connection
};

}  // namespace shift::control
