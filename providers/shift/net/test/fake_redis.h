// A redis server for tests: it knows the few commands that the layer uses, and does what a test
// tells it to do in their place.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "util/unique_fd.h"

namespace shift::net::test {

using Words = std::vector<std::string>;

class FakeRedis {
 public:
  // What is sent in place of the reply; nothing: the reply. An empty text is silence.
  using Script = std::function<std::optional<std::string>(const Words& command)>;

  FakeRedis() { start(); }
  ~FakeRedis() { stop(); }
  FakeRedis(const FakeRedis&) = delete;
  FakeRedis& operator=(const FakeRedis&) = delete;

  uint16_t port() const { return port_; }
  // Closes all connections and the port. What is stored stays.
  void stop();
  // Listens at the same port as before.
  void start();

  void set_script(Script script);
  // What each client is sent before it has asked anything.
  void set_greeting(std::string greeting);
  // Each client is sent this again and again, as long as it takes it, up to a bound.
  void set_flood(std::string flood);
  // Replies are sent in pieces of this size.
  void set_piece(size_t bytes);
  void clear_data();

  size_t clients() const;    // that have ever connected
  uint64_t flooded() const;  // bytes that clients took of the flood
  static constexpr uint64_t kFloodMax = 256 << 20;
  // The texts under the key with their scores.
  std::map<std::string, std::string> entries(const std::string& key) const;
  void put(const std::string& key, const std::string& text, uint64_t score);
  // How many commands of that name have come.
  size_t count(const std::string& name) const;

 private:
  struct Client {
    UniqueFd fd;
    std::string in, out;
    bool is_flooded = false;
  };

  void run();
  bool serve(Client& client, short events);
  bool flush(Client& client);
  std::string reply(const Words& words);
  std::string execute(const Words& words);

  uint16_t port_ = 0;
  UniqueFd listener_, stop_read_, stop_write_;
  std::thread thread_;

  mutable std::mutex mutex_;  // guards all below
  Script script_;
  std::string greeting_, flood_;
  size_t piece_ = 0, clients_ = 0;
  uint64_t flooded_ = 0, now_s_ = 1000000;
  std::map<std::string, std::map<std::string, std::string>> data_;
  std::map<std::string, size_t> counts_;
};

inline std::string bulk(const std::string& text) {
  return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}
inline std::string list(const Words& texts) {
  std::string all = "*" + std::to_string(texts.size()) + "\r\n";
  for (const std::string& text : texts) all += bulk(text);
  return all;
}

}  // namespace shift::net::test
