// Tests that peers are found by what a store says of their hosts, and that a store which is away,
// late or wrong costs a healthy search nothing.
#include "net/stored_hosts.h"

#include <atomic>

#include "net/host_entry.h"
#include "net/socket.h"
#include "net/test/fake_redis.h"
#include "net/test/net_fixture.h"

namespace shift::net::test {
namespace {

RedisServer server_at(uint16_t port) {
  RedisServer server;
  server.host = "127.0.0.1";
  server.port = port;
  return server;
}

wire::Gid link_local(uint8_t number) {
  wire::Gid gid;
  gid.raw = {0xfe, 0x80};
  gid.raw[15] = number;
  return gid;
}

class StoredHostsTest : public ::testing::Test {
 protected:
  static constexpr bool kByGid = true, kByStoreOnly = false;

  void use_store(Node& node, bool by_gid) {
    node.run([&] { node.net->store_set(server_at(redis_.port()), by_gid); });
  }
  // Waits until the store says that the host with this GID has the address.
  void told(const wire::Gid& gid, uint32_t ip_be) {
    const auto until = Reactor::Clock::now() + kPatience;
    const auto is_told = [&] {
      for (const auto& [line, score] : redis_.entries(host_entry_key("shift", gid)))
        if ((line + " ").find(" " + std::string(IpText(ip_be).c_str()) + " ") != std::string::npos)
          return true;
      return false;
    };
    while (!is_told()) {
      ASSERT_LT(Reactor::Clock::now(), until);
      std::this_thread::sleep_for(1ms);
    }
  }
  // Both processes use the store, which knows where the peer is.
  void meet(bool by_gid) {
    use_store(a_, by_gid);
    use_store(b_, by_gid);
    a_.serve(ip(1));
    b_.serve(ip(2));
    told(qp_b_.gid, ip(2));
  }
  size_t asked() const { return redis_.count("ZREVRANGE"); }

  const wire::QpName qp_a_ = qp(ip(1), 0x11), qp_b_ = qp(ip(2), 0x22);
  FakeRedis redis_;
  Node a_, b_;

