// Tests two and more processes of the control network: searches, channels, and connections that
// die.
#include "net/peer_net.h"

#include <linux/filter.h>

#include <atomic>
#include <barrier>
#include <thread>

#include "net/test/net_fixture.h"

namespace shift::net::test {
namespace {

// Makes the sockets drop all that arrives, without a notice to either end. A dead link looks the
// same to TCP.
void black_hole(const std::vector<int>& sockets) {
  struct sock_filter drop = {BPF_RET | BPF_K, 0, 0, 0};
  const struct sock_fprog program = {1, &drop};
  for (int fd : sockets)
    ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), 0);
}

class PeerNetTest : public ::testing::Test {
 protected:
  PeerNetTest() {
    b_.notes.add_qp(qp_b_);
    b_.serve(ip(2));
    a_.serve(ip(1));
  }
  Found connect() { return a_.find(qp_a_, qp_b_); }
  // Adds the addresses of a second pair of NICs, and a connection over them.
  void add_second_path(PeerChannel* channel) {
    b_.serve(ip(12));
    const int before = a_.notes.ups();
    a_.run([&] { channel->keep_connection(ip(11), ip(12)); });
    ASSERT_TRUE(a_.notes.wait([&] { return a_.notes.ups() > before; }));
    ASSERT_TRUE(b_.notes.wait([&] { return b_.notes.ups() >= 2; }));
  }

  const wire::QpName qp_a_ = qp(ip(1), 0x11), qp_b_ = qp(ip(2), 0x22);
  Node a_{200ms}, b_{200ms};
};

TEST_F(PeerNetTest, FindsTheOwnerAndTalksBothWays) {
  const Found found = connect();
  ASSERT_EQ(found.error, FindError::kNone);
  EXPECT_EQ(real(found.channel).peer(), b_.net->instance());
  EXPECT_FALSE(found.channel->is_self());
  EXPECT_EQ(a_.send(found.channel, numbered(1)), 1u);
  ASSERT_TRUE(b_.notes.wait_message(numbered(1)));
  PeerChannel* back = b_.notes.messages().front().first;
  EXPECT_EQ(real(back).peer(), a_.net->instance());
  EXPECT_EQ(b_.send(back, numbered(2)), 1u);
  EXPECT_TRUE(a_.notes.wait_message(numbered(2)));
  EXPECT_EQ(a_.notes.alones(), 1);
  EXPECT_EQ(b_.notes.alones(), 1);
}

TEST_F(PeerNetTest, OwnerSeesWhoAsks) {
  ASSERT_EQ(connect().error, FindError::kNone);
  EXPECT_EQ(b_.notes.asked(), (Notes::Asked{{qp_b_, qp_a_}}));
}

TEST_F(PeerNetTest, AQpOfAnotherPeerIsNotFound) {
  b_.notes.set_expecting(false);
  EXPECT_EQ(a_.find(qp_a_, qp_b_, 100ms).error, FindError::kNoSuchQp);
  EXPECT_EQ(a_.notes.ups(), 0);
  EXPECT_EQ(b_.notes.ups(), 0);
}

TEST_F(PeerNetTest, NobodyListeningIsKnownLongBeforeTheDeadline) {
  const auto start = Reactor::Clock::now();
  const Found found = a_.find(qp_a_, qp(ip(99), 1), 60s);
  EXPECT_EQ(found.error, FindError::kNoShift);
  EXPECT_EQ(found.channel, nullptr);
  EXPECT_LT(Reactor::Clock::now() - start, 30s);
}

TEST_F(PeerNetTest, UnknownQpIsLookedForUntilTheDeadline) {
  const auto start = Reactor::Clock::now();
  EXPECT_EQ(a_.find(qp_a_, qp(ip(2), 0x99), 300ms).error, FindError::kNoSuchQp);
  EXPECT_GE(Reactor::Clock::now() - start, 300ms);
  // The second search asks over a channel that exists already.
  ASSERT_EQ(connect().error, FindError::kNone);
  EXPECT_EQ(a_.find(qp_a_, qp(ip(2), 0x99), 300ms).error, FindError::kNoSuchQp);
}

