// Calls to a redis server.
#include "net/redis_session.h"

#include <utility>

namespace shift::net {

RedisSession::RedisSession(Reactor& reactor, const RedisServer& server,
                           std::chrono::milliseconds patience, Events events)
    : reactor_(reactor), server_(server), patience_(patience), events_(std::move(events)) {}

RedisSession::~RedisSession() {
  if (link_) link_->close();
}

void RedisSession::start(const ServerAddress& to, std::unique_ptr<TlsClient> tls) {
  link_ = std::make_shared<RedisLink>(
      reactor_, std::move(tls),
      RedisLink::Events{[this] { on_link_up(); },
                        [this](std::span<const char> bytes) { on_bytes(bytes); },
                        [this](const std::string& why) { end(why); }});
  link_->start(to);
  silence_.start(patience_, [this] { end("it does not answer"); });
}

void RedisSession::on_link_up() {
  silence_.cancel();
  if (!server_.password.empty()) {
    // What follows is sent before the answer is here, and a refusal ends the session.
    const Then judge = [this](const RedisReply& reply) {
      if (reply.is_error()) end("it refuses the password: " + reply.error_code());
    };
    if (server_.user.empty())
      call({"AUTH", server_.password}, judge);
    else
      call({"AUTH", server_.user, server_.password}, judge);
  }
  events_.on_up();
}

void RedisSession::call(std::initializer_list<std::string_view> words, Then then) {
  std::string bytes;
  if (is_over_) return;
  if (!redis_append(bytes, words)) return end("out of memory");
  calls_.push_back({reactor_.now(), std::move(then)});
  link_->send(bytes);
  if (!silence_.is_running()) watch();
}

// One timer stands for all calls. It is not moved at each reply, but looks again when it fires.
void RedisSession::watch() {
  if (calls_.empty()) return;
  silence_.start_at(calls_.front().since + patience_, [this] {
    if (!calls_.empty() && reactor_.now() - calls_.front().since >= patience_)
      return end("it does not answer");
    watch();
  });
}

void RedisSession::on_bytes(std::span<const char> bytes) {
  replies_.feed(bytes);
  RedisReply reply;
  while (!is_over_) {
    switch (replies_.next(reply)) {
      case RedisReplies::Next::kIncomplete:
        return;
      case RedisReplies::Next::kNonsense:
        return end("it sends nonsense");
      case RedisReplies::Next::kReply:
        on_reply(reply);
    }
  }
}

void RedisSession::on_reply(const RedisReply& reply) {
  if (calls_.empty()) {
    // A server that has no place for this client says so before it is asked.
    return end(reply.is_error() ? "it refuses the connection: " + reply.error_code()
                                : "it answers what was not asked");
  }
  const Call call = std::move(calls_.front());
  calls_.pop_front();
  call.then(reply);
}

void RedisSession::end(const std::string& why) {
  if (std::exchange(is_over_, true)) return;
  link_->close();
  // What has run into this is still at work.
  const bool queued =
      reactor_.call_soon([weak = std::weak_ptr(alive_), on_down = events_.on_down, why] {
        if (!weak.expired()) on_down(why);
      });
  if (!queued) silence_.cancel();
}

}  // namespace shift::net
