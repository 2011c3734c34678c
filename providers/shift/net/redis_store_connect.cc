// Keeps the store's connection: connects, tries again after growing pauses, and says what is wrong.
#include <algorithm>
#include <charconv>
#include <utility>

#include "net/random.h"
#include "net/redis_store.h"
#include "net/socket.h"
#include "util/log.h"

namespace shift::net {
namespace {

using std::chrono::milliseconds;

// Thousands of processes start, and lose a server, at one time; they must not all come back at
// one time, too.
milliseconds jittered(milliseconds time) {
  uint8_t dice = 128;
  (void)random_fill({&dice, 1});
  return time * (384 + dice) / 512;  // 75 to 125 percent
}

// The first part of redis's answer to TIME, in seconds; 0: it is no time.
int64_t seconds_of(const RedisReply& reply) {
  constexpr int64_t kTimeMax = int64_t{1} << 40;
  if (reply.kind != RedisReply::Kind::kList || reply.list.size() != 2) return 0;
  const std::string& text = reply.list[0];
  int64_t seconds = 0;
  const char* const end = text.data() + text.size();
  const bool is_number = std::from_chars(text.data(), end, seconds).ptr == end && !text.empty();
  return is_number && seconds > 0 && seconds < kTimeMax ? seconds : 0;
}

}  // namespace

RedisStore::RedisStore(Reactor& reactor, RedisServer server, AddressChanged address_changed,
                       RedisOptions options)
    : reactor_(reactor),
      server_(std::move(server)),
      name_(server_.name()),
      address_changed_(std::move(address_changed)),
      options_(std::move(options)),
      pause_(options_.retry_min) {
  if (redis_is_built()) {
    retry_.start(milliseconds(0), [this] { connect(); });
  } else {
    is_away_ = true;
    SHIFT_WARN("redis %s is not used: this build has no redis", name_.c_str());
  }
}

RedisStore::~RedisStore() = default;

void RedisStore::connect() {
  lookup_.start(server_.host, server_.port, [this](std::vector<ServerAddress> found) {
    std::ranges::reverse(found);
    addresses_ = std::move(found);
    if (addresses_.empty()) return fail("its name has no address");
    try_next();
  });
}

void RedisStore::try_next() {
  const ServerAddress to = addresses_.back();
  addresses_.pop_back();
  std::unique_ptr<TlsClient> tls;
  if (server_.tls) {
    std::string why;
    tls = TlsClient::open(server_.host, server_.ca_file, options_.tls_plugin, why);
    if (!tls) return addresses_.clear(), fail(why);  // never without TLS
  }
  session_ = std::make_unique<RedisSession>(
      reactor_, server_, options_.patience,
      RedisSession::Events{[this] { ask_time(); }, [this](const std::string& why) { fail(why); }});
  session_->start(to, std::move(tls));
}

// The session is over, or there is none.
void RedisStore::fail(const std::string& why) {
  const bool was_ready = std::exchange(is_ready_, false);
  session_.reset();
  refresh_.cancel();
  if (!was_ready && !addresses_.empty()) return try_next();
  is_away_ = true;
  if (why != last_why_)
    SHIFT_WARN_LIMITED("redis %s: %s; peers are looked for without it", name_.c_str(), why.c_str());
  last_why_ = why;
  if (was_ready && reactor_.now() - ready_since_ >= options_.stable) pause_ = options_.retry_min;
  retry_.start(jittered(pause_), [this] { connect(); });
  pause_ = std::min(pause_ * 2, options_.retry_max);
  finish_all();
}

// The time is asked before each writing, and its first answer shows that the server can be used.
void RedisStore::ask_time() {
  session_->call({"TIME"}, [this](const RedisReply& reply) { on_time(reply); });
}

void RedisStore::on_time(const RedisReply& reply) {
  if (reply.is_error()) return session_->end("it refuses TIME: " + reply.error_code());
  const int64_t now_s = seconds_of(reply);
  if (now_s == 0) return session_->end("it sends nonsense");
  const uint32_t address_before = local_ip_be_;
  if (!is_ready_) on_ready();
  write(now_s);
  refresh_.start(jittered(options_.refresh), [this] { ask_time(); });
  if (local_ip_be_ != address_before && address_changed_) address_changed_();
}

void RedisStore::on_ready() {
  is_ready_ = true;
  is_away_ = false;
  ready_since_ = reactor_.now();
  last_why_.clear();
  addresses_.clear();
  if (const uint32_t ip_be = session_->local_ip_be()) local_ip_be_ = ip_be;
  SHIFT_INFO("redis %s answers", name_.c_str());
  for (const auto& ask : asks_)
    if (ask->answer) send(ask);
}

}  // namespace shift::net