  StoredHostsTest() { b_.notes.add_qp(qp_b_); }
};

TEST_F(StoredHostsTest, OnlyTheStoreIsAsked) {
  meet(kByStoreOnly);
  ASSERT_EQ(a_.find(qp_a_, qp_b_).error, FindError::kNone);
  EXPECT_GT(asked(), 0u);
}

TEST_F(StoredHostsTest, AHealthyAddressIsFoundWithoutTheStore) {
  meet(kByGid);
  ASSERT_EQ(a_.find(qp_a_, qp_b_).error, FindError::kNone);
  EXPECT_EQ(asked(), 0u);
}

// An address that takes no connection and refuses none, as behind a dead NIC.
TEST_F(StoredHostsTest, ASilentAddressIsGoneRound) {
  const UniqueFd listener = tcp_listen(ip(2), test_port());
  ASSERT_EQ(listen(listener.get(), 0), 0);
  std::vector<UniqueFd> waiting;
  for (int i = 0; i < 4; i++) waiting.push_back(tcp_connect(ip(200), ip(2), test_port()));
  use_store(a_, kByGid);
  use_store(b_, kByGid);
  a_.serve(ip(1));
  b_.serve(ip(2));
  b_.serve(ip(12));
  told(qp_a_.gid, ip(1));
  told(qp_b_.gid, ip(12));
  const Found found = a_.find(qp_a_, qp_b_);
  ASSERT_EQ(found.error, FindError::kNone);
  EXPECT_FALSE(found.channel->is_at(ip(2)));
}

// As on a network that carries no TCP from host to host: another one answers at that address.
TEST_F(StoredHostsTest, NobodyAtTheUsualAddress) {
  use_store(a_, kByGid);
  use_store(b_, kByGid);
  a_.serve(ip(1));
  b_.run([&] { b_.net->add_address(ip(12)); });
  b_.run([&] { b_.net->name_address(ip(12), {qp_b_.gid}); });
  told(qp_b_.gid, ip(12));
  const Found found = a_.find(qp_a_, qp_b_);
  ASSERT_EQ(found.error, FindError::kNone);
  EXPECT_FALSE(found.channel->is_at(ip(2)));
}

TEST_F(StoredHostsTest, AGidWithoutAnAddress) {
  const wire::QpName own{link_local(1), 0x11}, peer{link_local(2), 0x22};
  b_.notes.add_qp(peer);
  for (const bool by_gid : {kByGid, kByStoreOnly}) {
    use_store(a_, by_gid);
    use_store(b_, by_gid);
    a_.serve(ip(1));
    a_.run([&] { a_.net->name_address(ip(1), {own.gid}); });
    b_.serve(ip(2));
    b_.run([&] { b_.net->name_address(ip(2), {peer.gid}); });
    told(own.gid, ip(1));
    told(peer.gid, ip(2));
    ASSERT_EQ(a_.find(own, peer).error, FindError::kNone) << by_gid;
  }
}

TEST_F(StoredHostsTest, AStoreThatIsAwayIsWaitedForAndNotTakenForNobody) {
  redis_.stop();
  use_store(a_, kByStoreOnly);
  use_store(b_, kByStoreOnly);
  a_.serve(ip(1));
  b_.serve(ip(2));
  EXPECT_EQ(a_.find(qp_a_, qp_b_, 2500ms).error, FindError::kUnreachable);
  auto found = a_.find_start(qp_a_, qp_b_);
  redis_.start();
  ASSERT_EQ(found.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(found.get().error, FindError::kNone);
}

TEST_F(StoredHostsTest, APeerThatIsUnknownRunsWithoutTheLayer) {
  use_store(a_, kByStoreOnly);
  a_.serve(ip(1));
  const auto begun = Reactor::Clock::now();
  EXPECT_EQ(a_.find(qp_a_, qp_b_).error, FindError::kNoAnswer);
  EXPECT_LT(Reactor::Clock::now() - begun, kPatience / 2);
}

TEST_F(StoredHostsTest, WhatIsWrongCostsATryAndNoPeer) {
  meet(kByStoreOnly);
  const std::string key = host_entry_key("shift", qp_b_.gid);
  // Nobody listens there, and the entry is the newest.
  redis_.put(key, "1 " + std::string(IpText(ip(99)).c_str()), 9000000000);
  ASSERT_EQ(a_.find(qp_a_, qp_b_).error, FindError::kNone);
}

// The address in the GID is not tried by itself, so it is tried because the store names it.
TEST_F(StoredHostsTest, TheStoreMayNameTheAddressInTheGid) {
  use_store(a_, kByStoreOnly);
  a_.serve(ip(1));
  b_.serve(ip(2));
  redis_.put(host_entry_key("shift", qp_b_.gid), "1 " + std::string(IpText(ip(2)).c_str()), 1);
  ASSERT_EQ(a_.find(qp_a_, qp_b_).error, FindError::kNone);
}

// A peer that has just started may not have written where it is.
TEST_F(StoredHostsTest, TheStoreIsAskedAgainWhileWhatItNamesDoesNotAnswer) {
  b_.serve(ip(12));
  use_store(a_, kByStoreOnly);
  a_.serve(ip(1));
  const auto line = [](uint32_t ip_be) { return "1 " + std::string(IpText(ip_be).c_str()); };
  std::atomic<int> times = 0;
  redis_.set_script([&](const Words& words) -> std::optional<std::string> {
    if (words[0] != "ZREVRANGE") return std::nullopt;
    return list({line(times++ == 0 ? ip(99) : ip(12))});
  });
  EXPECT_EQ(a_.find(qp_a_, qp_b_).error, FindError::kNone);
  EXPECT_GT(times, 1);
  redis_.set_script({});
}

// An address counts as its host's only if the store says so.
TEST_F(StoredHostsTest, WhoComesFromElsewhereIsAskedForAndBelievedIfNamed) {
  use_store(b_, kByGid);
  b_.serve(ip(2));
  told(qp_b_.gid, ip(2));
  FindRequest request{qp_b_, qp_a_, Reactor::Clock::now() + 1s};
  request.local_ip_be = ip(11);
  const auto find = [&] {
    auto promise = std::make_shared<std::promise<Found>>();
    request.deadline = Reactor::Clock::now() + 3s;
    a_.run([&] {
      a_.net->find_peer(request, [promise](PeerChannel* channel, FindError error) {
        promise->set_value({channel, error});
      });
    });
    return promise->get_future().get().error;
  };
  EXPECT_EQ(find(), FindError::kNoSuchQp);
  EXPECT_GT(asked(), 0u);
  use_store(a_, kByGid);
  a_.serve(ip(1));
  a_.serve(ip(11));
  told(qp_a_.gid, ip(11));
  EXPECT_EQ(find(), FindError::kNone);
}

// The peer's host may be reached over a network that no NIC is in.
TEST_F(StoredHostsTest, WhereNoNicLeadsThereTheKernelChoosesTheAddress) {
  for (const bool by_gid : {kByGid, kByStoreOnly}) {
    use_store(a_, by_gid);
    use_store(b_, by_gid);
    a_.serve(ip(1));
    b_.run([&] { b_.net->name_address(ip(12), {qp_b_.gid}); });
    b_.serve(ip(12));
    told(qp_a_.gid, ip(1));
    told(qp_b_.gid, ip(12));
    FindRequest request{qp_b_, qp_a_, Reactor::Clock::now() + kPatience};
    request.local_ip_be = htonl(0xc0000201);  // it is no address of this host
    auto promise = std::make_shared<std::promise<Found>>();
    a_.run([&] {
      a_.net->find_peer(request, [promise](PeerChannel* channel, FindError error) {
        promise->set_value({channel, error});
      });
    });
    EXPECT_EQ(promise->get_future().get().error, FindError::kNone) << by_gid;
  }
}

// Only a question for a QP that waits for just that asker is worth asking the store.
TEST_F(StoredHostsTest, StrangersDoNotHaveTheStoreAsked) {
  use_store(b_, kByGid);
  b_.notes.set_expecting(false);
  b_.serve(ip(2));
  told(qp_b_.gid, ip(2));
  FindRequest request{qp_b_, qp_a_, Reactor::Clock::now() + 300ms};
  request.local_ip_be = ip(11);
  auto promise = std::make_shared<std::promise<Found>>();
  a_.run([&] {
    a_.net->find_peer(request, [promise](PeerChannel* channel, FindError error) {
      promise->set_value({channel, error});
    });
  });
  EXPECT_EQ(promise->get_future().get().error, FindError::kNoSuchQp);
  EXPECT_EQ(asked(), 0u);
}

}  // namespace
}  // namespace shift::net::test
