// One TCP connection that carries wire messages. It splits the incoming bytes into frames, and
// has a bounded queue of outgoing bytes. It lives on the reactor thread, and shared_ptrs own it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "net/reactor.h"
#include "util/unique_fd.h"
#include "wire/messages.h"

namespace shift::net {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // The connection is closed when this many bytes would wait for a peer that takes none: the peer
  // must not fill this process's memory, nor hold up the other connections of the channel.
  static constexpr size_t kSendMax = 4 * 1024 * 1024;
  // The same, and the longest frame, while nothing relies on the peer.
  static constexpr size_t kStrangerSendMax = 64 * 1024;
  static constexpr size_t kStrangerFrameMax = 4 * 1024;

  struct Events {
    // Takes one complete frame; when it returns false, the connection is closed.
    std::function<bool(Connection&, std::span<const uint8_t> frame)> on_frame;
    // Whether a QP of this process relies on the peer.
    std::function<bool()> is_relied_on;
    // Runs exactly once, from the reactor's loop, never inside queue() or close().
    std::function<void(Connection&, const char* reason)> on_closed;
  };

  // The addresses are in network byte order.
  Connection(Reactor& reactor, UniqueFd fd, uint32_t local_ip, uint32_t remote_ip)
      : reactor_(reactor), fd_(std::move(fd)), local_ip_(local_ip), remote_ip_(remote_ip) {}
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  [[nodiscard]] bool open(Events events);
  // Appends encoded messages, which leave in the reactor's next turn. Returns false when the
  // connection is lost or its queue is full; on_closed follows.
  bool queue(std::span<const uint8_t> bytes);
  // Closes the connection; on_closed follows.
  void close(const char* reason);
  bool is_open() const noexcept { return open_; }
  size_t queued_bytes() const noexcept { return out_.size() - out_sent_; }

  uint32_t local_ip_be() const noexcept { return local_ip_; }
  uint32_t remote_ip_be() const noexcept { return remote_ip_; }

 private:
  void on_event(uint32_t events);
  bool receive();
  bool deliver();
  void flush();

  Reactor& reactor_;
  UniqueFd fd_;
  const uint32_t local_ip_;
  const uint32_t remote_ip_;
  Events events_;
  bool open_ = false;
  bool flush_scheduled_ = false;
  bool wants_write_ = false;
  std::vector<uint8_t> in_;
  std::vector<uint8_t> out_;
  size_t out_sent_ = 0;
};

}  // namespace shift::net
