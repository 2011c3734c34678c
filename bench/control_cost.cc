// control-cost measures what a job key costs: the handshake, the sealing of frames, and the
// processor time of small messages, each with and without a key in turns. Both ends are in this
// process, each with a thread of its own, and speak TCP over the loopback. It prints JSON.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "net/peer_net.h"
#include "net/reactor.h"
#include "net/seal.h"
#include "util/job_keys.h"
#include "util/unique_fd.h"
#include "wire/messages.h"

namespace {

using namespace shift;
using namespace std::chrono_literals;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = 30s;
constexpr size_t kFrameSizes[] = {73, 4096, 234 * 1024};

struct Options {
  int handshakes = 200;
  int frames = 2000;
  int rounds = 20;
  int messages = 500;
  int cpu = -1;
};

[[noreturn]] void fail(const std::string& message) {
  fprintf(stderr, "control-cost: %s\n", message.c_str());
  exit(1);
}

// Pins this thread and those that it will start. On several processors the figures are mostly about
// how one wakes the other.
void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) fail("there is no such processor");
}

json summary(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double part) {
    return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
  };
  return {{"count", values.size()}, {"p10", at(0.1)}, {"median", at(0.5)}, {"p90", at(0.9)}};
}

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// Of all threads of this process.
double cpu_us() {
  timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) * 1e6 + static_cast<double>(used.tv_nsec) / 1e3;
}

// Address number n of this process: others that run at the same time have different ones.
uint32_t ip(unsigned n) {
  return htonl(127u << 24 | 79u << 16 | (1 + static_cast<unsigned>(getpid()) % 250) << 8 | n);
}

// A port that nobody uses at the server's address.
uint16_t port_free(uint32_t ip_be) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ip_be;
  socklen_t size = sizeof address;
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!fd || bind(fd.get(), generic, size) != 0 || getsockname(fd.get(), generic, &size) != 0)
    fail("no free port on the loopback");
  return ntohs(address.sin_port);
}

std::unique_ptr<JobKeys> keys_make(bool keyed) {
  if (!keyed) return nullptr;
  const std::array<std::array<uint8_t, kJobKeySize>, 1> secrets = {{{1, 2, 3}}};
  auto keys = JobKeys::make(secrets);
  if (keys == nullptr) fail("no job key can be made");
  return keys;
}

// One end: the network of a process, as the coordinator uses it.
class End final : public net::Delegate {
 public:
  explicit End(bool keyed, uint16_t port) : keyed_(keyed), port_(port) {
    if (!reactor_.start()) fail("no thread can be started");
    renew();
  }
  ~End() override {
    reactor_.call_and_wait([this] { net_.reset(); });
  }

  // Becomes a process that no peer knows.
  void renew() {
    reactor_.call_and_wait([this] {
      net_.reset();
      net_ = std::make_unique<net::PeerNet>(
          reactor_, *this, net::PeerNetOptions{.port = port_, .grace = 1ms}, keys_make(keyed_));
    });
  }
  // Owns the QPs of this address from here on, whatever their numbers.
  void serve(uint32_t ip_be) {
    gid_ = wire::Gid::from_ipv4(ip_be);
    reactor_.call_and_wait([&] { net_->add_address(ip_be); });
  }
  // Returns how long it takes to find the peer's process and to open the channel to it, in us.
  double find(const wire::QpName& own, const wire::QpName& peer) {
    std::promise<double> took;
    reactor_.call_and_wait([&] {
      const auto begin = Clock::now();
      net_->find_peer({peer, own, begin + kPatience},
                      [&, begin](net::PeerChannel* channel, net::FindError) {
                        channel_ = channel;
                        took.set_value(channel != nullptr ? us_since(begin) : -1);
                      });
    });
    const double us = took.get_future().get();
    if (us < 0) fail("the two ends do not find each other");
    if (channel_->is_self() || channel_->is_keyed() != keyed_) fail("the channel is another");
    return us;
  }
  // Sends a message to and fro, `count` times each way.
  void exchange(int count) {
    std::promise<void> done;
    reactor_.call_and_wait([&] {
      left_ = count;
      done_ = &done;
      channel_->send(wire::Switch{});
    });
    if (done.get_future().wait_for(kPatience) != std::future_status::ready)
      fail("a message was lost");
  }

