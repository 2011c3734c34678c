// One TCP connection to a redis server, plain or inside TLS. It carries bytes and knows nothing of
// what they say.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "net/reactor.h"
#include "net/server_lookup.h"
#include "net/tls_client.h"
#include "util/unique_fd.h"

namespace shift::net {

// It lives on the reactor thread, and shared_ptrs own it.
class RedisLink : public std::enable_shared_from_this<RedisLink> {
 public:
  // The link is lost when so many bytes wait for a server that takes none.
  static constexpr size_t kSendMax = 4 * 1024 * 1024;

  // All run from the reactor's loop, never inside a call of the link's owner, and none after
  // close() or on_down. Each may call close().
  struct Events {
    std::function<void()> on_up;  // bytes can go both ways, and TLS has proved who the server is
    std::function<void(std::span<const char>)> on_bytes;
    std::function<void(const std::string& why)> on_down;
  };

  // Without `tls` the bytes go in clear.
  RedisLink(Reactor& reactor, std::unique_ptr<TlsClient> tls, Events events)
      : reactor_(reactor), tls_(std::move(tls)), events_(std::move(events)) {}
  ~RedisLink() { close(); }
  RedisLink(const RedisLink&) = delete;
  RedisLink& operator=(const RedisLink&) = delete;

  void start(const ServerAddress& to);
  // To be called between on_up and on_down only.
  void send(std::string_view bytes);
  void close();

  // The address from which the connection goes, in network byte order; 0: it is none of IPv4.
  uint32_t local_ip_be() const;

 private:
  void on_event(uint32_t epoll_events);
  void connected();
  bool receive();
  bool take(std::span<const char> bytes);
  bool take_tls(std::span<const char> bytes);
  void queue(std::string_view bytes);
  void queue_tls();
  void flush();
  void lose(const std::string& why);
  void lose_soon(const std::string& why);

  Reactor& reactor_;
  std::unique_ptr<TlsClient> tls_;
  Events events_;
  UniqueFd fd_;
  bool is_connected_ = false, is_up_ = false, is_over_ = false;
  bool wants_write_ = false, flush_scheduled_ = false;
  std::string out_;
  size_t out_sent_ = 0;
};

}  // namespace shift::net
