// Tests that a flood of connections keeps no honest peer out (C11).
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>

#include "net/socket.h"
#include "net/test/stranger.h"

namespace shift::net::test {
namespace {

// Connects without pause from 100 addresses. One connection in two stays silent, the others say the
// first half of a Hello. All stay open until there are too many.
class Flood {
 public:
  Flood(uint32_t to, wire::Hello hello) : to_(to) {
    EXPECT_TRUE(wire::encode(hello, half_, 1));
    half_.resize(half_.size() / 2);
    thread_ = std::thread([this] { run(); });
  }
  ~Flood() {
    over_ = true;
    thread_.join();
  }
  Flood(const Flood&) = delete;
  // How many connections there were.
  unsigned count() const { return count_; }

 private:
  static constexpr size_t kOpenMax = 400;

  void run() {
    std::deque<int> open;
    while (!over_) {
      if (open.size() >= kOpenMax) {
        close(open.front());
        open.pop_front();
      }
      open.push_back(connect_one());
      count_++;
    }
    for (const int fd : open) close(fd);
  }
  int connect_one() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const unsigned n = count_ % 100;
    const auto net = 127u << 24 | 78u << 16 | (1 + static_cast<unsigned>(getpid()) % 250) << 8;
    const auto from = socket_address(htonl(net | (1 + n)), 0),
               there = socket_address(to_, test_port());
    // (The connection ends without a trace that would hold its port.)
    const struct linger at_once = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    if (bind(fd, reinterpret_cast<const struct sockaddr*>(&from), sizeof from) == 0)
      (void)connect(fd, reinterpret_cast<const struct sockaddr*>(&there), sizeof there);
    if (n % 2 == 0) (void)send(fd, half_.data(), half_.size(), MSG_NOSIGNAL);
    return fd;
  }

  const uint32_t to_;
  std::vector<uint8_t> half_;
  std::atomic<bool> over_ = false;
  std::atomic<unsigned> count_ = 0;
  std::thread thread_;
};

class FloodTest : public ::testing::Test {
 protected:
  FloodTest() {
    node_.notes.add_qp(ours_);
    node_.serve(here_);
    Node first;  // the process listens when it has been found
    EXPECT_EQ(first.find(qp(ip(56), 1), ours_).error, FindError::kNone);
  }
  wire::Hello hello() const { return hello_by(identity(9), qp(ip(66), 5), ours_); }

  const uint32_t here_ = ip(55);
  const wire::QpName ours_ = qp(here_, 7);
  Node node_;
};

// The loop is busy elsewhere while more come than there are places, each from another address. The
// first of them is honest.
TEST_F(FloodTest, AHelloIsReadBeforeItsPlaceIsNeeded) {
  std::unique_ptr<Stranger> honest;
  std::vector<std::unique_ptr<Stranger>> crowd;
  node_.run([&] {
    honest = std::make_unique<Stranger>(here_);
    honest->say(hello());
    for (unsigned n = 0; n < 90; n++)
      crowd.push_back(std::make_unique<Stranger>(here_, ip(100 + n)));
  });
  const auto answer = honest->hear();
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(std::get<wire::HelloReply>(*answer).status, wire::HelloStatus::kOk);
}

// A peer that has been answered keeps its place, whatever the number of those who said no Hello.
TEST_F(FloodTest, AnAnsweredPeerMayTakeItsTime) {
  Stranger honest(here_);
  honest.say(hello());
  const auto answer = honest.hear();
  ASSERT_NE(answer, nullptr);
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (unsigned n = 0; n < 90; n++) crowd.push_back(std::make_unique<Stranger>(here_, ip(100 + n)));
  EXPECT_TRUE(crowd.front()->closed());
  honest.say(honest.confirm(hello(), std::get<wire::HelloReply>(*answer), identity(9)));
  honest.say(numbered(5));
  EXPECT_TRUE(node_.notes.wait_message(numbered(5)));
}

// What the loop has not accepted yet waits in the kernel, which drops what does not fit.
TEST_F(FloodTest, ManyMayWaitToBeAccepted) {
  std::vector<UniqueFd> crowd;
  bool is_up = false;
  node_.run([&] {
    for (unsigned n = 0; n < 300; n++)
      crowd.push_back(tcp_connect(ip(100 + n % 100), here_, test_port()));
    const UniqueFd honest = tcp_connect(ip(58), here_, test_port());
    struct pollfd connecting = {honest.get(), POLLOUT, 0};
    is_up = poll(&connecting, 1, 3000) == 1 && socket_error(honest.get()) == 0;
  });
  EXPECT_TRUE(is_up);
}

TEST_F(FloodTest, AnHonestPeerIsHeardWithinASecond) {
  Flood flood(here_, hello());
  while (flood.count() < 1000) usleep(1000);
  std::vector<std::chrono::milliseconds> times;
  for (unsigned i = 0; i < 10; i++) {
    Node honest;
    const auto start = Reactor::Clock::now();
    EXPECT_EQ(honest.find(qp(ip(57), i + 1), ours_).error, FindError::kNone) << i;
    times.push_back(
        std::chrono::duration_cast<std::chrono::milliseconds>(Reactor::Clock::now() - start));
  }
  std::ranges::sort(times);
  EXPECT_LT(times[times.size() / 2], 1s);
}

}  // namespace
}  // namespace shift::net::test
