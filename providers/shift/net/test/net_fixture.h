// A Node stands for one process of the control network in tests: it has its own reactor, and a
// delegate that takes notes.
#pragma once

#include <arpa/inet.h>
#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "net/peer_net.h"

namespace shift::net::test {

// All channels that a PeerNet gives out are of its own class.
inline Channel& real(PeerChannel* channel) {
  return *static_cast<Channel*>(channel);
}

using namespace std::chrono_literals;

// How long a test waits for an event that must happen. The time is long, since a test that passes
// does not spend it.
inline constexpr auto kPatience = 30s;

// Address number n of this test program. Programs that run at the same time have different ones.
inline uint32_t ip(unsigned n) {
  return htonl(127u << 24 | 77u << 16 | (1 + static_cast<unsigned>(getpid()) % 250) << 8 | n);
}

inline struct sockaddr_in socket_address(uint32_t ip_be, uint16_t port) {
  struct sockaddr_in a = {};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = ip_be;
  a.sin_port = htons(port);
  return a;
}

// The port that the whole program uses; no process used it when the program asked for it first.
inline uint16_t test_port() {
  static const uint16_t port = [] {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    auto a = socket_address(ip(254), 0);
    socklen_t size = sizeof a;
    EXPECT_EQ(bind(fd, reinterpret_cast<struct sockaddr*>(&a), size), 0);
    EXPECT_EQ(getsockname(fd, reinterpret_cast<struct sockaddr*>(&a), &size), 0);
    close(fd);
    return ntohs(a.sin_port);
  }();
  return port;
}

inline wire::QpName qp(uint32_t ip_be, uint32_t qpn) {
  return {wire::Gid::from_ipv4(ip_be), qpn};
}

// A message that is told from others by its number.
inline wire::Message numbered(uint32_t seq) {
  return wire::Switch{{}, {}, 1, seq, 0};
}

// The descriptors of this process that are TCP sockets between these two addresses.
inline std::vector<int> tcp_sockets(uint32_t local_ip_be, uint32_t remote_ip_be) {
  std::vector<int> found;
  DIR* dir = opendir("/proc/self/fd");
  while (const struct dirent* entry = readdir(dir)) {
    const int fd = atoi(entry->d_name);
    struct sockaddr_in local = {}, remote = {};
    socklen_t local_size = sizeof local, remote_size = sizeof remote;
    if (getsockname(fd, reinterpret_cast<struct sockaddr*>(&local), &local_size) == 0 &&
        getpeername(fd, reinterpret_cast<struct sockaddr*>(&remote), &remote_size) == 0 &&
        local.sin_family == AF_INET && local.sin_addr.s_addr == local_ip_be &&
        remote.sin_addr.s_addr == remote_ip_be)
      found.push_back(fd);
  }
  closedir(dir);
  return found;
}

class Notes : public Delegate {
 public:
  bool knows_qp(const wire::QpName& name) override {
    std::lock_guard lock(mutex_);
    return qps_.count(name) != 0;
  }
  bool expects(const wire::QpName& own, const wire::QpName& peer) override {
    std::lock_guard lock(mutex_);
    if (!expecting_ || qps_.count(own) == 0) return false;
    asked_.insert({own, peer});
    return true;
  }
  bool relies_on(const PeerChannel* channel) override {
    return relying_ || (channel != nullptr && channel == relied_);
  }
  void on_message(PeerChannel* channel, const wire::Message& message) override {
    note([&] { messages_.emplace_back(channel, message); });
  }
  void on_connection_up(PeerChannel* channel, bool alone) override {
    note([&] {
      last_up_ = channel;
      ups_++;
      alones_ += alone;
    });
  }
  void on_channel_down(PeerChannel*) override {
    note([&] { downs_++; });
  }

  void add_qp(const wire::QpName& name) {
    std::lock_guard lock(mutex_);
    qps_.insert(name);
  }
  // Whether its QPs have found their peers over its channels.
  void set_relying(bool relying) { relying_ = relying; }
  // They have found them over this channel only.
  void set_relying_on(const PeerChannel* channel) {
    relied_ = channel;
    relying_ = false;
  }
  // Its QPs are connected to no peer's from here on.
  void set_expecting(bool expecting) {
    std::lock_guard lock(mutex_);
    expecting_ = expecting;
  }

