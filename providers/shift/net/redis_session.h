// One life of a connection to a redis server: commands go out, and each gets its reply, in order.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "net/reactor.h"
#include "net/redis_codec.h"
#include "net/redis_link.h"
#include "net/timer.h"
#include "util/rendezvous_setting.h"

namespace shift::net {

// It lives on the reactor thread.
class RedisSession {
 public:
  struct Events {
    // The server can be asked. It may not have said anything yet.
    std::function<void()> on_up;
    // The connection is over: the server is not there, does not answer, refuses the password, or
    // lies. It runs once at most, from the reactor's loop, and destroys the session.
    std::function<void(const std::string& why)> on_down;
  };
  // It may make further calls, and must not destroy the session. It does not run when the session
  // ends before the reply.
  using Then = std::function<void(const RedisReply& reply)>;

  // The connection has to be up within `patience`, and each call to be answered within it.
  RedisSession(Reactor& reactor, const RedisServer& server, std::chrono::milliseconds patience,
               Events events);
  ~RedisSession();
  RedisSession(const RedisSession&) = delete;
  RedisSession& operator=(const RedisSession&) = delete;

  void start(const ServerAddress& to, std::unique_ptr<TlsClient> tls);
  void call(std::initializer_list<std::string_view> words, Then then);
  // Ends the session; on_down follows, from the reactor's loop.
  void end(const std::string& why);
  size_t unanswered() const { return calls_.size(); }
  uint32_t local_ip_be() const { return link_ ? link_->local_ip_be() : 0; }

 private:
  struct Call {
    Reactor::Clock::time_point since;
    Then then;
  };

  void on_link_up();
  void on_bytes(std::span<const char> bytes);
  void on_reply(const RedisReply& reply);
  void watch();

  Reactor& reactor_;
  const RedisServer& server_;
  const std::chrono::milliseconds patience_;
  const Events events_;
  std::shared_ptr<RedisLink> link_;
  RedisReplies replies_;
  std::deque<Call> calls_;
  Timer silence_{reactor_};
  bool is_over_ = false;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace shift::net
