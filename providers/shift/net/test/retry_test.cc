// Tests how often a process dials the addresses that its peers name.
#include <sys/resource.h>

#include "net/socket.h"
#include "net/test/net_fixture.h"

namespace shift::net::test {
namespace {

// A peer has named an address at which somebody listens who is not the peer.
class Retry : public ::testing::Test {
 protected:
  Retry() : listener_(tcp_listen(ip(52), test_port())) {
    EXPECT_TRUE(listener_);
    peer_.notes.add_qp(theirs_);
    peer_.serve(ip(51));
    channel_ = node_.find(qp(ip(50), 7), theirs_).channel;
    EXPECT_NE(channel_, nullptr);
  }
  void name_address() {
    node_.run([&] { channel_->keep_connection(ip(50), ip(52)); });
  }
  // How many dials have come by now; each of them is cut.
  int dials() {
    uint32_t from = 0;
    int count = 0;
    while (tcp_accept(listener_.get(), from)) count++;
    return count;
  }
  void hint() {
    node_.run([&] { node_.net->retry_connections(); });
  }

  const wire::QpName theirs_ = qp(ip(51), 8);
  UniqueFd listener_;
  Node node_, peer_;
  PeerChannel* channel_ = nullptr;
};

// The process hears again and again that a NIC of the peer's came back.
TEST_F(Retry, HintsInARowHaveAnAddressDialedTwiceAtMost) {
  name_address();
  for (int count = 0; count < 6; usleep(1000)) count += dials();
  // The pause has grown to more than a second.
  const auto start = Reactor::Clock::now();
  int count = 0;
  for (int i = 0; i < 1000; i++) {
    hint();
    count += dials();
    usleep(300);
  }
  while (count == 0) count += dials();
  if (Reactor::Clock::now() - start < 1s) {
    EXPECT_EQ(count, 1);
    // The last hints were not lost.
    while (count < 2) usleep(1000), count += dials();
  }
  EXPECT_GE(Reactor::Clock::now() - start, 1s);
}

// The pauses of an address that never answered go on growing, whatever the peer says.
TEST_F(Retry, AHintDoesNotMakeAFreshStart) {
  name_address();
  for (int count = 0; count < 6; usleep(1000)) count += dials();
  hint();
  for (int count = 0; count < 1; usleep(1000)) count += dials();
  // It would be dialed again after 50 ms.
  std::promise<void> over;
  node_.run([&] { node_.reactor.timer_start(500ms, [&] { over.set_value(); }); });
  over.get_future().wait();
  EXPECT_EQ(dials(), 0);
}

TEST(RetryPause, IsLongWhereNobodyEverAnswered) {
  EXPECT_EQ(Channel::retry_pause(0, true), 50ms);
  EXPECT_EQ(Channel::retry_pause(3, true), 400ms);
  EXPECT_EQ(Channel::retry_pause(6, true), 3200ms);
  EXPECT_EQ(Channel::retry_pause(7, true), 5s);
  EXPECT_EQ(Channel::retry_pause(1000, true), 5s);
  EXPECT_EQ(Channel::retry_pause(0, false), 50ms);
  EXPECT_EQ(Channel::retry_pause(7, false), 6400ms);
  EXPECT_EQ(Channel::retry_pause(1000, false), 60s);
}

// A dial that nobody answers holds a descriptor, too.
TEST_F(Retry, DialsCountAsConnections) {
  struct rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  struct rlimit low = before;
  low.rlim_cur = 200;  // 50 connections in all, or 25 beyond those that are needed
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  node_.run([&] {
    for (unsigned n = 0; n < 60; n++) channel_->keep_connection(ip(100 + n), ip(52));
    EXPECT_EQ(real(channel_).sockets(), 25u);
    EXPECT_EQ(real(channel_).live_connections(), 1u);
  });
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace shift::net::test