  int ups() { return read(ups_); }
  int alones() { return read(alones_); }
  int downs() { return read(downs_); }
  PeerChannel* last_up() { return read(last_up_); }
  // The own and the peer's QP of each question that was answered yes.
  using Asked = std::set<std::pair<wire::QpName, wire::QpName>>;
  Asked asked() { return read(asked_); }
  std::vector<std::pair<PeerChannel*, wire::Message>> messages() { return read(messages_); }
  size_t count(const wire::Message& wanted) {
    std::lock_guard lock(mutex_);
    size_t n = 0;
    for (auto& [channel, message] : messages_) n += message == wanted;
    return n;
  }

  // Returns true as soon as `condition` holds, which it checks after every note; returns false when
  // kPatience ends first.
  bool wait(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    for (;;) {
      uint64_t seen = read(notes_);
      if (condition()) return true;
      std::unique_lock lock(mutex_);
      if (!changed_.wait_until(lock, end, [&] { return notes_ != seen; })) return false;
    }
  }
  bool wait_message(const wire::Message& wanted) {
    return wait([&] { return count(wanted) != 0; });
  }

 private:
  template <typename F>
  void note(const F& change) {
    std::lock_guard lock(mutex_);
    change();
    notes_++;
    changed_.notify_all();
  }
  template <typename T>
  T read(const T& value) {
    std::lock_guard lock(mutex_);
    return value;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t notes_ = 0;
  std::set<wire::QpName> qps_;
  bool expecting_ = true;
  std::atomic<bool> relying_ = true;
  std::atomic<const PeerChannel*> relied_ = nullptr;
  Asked asked_;
  std::vector<std::pair<PeerChannel*, wire::Message>> messages_;
  PeerChannel* last_up_ = nullptr;
  int ups_ = 0, alones_ = 0, downs_ = 0;
};

struct Found {
  PeerChannel* channel = nullptr;
  FindError error = FindError::kStopped;
};

class Node {
 public:
  explicit Node(std::unique_ptr<JobKeys> keys) : Node(3s, std::move(keys)) {}
  explicit Node(std::chrono::milliseconds grace = 3s, std::unique_ptr<JobKeys> keys = nullptr,
                std::chrono::milliseconds idle_look = 15s) {
    EXPECT_TRUE(reactor.start());
    reactor.call_and_wait([&] {
      net = std::make_unique<PeerNet>(reactor, notes, PeerNetOptions{test_port(), grace, idle_look},
                                      std::move(keys));
    });
  }
  ~Node() {
    reactor.call_and_wait([&] { net.reset(); });
  }

  void serve(uint32_t ip_be) {
    reactor.call_and_wait([&] { net->add_address(ip_be); });
  }
  void run(const std::function<void()>& f) { EXPECT_TRUE(reactor.call_and_wait(f)); }

  std::future<Found> find_start(const wire::QpName& local, const wire::QpName& remote,
                                std::chrono::milliseconds patience = kPatience) {
    auto promise = std::make_shared<std::promise<Found>>();
    run([&] {
      FindRequest request{remote, local, Reactor::Clock::now() + patience};
      net->find_peer(request, [promise](PeerChannel* channel, FindError error) {
        promise->set_value({channel, error});
      });
    });
    return promise->get_future();
  }
  Found find(const wire::QpName& local, const wire::QpName& remote,
             std::chrono::milliseconds patience = kPatience) {
    auto future = find_start(local, remote, patience);
    if (future.wait_for(patience + kPatience) != std::future_status::ready) {
      ADD_FAILURE() << "the search never ended";
      return {};
    }
    return future.get();
  }
  size_t send(PeerChannel* channel, const wire::Message& message) {
    size_t n = 0;
    run([&] { n = channel->send(message); });
    return n;
  }
  size_t live(PeerChannel* channel) {
    size_t n = 0;
    run([&] { n = real(channel).live_connections(); });
    return n;
  }

  Notes notes;
  Reactor reactor;
  std::unique_ptr<PeerNet> net;
};

}  // namespace shift::net::test