TEST_F(PeerNetTest, QpThatAppearsLaterIsFound) {
  auto future = a_.find_start(qp_a_, qp(ip(2), 0x33));
  // Both searches use one pair of addresses, so this one ends only after the first denial.
  ASSERT_EQ(connect().error, FindError::kNone);
  EXPECT_NE(future.wait_for(0s), std::future_status::ready);
  b_.notes.add_qp(qp(ip(2), 0x33));
  ASSERT_EQ(future.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(future.get().error, FindError::kNone);
}

TEST_F(PeerNetTest, GidsWithoutAnAddressAreDeclined) {
  wire::QpName ib = qp_b_;
  ib.gid.raw[0] = 0xfe;
  // The first search has no address to start from; in the second, no host has the GID.
  EXPECT_EQ(a_.find(ib, qp_b_).error, FindError::kUnsupportedGid);
  EXPECT_EQ(a_.find(qp_a_, ib).error, FindError::kNoAnswer);
}

TEST_F(PeerNetTest, BothQpsInOneProcessTalkWithoutSockets) {
  const Found found = b_.find(qp(ip(2), 0x21), qp_b_);
  ASSERT_EQ(found.error, FindError::kNone);
  EXPECT_TRUE(found.channel->is_self());
  EXPECT_EQ(real(found.channel).peer(), b_.net->instance());
  EXPECT_EQ(b_.send(found.channel, numbered(5)), 1u);
  ASSERT_TRUE(b_.notes.wait_message(numbered(5)));
  EXPECT_EQ(b_.notes.messages().front().first, found.channel);
  EXPECT_TRUE(tcp_sockets(ip(2), ip(2)).empty());
}

TEST_F(PeerNetTest, ThousandQpsShareOneConnection) {
  constexpr uint32_t kQps = 1000;
  for (uint32_t i = 0; i < kQps; i++) b_.notes.add_qp(qp(ip(2), 1000 + i));
  std::atomic<uint32_t> found{0}, others{0};
  std::promise<void> done;
  a_.run([&] {
    for (uint32_t i = 0; i < kQps; i++) {
      FindRequest request{qp(ip(2), 1000 + i), qp(ip(1), i), Reactor::Clock::now() + kPatience};
      a_.net->find_peer(request, [&](PeerChannel*, FindError error) {
        others += error != FindError::kNone;
        if (++found == kQps) done.set_value();
      });
    }
  });
  ASSERT_EQ(done.get_future().wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(others, 0u);
  EXPECT_EQ(tcp_sockets(ip(1), ip(2)).size(), 1u);
  a_.run([&] { EXPECT_EQ(a_.net->channel_count(), 1u); });
}

TEST_F(PeerNetTest, SearchFromBothEndsMakesOneChannelEach) {
  a_.notes.add_qp(qp_a_);
  auto one = a_.find_start(qp_a_, qp_b_), other = b_.find_start(qp_b_, qp_a_);
  ASSERT_EQ(one.wait_for(kPatience), std::future_status::ready);
  ASSERT_EQ(other.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(one.get().error, FindError::kNone);
  EXPECT_EQ(other.get().error, FindError::kNone);
  a_.run([&] { EXPECT_EQ(a_.net->channel_count(), 1u); });
  b_.run([&] { EXPECT_EQ(b_.net->channel_count(), 1u); });
}

TEST_F(PeerNetTest, EverySearchEndsWhenTheNetworkDoes) {
  auto future = a_.find_start(qp_a_, qp(ip(2), 0x99));
  a_.run([&] { a_.net.reset(); });
  ASSERT_EQ(future.wait_for(0s), std::future_status::ready);
  EXPECT_EQ(future.get().error, FindError::kStopped);
}

TEST_F(PeerNetTest, MessagesGoOverEveryPath) {
  const Found found = connect();
  ASSERT_EQ(found.error, FindError::kNone);
  add_second_path(found.channel);
  EXPECT_EQ(a_.send(found.channel, numbered(1)), 2u);
  EXPECT_TRUE(b_.notes.wait_message(numbered(1)));
  EXPECT_EQ(b_.notes.alones(), 1);
  // A pair of addresses that has a connection gets no second one, whichever end adds it.
  a_.run([&] { found.channel->keep_connection(ip(11), ip(12)); });
  b_.run([&] { b_.notes.last_up()->keep_connection(ip(12), ip(11)); });
  EXPECT_EQ(a_.live(found.channel), 2u);
  EXPECT_EQ(b_.live(b_.notes.last_up()), 2u);
  // A pair that shares an address with one of them does.
  const int before = a_.notes.ups();
  a_.run([&] { found.channel->keep_connection(ip(13), ip(12)); });
  EXPECT_TRUE(a_.notes.wait([&] { return a_.notes.ups() > before; }));
  EXPECT_EQ(a_.live(found.channel), 3u);
}

TEST_F(PeerNetTest, APathThatIsDroppedAsOftenAsAddedIsNotReopened) {
  const Found found = connect();
  ASSERT_EQ(found.error, FindError::kNone);
  add_second_path(found.channel);
  a_.run([&] { found.channel->keep_connection(ip(11), ip(12)); });
  const auto lose = [](uint32_t local, uint32_t remote) {
    for (int fd : tcp_sockets(local, remote)) shutdown(fd, SHUT_RDWR);
  };
  const auto lose_and_regain = [&](uint32_t local, uint32_t remote) {
    const int before = a_.notes.ups();
    lose(local, remote);
    return a_.notes.wait([&] { return a_.notes.ups() > before; });
  };
  a_.run([&] { found.channel->drop_connection(ip(11), ip(12)); });
  EXPECT_TRUE(lose_and_regain(ip(11), ip(12)));
  a_.run([&] { found.channel->drop_connection(ip(11), ip(12)); });
  EXPECT_EQ(a_.live(found.channel), 2u) << "what is open is used";
  lose(ip(11), ip(12));
  // The other connection is lost and comes back twice, which gives the dropped one time enough.
  for (int i = 0; i < 2; i++) EXPECT_TRUE(lose_and_regain(ip(1), ip(2)));
  EXPECT_TRUE(tcp_sockets(ip(11), ip(12)).empty());
  // The channel works without the dropped connection, and a further drop changes nothing.
  a_.run([&] { found.channel->drop_connection(ip(11), ip(12)); });
  EXPECT_EQ(a_.send(found.channel, numbered(1)), 1u);
  EXPECT_TRUE(b_.notes.wait_message(numbered(1)));
}

// Both ends dial each of them at the same time, so that many have two connections.
TEST_F(PeerNetTest, AllPairsOfEightNicsAreConnected) {
  constexpr unsigned kNics = 8;
  const Found found = connect();
  ASSERT_EQ(found.error, FindError::kNone);
  const auto own = [](unsigned nic) { return nic == 0 ? ip(1) : ip(20 + nic); };
  const auto other = [](unsigned nic) { return nic == 0 ? ip(2) : ip(40 + nic); };
  for (unsigned nic = 1; nic < kNics; nic++) a_.serve(own(nic)), b_.serve(other(nic));
  PeerChannel* back = b_.notes.last_up();
  const auto keep_all = [&](PeerChannel* channel, const auto& local, const auto& remote) {
    for (unsigned from = 0; from < kNics; from++)
      for (unsigned to = 0; to < kNics; to++) channel->keep_connection(local(from), remote(to));
  };
  std::barrier together(2);
  std::thread here([&] {
    a_.run([&] {
      together.arrive_and_wait();
      keep_all(found.channel, own, other);
    });
  });
  b_.run([&] {
    together.arrive_and_wait();
    keep_all(back, other, own);
  });
  here.join();
  const auto connected = [&] {
    unsigned count = 0;
    for (unsigned from = 0; from < kNics; from++)
      for (unsigned to = 0; to < kNics; to++)
        count += !tcp_sockets(own(from), other(to)).empty() ||
                 !tcp_sockets(other(to), own(from)).empty();
    return count;
  };
  // A dial that is under way, and then turned away, looks like a connection for a moment.
  int seen = 0;
  for (int looks = 0; seen < 20 && looks < 500; looks++, std::this_thread::sleep_for(10ms))
    seen = a_.live(found.channel) >= kNics * kNics && connected() == kNics * kNics ? seen + 1 : 0;
  EXPECT_EQ(seen, 20) << connected() << " pairs are connected";
}

TEST_F(PeerNetTest, PathsAreBounded) {
  const Found found = connect();
  ASSERT_EQ(found.error, FindError::kNone);
  int added = 0;
  a_.run([&] {
    for (unsigned n = 20; n < 220; n++) added += found.channel->keep_connection(ip(11), ip(n));
    EXPECT_FALSE(found.channel->keep_connection(ip(11), ip(12)));
    found.channel->drop_connection(ip(11), ip(20));
  });
  EXPECT_EQ(added, 63) << "beside the one by which the peer was found";
  add_second_path(found.channel);
}

TEST_F(PeerNetTest, LostConnectionComesBackAndNobodyIsToldItWasDown) {
  const Found found = connect();
  ASSERT_EQ(found.error, FindError::kNone);
  for (int fd : tcp_sockets(ip(1), ip(2))) shutdown(fd, SHUT_RDWR);
  ASSERT_TRUE(a_.notes.wait([&] { return a_.notes.ups() == 2; }));
  EXPECT_EQ(a_.notes.alones(), 2);
  EXPECT_EQ(a_.send(found.channel, numbered(1)), 1u);
  EXPECT_TRUE(b_.notes.wait_message(numbered(1)));
  EXPECT_EQ(a_.notes.downs(), 0);
  EXPECT_EQ(b_.notes.downs(), 0);
}

TEST_F(PeerNetTest, BlackHoleOnOnePathDoesNotHoldUpTheOther) {
  const Found found = connect();
  ASSERT_EQ(found.error, FindError::kNone);
  add_second_path(found.channel);
  black_hole(tcp_sockets(ip(1), ip(2)));
  black_hole(tcp_sockets(ip(2), ip(1)));
  EXPECT_EQ(a_.send(found.channel, numbered(1)), 2u);
  EXPECT_TRUE(b_.notes.wait_message(numbered(1)));
  // The queue of the dead connection is bounded, so this end closes it in the end; the good
  // connection carries every byte.
  wire::KeyQuery big{{}, {}, 0, 0, 0, std::vector<uint32_t>(wire::kKeysMax, 7)};
  // 16 MiB is more than this end's queue and the kernel's hold together. All of it is sent before
  // TCP itself gives up.
  uint32_t sent = 0;
  const auto given_up = [&] { return a_.live(found.channel) < 2 || a_.notes.ups() >= 3; };
  for (; sent < 64 && !given_up(); sent++) {
    big.query_id = sent;
    a_.send(found.channel, big);
    ASSERT_TRUE(b_.notes.wait_message(big));
  }
  EXPECT_GE(sent, Connection::kSendMax / wire::kMessageMax);
  EXPECT_TRUE(given_up());
  EXPECT_TRUE(a_.notes.wait([&] { return a_.notes.ups() >= 3; })) << "opened anew";
  EXPECT_EQ(a_.notes.downs(), 0);
  EXPECT_EQ(b_.notes.count(numbered(1)), 1u);
}

TEST_F(PeerNetTest, SearchDoesNotDependOnABlackHoledChannel) {
  const Found found = connect();
  ASSERT_EQ(found.error, FindError::kNone);
  black_hole(tcp_sockets(ip(1), ip(2)));
  black_hole(tcp_sockets(ip(2), ip(1)));
  b_.notes.add_qp(qp(ip(2), 0x44));
  const Found again = a_.find(qp_a_, qp(ip(2), 0x44));
  EXPECT_EQ(again.error, FindError::kNone);
  EXPECT_EQ(again.channel, found.channel);
  EXPECT_EQ(a_.notes.ups(), 2);
}

TEST_F(PeerNetTest, ChannelIsDownWhenTheProcessStaysAway) {
  const Found found = connect();
  ASSERT_EQ(found.error, FindError::kNone);
  add_second_path(found.channel);
  b_.run([&] { b_.net.reset(); });
  ASSERT_TRUE(a_.notes.wait([&] { return a_.notes.downs() == 1; }));
  a_.run([&] { EXPECT_EQ(a_.net->channel_count(), 0u); });
}

TEST_F(PeerNetTest, SendWithoutConnectionSaysSo) {
  const Found found = connect();
  ASSERT_EQ(found.error, FindError::kNone);
  Node patient{60s};
  const Found other = patient.find(qp(ip(3), 3), qp_b_);
  ASSERT_EQ(other.error, FindError::kNone);
  b_.run([&] { b_.net.reset(); });
  ASSERT_TRUE(a_.notes.wait([&] { return a_.notes.downs() == 1; }));
  const auto end = Reactor::Clock::now() + kPatience;
  while (patient.send(other.channel, numbered(1)) != 0 && Reactor::Clock::now() < end)
    std::this_thread::yield();
  EXPECT_EQ(patient.send(other.channel, numbered(1)), 0u);
  EXPECT_EQ(patient.notes.downs(), 0);
}

}  // namespace
}  // namespace shift::net::test
