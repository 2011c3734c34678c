// The redis server for tests, on a thread of its own.
#include "net/test/fake_redis.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace shift::net::test {
namespace {

// Takes one whole command off the text.
std::optional<Words> take_command(std::string& text) {
  const auto number = [&](size_t at, size_t& end) {
    end = text.find("\r\n", at);
    return end == text.npos ? 0 : static_cast<size_t>(atoll(text.c_str() + at + 1));
  };
  size_t end = 0;
  const size_t count = number(0, end);
  if (text.empty() || end == text.npos) return std::nullopt;
  Words words;
  size_t at = end + 2;
  for (size_t i = 0; i < count; i++) {
    if (at >= text.size()) return std::nullopt;
    const size_t size = number(at, end);
    if (end == text.npos || text.size() < end + 2 + size + 2) return std::nullopt;
    words.push_back(text.substr(end + 2, size));
    at = end + 2 + size + 2;
  }
  text.erase(0, at);
  return words;
}

}  // namespace

void FakeRedis::start() {
  struct sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port_);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<struct sockaddr*>(&address);
  listener_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int one = 1;
  setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  ASSERT_EQ(bind(listener_.get(), generic, size), 0);
  ASSERT_EQ(listen(listener_.get(), 64), 0);
  ASSERT_EQ(getsockname(listener_.get(), generic, &size), 0);
  port_ = ntohs(address.sin_port);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  stop_read_ = UniqueFd(ends[0]);
  stop_write_ = UniqueFd(ends[1]);
  thread_ = std::thread([this] { run(); });
}

void FakeRedis::stop() {
  if (!thread_.joinable()) return;
  stop_write_.reset();
  thread_.join();
  listener_.reset();
}

void FakeRedis::run() {
  std::vector<Client> clients;
  for (;;) {
    std::vector<struct pollfd> polled = {{stop_read_.get(), POLLIN, 0},
                                         {listener_.get(), POLLIN, 0}};
    for (const Client& client : clients) {
      const bool wants_write = !client.out.empty() || client.is_flooded;
      polled.push_back(
          {client.fd.get(), static_cast<short>(POLLIN | (wants_write ? POLLOUT : 0)), 0});
    }
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    if (polled[0].revents != 0) return;
    std::vector<Client> kept;
    for (size_t i = 0; i < clients.size(); i++)
      if (serve(clients[i], polled[i + 2].revents)) kept.push_back(std::move(clients[i]));
    clients = std::move(kept);
    if (polled[1].revents == 0) continue;
    Client fresh{UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)),
                 "", "", false};
    if (!fresh.fd) continue;
    const int one = 1;
    setsockopt(fresh.fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    std::lock_guard lock(mutex_);
    clients_++;
    fresh.out = greeting_ + flood_;  // at once: no reply may come before it
    fresh.is_flooded = !flood_.empty();
    clients.push_back(std::move(fresh));
  }
}

bool FakeRedis::serve(Client& client, short events) {
  if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) {
    char chunk[16384];
    const ssize_t n = recv(client.fd.get(), chunk, sizeof chunk, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) return false;
    if (n > 0) client.in.append(chunk, static_cast<size_t>(n));
    while (const auto command = take_command(client.in)) client.out += reply(*command);
  }
  return flush(client);
}

bool FakeRedis::flush(Client& client) {
  size_t piece;
  {
    std::lock_guard lock(mutex_);
    if (client.is_flooded && client.out.empty()) {
      if (flooded_ >= kFloodMax) client.is_flooded = false;
      client.out = flood_;
    }
    piece = piece_ != 0 ? piece_ : client.out.size();
  }
  while (!client.out.empty()) {
    const ssize_t n = send(client.fd.get(), client.out.data(), std::min(piece, client.out.size()),
                           MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN;
    client.out.erase(0, static_cast<size_t>(n));
    std::lock_guard lock(mutex_);
    if (client.is_flooded) flooded_ += static_cast<uint64_t>(n);
  }
  return true;
}

std::string FakeRedis::reply(const Words& words) {
  Script script;
  {
    std::lock_guard lock(mutex_);
    counts_[words[0]]++;
    script = script_;
  }
  if (script)
    if (const auto scripted = script(words)) return *scripted;
  std::lock_guard lock(mutex_);
  return execute(words);
}

std::string FakeRedis::execute(const Words& words) {
  const std::string& name = words[0];
  if (name == "TIME") return list({std::to_string(++now_s_), "0"});
  if (name == "AUTH") return "+OK\r\n";
  if (words.size() < 2) return "-ERR unknown\r\n";
  auto& entries = data_[words[1]];
  if (name == "ZADD") {
    entries[words[3]] = words[2];
  } else if (name == "ZREM") {
    entries.erase(words[2]);
  } else if (name == "ZREMRANGEBYSCORE") {
    std::erase_if(entries, [&](const auto& entry) {
      return atoll(entry.second.c_str()) < atoll(words[3].c_str() + 1);
    });
  } else if (name == "ZREVRANGE") {
    std::vector<std::pair<long long, std::string>> sorted;
    for (const auto& [text, score] : entries) sorted.emplace_back(-atoll(score.c_str()), text);
    std::sort(sorted.begin(), sorted.end());
    Words found;
    for (const auto& [score, text] : sorted)
      if (found.size() <= static_cast<size_t>(atoll(words[3].c_str()))) found.push_back(text);
    return list(found);
  }
  return ":1\r\n";
}

void FakeRedis::set_script(Script script) {
  std::lock_guard lock(mutex_);
  script_ = std::move(script);
}
void FakeRedis::set_greeting(std::string greeting) {
  std::lock_guard lock(mutex_);
  greeting_ = std::move(greeting);
}
void FakeRedis::set_flood(std::string flood) {
  std::lock_guard lock(mutex_);
  flood_ = std::move(flood);
}
void FakeRedis::set_piece(size_t bytes) {
  std::lock_guard lock(mutex_);
  piece_ = bytes;
}
void FakeRedis::clear_data() {
  std::lock_guard lock(mutex_);
  data_.clear();
}
size_t FakeRedis::clients() const {
  std::lock_guard lock(mutex_);
  return clients_;
}
uint64_t FakeRedis::flooded() const {
  std::lock_guard lock(mutex_);
  return flooded_;
}
std::map<std::string, std::string> FakeRedis::entries(const std::string& key) const {
  std::lock_guard lock(mutex_);
  const auto found = data_.find(key);
  return found != data_.end() ? found->second : std::map<std::string, std::string>();
}
void FakeRedis::put(const std::string& key, const std::string& text, uint64_t score) {
  std::lock_guard lock(mutex_);
  data_[key][text] = std::to_string(score);
}
size_t FakeRedis::count(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto found = counts_.find(name);
  return found != counts_.end() ? found->second : 0;
}

}  // namespace shift::net::test
