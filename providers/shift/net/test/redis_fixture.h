// A process with a store, for tests: it has a reactor of its own.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/reactor.h"
#include "net/redis_store.h"

namespace shift::net::test {

using namespace std::chrono_literals;
using Outcome = RedisStore::Outcome;
using Ips = std::vector<uint32_t>;

inline uint32_t ip_of(const char* text) {
  return inet_addr(text);
}

inline wire::Gid gid_of(uint8_t number) {
  wire::Gid gid;
  gid.raw = {0xfe, 0x80};
  gid.raw[15] = number;
  return gid;
}

inline RedisServer local_server(uint16_t port) {
  RedisServer server;
  server.host = "127.0.0.1";
  server.port = port;
  return server;
}

// Times under which a test that waits for a retry or a refreshment is over soon. How long an answer
// may take is long: tests that wait for lateness shorten it.
inline RedisOptions quick() {
  RedisOptions options;
  options.ask = 20s;
  options.patience = 20s;
  options.retry_min = 5ms;
  options.retry_max = 40ms;
  options.refresh = 50ms;
  return options;
}

struct Answered {
  Ips ips;
  Outcome outcome = Outcome::kAway;
  bool operator==(const Answered&) const = default;
};

class StoreNode {
 public:
  explicit StoreNode(RedisServer server, RedisOptions options = quick()) {
    EXPECT_TRUE(reactor_.start());
    run([&] {
      store_ = std::make_unique<RedisStore>(
          reactor_, std::move(server), [this] { note_address(); }, std::move(options));
    });
  }
  ~StoreNode() {
    run([&] { store_.reset(); });
  }

  void run(const Reactor::Task& task) { EXPECT_TRUE(reactor_.call_and_wait(task)); }
  RedisStore& store() { return *store_; }
  void announce(std::vector<wire::Gid> gids, Ips ips) {
    run([&] { store_->announce(std::move(gids), std::move(ips)); });
  }
  std::future<Answered> ask_soon(const wire::Gid& gid) {
    const auto promise = std::make_shared<std::promise<Answered>>();
    run([&] {
      store_->ask(gid, [promise](Ips ips, Outcome outcome) {
        promise->set_value({std::move(ips), outcome});
      });
    });
    return promise->get_future();
  }
  Answered ask(const wire::Gid& gid) { return ask_soon(gid).get(); }
  // Asks until that is the answer.
  void expect(const wire::Gid& gid, const Answered& wanted) {
    const auto until = std::chrono::steady_clock::now() + 30s;
    Answered last;
    while ((last = ask(gid)) != wanted)
      ASSERT_LT(std::chrono::steady_clock::now(), until) << static_cast<int>(last.outcome);
  }
  uint32_t address() {
    uint32_t ip = 0;
    run([&] { ip = store_->local_address(); });
    return ip;
  }
  std::string problem() {
    std::string text;
    run([&] { text = store_->problem(); });
    return text;
  }
  // Waits until the address was told to have changed, and returns it.
  uint32_t told_address() { return told_.get_future().get(); }

 private:
  void note_address() { told_.set_value(store_->local_address()); }

  Reactor reactor_;
  std::promise<uint32_t> told_;
  std::unique_ptr<RedisStore> store_;
};

// Waits for what must happen.
template <typename F>
void wait_for(const F& holds) {
  const auto until = std::chrono::steady_clock::now() + 30s;
  while (!holds()) {
    ASSERT_LT(std::chrono::steady_clock::now(), until);
    std::this_thread::yield();
  }
}

}  // namespace shift::net::test