 private:
  // A QP of its own it would find without a handshake.
  bool knows_qp(const wire::QpName& name) override { return name.gid == gid_; }
  bool expects(const wire::QpName&, const wire::QpName&) override { return true; }
  bool relies_on(const net::PeerChannel*) override { return true; }
  void on_message(net::PeerChannel* channel, const wire::Message& message) override {
    if (done_ != nullptr && --left_ == 0) return std::exchange(done_, nullptr)->set_value();
    channel->send(message);
  }
  void on_channel_down(net::PeerChannel*) override {}

  const bool keyed_;
  const uint16_t port_;
  wire::Gid gid_{};
  net::Reactor reactor_;
  std::unique_ptr<net::PeerNet> net_;
  net::PeerChannel* channel_ = nullptr;
  int left_ = 0;
  std::promise<void>* done_ = nullptr;  // of the end that asks
};

// A client and a server that have a key, or none.
struct Ends {
  explicit Ends(bool keyed)
      : peer{wire::Gid::from_ipv4(ip(keyed ? 3 : 2)), 7},
        port(port_free(*peer.gid.ipv4())),
        server(keyed, port),
        client(keyed, port) {
    server.serve(*peer.gid.ipv4());
    client.find(own, peer);  // from here on the server listens
  }

  const wire::QpName own{wire::Gid::from_ipv4(ip(1)), 5}, peer;
  const uint16_t port;
  End server, client;
};

json handshakes_measure(Ends (&ends)[2], int count) {
  std::vector<double> us[2];
  for (int i = 0; i < count; i++) {
    for (int keyed : {0, 1}) {
      ends[keyed].client.renew();
      us[keyed].push_back(ends[keyed].client.find(ends[keyed].own, ends[keyed].peer));
    }
  }
  return {{"plain", summary(us[0])}, {"keyed", summary(us[1])}};
}

json messages_measure(Ends (&ends)[2], int rounds, int messages) {
  std::vector<double> us[2];
  for (int i = 0; i < rounds; i++) {
    for (int keyed : {0, 1}) {
      const double before = cpu_us();
      ends[keyed].client.exchange(messages);
      us[keyed].push_back((cpu_us() - before) / (2 * messages));
    }
  }
  return {{"plain", summary(us[0])}, {"keyed", summary(us[1])}};
}

json frames_measure(size_t size, int count) {
  std::vector<uint8_t> plain;
  if (!wire::encode(wire::Switch{}, plain, 1)) fail("no frame can be made");
  plain.resize(size);
  wire::frame_mark(plain, size, false);
  const auto keys = keys_make(true);
  wire::Instance here, there;
  here.raw.fill(1);
  there.raw.fill(2);
  const net::Way way{here, there};
  std::vector<double> seal_us, open_us;
  std::vector<uint8_t> sealed, opened;
  for (int i = 0; i < count; i++) {
    sealed.reserve(size + wire::kSealSize);
    sealed = plain;
    auto begin = Clock::now();
    const bool is_sealed = net::seal(keys->secret(0), keys->id(0), way, sealed);
    seal_us.push_back(us_since(begin));
    begin = Clock::now();
    const bool is_open = is_sealed && net::unseal(keys->secret(0), way, sealed, opened);
    open_us.push_back(us_since(begin));
    if (!is_open || opened != plain) fail("a sealed frame does not open");
  }
  return {{"bytes", size}, {"seal", summary(seal_us)}, {"open", summary(open_us)}};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures what a job key costs; prints JSON, times in us", "control-cost");
  const auto add = [&](const char* name, int& value, const char* text) {
    app.add_option(name, value, text)->check(CLI::Range(1, 1'000'000))->capture_default_str();
  };
  add("--handshakes", options.handshakes, "handshakes of each kind");
  add("--frames", options.frames, "frames of each size");
  add("--rounds", options.rounds, "rounds of messages of each kind");
  add("--messages", options.messages, "messages of each way in a round");
  app.add_option("--cpu", options.cpu, "run both ends on this processor");
  CLI11_PARSE(app, argc, argv);
  if (options.cpu >= 0) pin(options.cpu);
  if (!crypto_ready()) fail("libsodium does not start");
  Ends ends[2] = {Ends(false), Ends(true)};
  json out;
  out["handshake"] = handshakes_measure(ends, options.handshakes);
  out["message"] = messages_measure(ends, options.rounds, options.messages);
  out["frames"] = json::array();
  for (const size_t size : kFrameSizes)
    out["frames"].push_back(frames_measure(size, options.frames));
  printf("%s\n", out.dump().c_str());
  return 0;
}
