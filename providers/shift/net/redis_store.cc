// What the store is told, and what it is asked.
#include "net/redis_store.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

#include "net/host_entry.h"
#include "util/log.h"

namespace shift::net {
namespace {

constexpr uint32_t kLoopback = 127;
// Of a GID that several hosts or containers have, so many are told: the latest writers.
constexpr const char* kLastLine = "3";

bool is_loopback(uint32_t ip_be) {
  return ntohl(ip_be) >> 24 == kLoopback;
}

}  // namespace

// Emulated hosts have nothing but loopback addresses. Everywhere else such an address would lead
// whoever reads it to itself.
bool RedisStore::on_loopback() const {
  return is_loopback(local_ip_be_) && std::ranges::all_of(ips_be_, is_loopback);
}

void RedisStore::announce(std::vector<wire::Gid> gids, std::vector<uint32_t> ips_be) {
  std::ranges::sort(gids);
  gids.erase(std::unique(gids.begin(), gids.end()), gids.end());
  if (gids.size() > kGidsMax) gids.resize(kGidsMax);
  if (gids == gids_ && ips_be == ips_be_) return;
  gids_ = std::move(gids);
  ips_be_ = std::move(ips_be);
  // Several changes at one time are written once.
  if (is_ready_) refresh_.start(std::chrono::milliseconds(0), [this] { ask_time(); });
}

void RedisStore::write(int64_t now_s) {
  std::map<std::string, std::string> lines;
  const std::string line = host_entry_line(ips_be_, on_loopback());
  if (!line.empty())
    for (const wire::Gid& gid : gids_) lines[host_entry_key(server_.prefix, gid)] = line;
  const std::string now = std::to_string(now_s);
  const std::string oldest = "(" + std::to_string(now_s - options_.expiry.count());
  const std::string expiry = std::to_string(options_.expiry.count());
  for (const auto& [key, text] : lines) {
    call_write({"ZADD", key, now, text});
    // The expiry is that of the key, so lines that nobody refreshes have to go by themselves.
    call_write({"ZREMRANGEBYSCORE", key, "-inf", oldest});
    call_write({"EXPIRE", key, expiry});
  }
  // The new line is there before the old one goes: whoever asks meanwhile finds the host.
  for (const auto& [key, old] : written_) {
    const auto found = lines.find(key);
    if (found == lines.end() || found->second != old) call_write({"ZREM", key, old});
  }
  written_ = std::move(lines);
}

void RedisStore::call_write(std::initializer_list<std::string_view> words) {
  session_->call(words, [this](const RedisReply& reply) {
    if (!reply.is_error()) return;
    // The name may lead to another server by now, which takes what is written.
    if (reply.error_code() == "READONLY") return session_->end("it is a replica");
    SHIFT_WARN_LIMITED("redis %s refuses to keep this host's addresses: %s", name_.c_str(),
                       reply.error_code().c_str());
  });
}

void RedisStore::ask(const wire::Gid& gid, Answer answer) {
  const auto ask =
      std::make_shared<Ask>(Ask{gid, std::move(answer), reactor_.now() + options_.ask});
  const bool is_too_much =
      asks_open_ >= kAsksMax || (session_ && session_->unanswered() >= 2 * kAsksMax + 4 * kGidsMax);
  // The answer must not come from inside this call.
  if (is_away_ || is_too_much) ask->until = reactor_.now();
  asks_open_++;
  if (is_away_ || is_too_much) {
    asks_.push_front(ask);
    late_.start(std::chrono::milliseconds(0), [this] { finish_late(); });
    return;
  }
  asks_.push_back(ask);
  if (is_ready_) send(ask);
  if (!late_.is_running()) late_.start_at(asks_.front()->until, [this] { finish_late(); });
}

void RedisStore::send(const std::shared_ptr<Ask>& ask) {
  session_->call({"ZREVRANGE", host_entry_key(server_.prefix, ask->gid), "0", kLastLine},
                 [this, ask](const RedisReply& reply) {
                   if (ask->answer) on_entries(*ask, reply);
                 });
}

void RedisStore::on_entries(Ask& ask, const RedisReply& reply) {
  const bool is_wrong_type = reply.is_error() && reply.error_code() == "WRONGTYPE";
  if (reply.is_error() && !is_wrong_type) {
    SHIFT_WARN_LIMITED("redis %s refuses to tell addresses: %s", name_.c_str(),
                       reply.error_code().c_str());
    return finish(ask, {}, Outcome::kAway);
  }
  bool is_bad = reply.kind != RedisReply::Kind::kList;
  std::vector<uint32_t> all, ips_be;
  for (const std::string& line : reply.list)
    is_bad = host_entry_parse(line, on_loopback(), all) == HostEntry::kBad || is_bad;
  for (const uint32_t ip : all)
    if (std::ranges::find(ips_be, ip) == ips_be.end()) ips_be.push_back(ip);
  if (is_bad)
    SHIFT_WARN_LIMITED("redis %s: %s holds what is no list of addresses, which is ignored",
                       name_.c_str(), host_entry_key(server_.prefix, ask.gid).c_str());
  const Outcome outcome = ips_be.empty() ? Outcome::kUnknown : Outcome::kFound;
  finish(ask, std::move(ips_be), outcome);
}

void RedisStore::finish(Ask& ask, std::vector<uint32_t> ips_be, Outcome outcome) {
  const Answer answer = std::exchange(ask.answer, nullptr);
  asks_open_--;
  while (!asks_.empty() && !asks_.front()->answer) asks_.pop_front();
  answer(std::move(ips_be), outcome);
}

void RedisStore::finish_late() {
  const auto now = reactor_.now();
  while (!asks_.empty() && (!asks_.front()->answer || asks_.front()->until <= now)) {
    const auto ask = asks_.front();
    asks_.pop_front();
    if (ask->answer) finish(*ask, {}, Outcome::kAway);
  }
  if (!asks_.empty()) late_.start_at(asks_.front()->until, [this] { finish_late(); });
}

void RedisStore::finish_all() {
  const auto waiting = std::exchange(asks_, {});
  for (const auto& ask : waiting)
    if (ask->answer) finish(*ask, {}, Outcome::kAway);
}

}  // namespace shift::net
