// Tests that a peer is found at another address when the usual one does not answer, and that nobody
// is believed for coming from anywhere.
#include "net/find.h"

#include "net/socket.h"
#include "net/test/net_fixture.h"

namespace shift::net::test {
namespace {

std::string text(std::initializer_list<uint32_t> addresses) {
  std::string line;
  for (const uint32_t ip_be : addresses) line += std::string(IpText(ip_be).c_str()) + " ";
  return line + "\n";
}

// An address that takes no connection and refuses none, as behind a dead NIC.
class Silent {
 public:
  explicit Silent(uint32_t ip_be) : listener_(tcp_listen(ip_be, test_port())) {
    EXPECT_EQ(listen(listener_.get(), 0), 0);
    for (int i = 0; i < 4; i++) waiting_.push_back(tcp_connect(ip(200), ip_be, test_port()));
  }

 private:
  UniqueFd listener_;
  std::vector<UniqueFd> waiting_;
};

class FindTest : public ::testing::Test {
 protected:
  // Tells a process that these addresses belong to one host.
  static void tell(Node& node, const std::string& map_text) {
    HostMap map;
    std::string why;
    ASSERT_TRUE(map.parse(map_text, why)) << why;
    node.run([&] {
      node.net->book_set(
          std::make_unique<HostBook>(std::move(map), nullptr, [] { return int64_t{0}; }));
    });
  }
  // Looks from the further address, too.
  Found find(bool is_first_usable, std::chrono::milliseconds patience = kPatience) {
    auto promise = std::make_shared<std::promise<Found>>();
    a_.run([&] {
      FindRequest request{qp_b_, qp_a_, Reactor::Clock::now() + patience};
      request.more_local_ip_be = {ip(11)};
      request.is_first_usable = is_first_usable;
      a_.net->find_peer(request, [promise](PeerChannel* channel, FindError error) {
        promise->set_value({channel, error});
      });
    });
    return promise->get_future().get();
  }

  const wire::QpName qp_a_ = qp(ip(1), 0x11), qp_b_ = qp(ip(2), 0x22);
  Node a_, b_;

  FindTest() { b_.notes.add_qp(qp_b_); }
};

TEST_F(FindTest, AtAnotherAddressOfThePeer) {
  const Silent silent(ip(2));
  b_.serve(ip(12));
  tell(a_, text({ip(2), ip(12)}));
  tell(b_, text({ip(1), ip(11)}));
  const auto begun = Reactor::Clock::now();
  const Found found = find(true);
  ASSERT_EQ(found.error, FindError::kNone);
  EXPECT_TRUE(found.channel->is_at(ip(12)));
  EXPECT_FALSE(found.channel->is_at(ip(2)));
  EXPECT_LT(Reactor::Clock::now() - begun, 2s) << "it waited for the silent address";
}

TEST_F(FindTest, UnknownAddressesAreNotGuessed) {
  const Silent silent(ip(2));
  b_.serve(ip(12));
  EXPECT_EQ(find(true, 500ms).error, FindError::kUnreachable);
}

TEST_F(FindTest, FromAnotherAddressOfThisHost) {
  b_.serve(ip(2));
  tell(b_, text({ip(1), ip(11)}));
  const Found found = find(false);
  ASSERT_EQ(found.error, FindError::kNone);
  ASSERT_TRUE(b_.notes.wait([&] { return b_.notes.ups() > 0; }));
}

// A process that comes from an address that nobody has named may be anybody's.
TEST_F(FindTest, FromAnAddressThatNobodyHasNamedIsDenied) {
  b_.serve(ip(2));
  tell(b_, text({ip(1), ip(13)}));
  a_.run([&] {});
  auto promise = std::make_shared<std::promise<Found>>();
  a_.run([&] {
    FindRequest request{qp_b_, qp_a_, Reactor::Clock::now() + 300ms};
    request.local_ip_be = ip(11);
    a_.net->find_peer(request, [promise](PeerChannel* channel, FindError error) {
      promise->set_value({channel, error});
    });
  });
  EXPECT_EQ(promise->get_future().get().error, FindError::kNoSuchQp);
  EXPECT_EQ(b_.notes.ups(), 0);
}

// With the address of the peer's GID healthy, nothing else is dialed.
TEST_F(FindTest, AHealthyAddressIsDialedAlone) {
  b_.serve(ip(2));
  b_.serve(ip(12));
  tell(a_, text({ip(2), ip(12)}));
  const Found found = find(true);
  ASSERT_EQ(found.error, FindError::kNone);
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(a_.live(found.channel), 1u);
  EXPECT_TRUE(tcp_sockets(ip(11), ip(2)).empty());
}

// The peer's process is there, and its program connects the QP a while later.
TEST_F(FindTest, APeerThatComesLateIsFoundAtTheOtherAddress) {
  const Silent silent(ip(2));
  Node late;
  late.serve(ip(12));
  tell(a_, text({ip(2), ip(12)}));
  tell(late, text({ip(1), ip(11)}));
  auto promise = std::make_shared<std::promise<Found>>();
  a_.run([&] {
    FindRequest request{qp(ip(2), 0x77), qp_a_, Reactor::Clock::now() + kPatience};
    a_.net->find_peer(request, [promise](PeerChannel* channel, FindError error) {
      promise->set_value({channel, error});
    });
  });
  auto future = promise->get_future();
  EXPECT_EQ(future.wait_for(400ms), std::future_status::timeout);
  late.notes.add_qp(qp(ip(2), 0x77));
  ASSERT_EQ(future.wait_for(2s), std::future_status::ready) << "it waits for the silent address";
  EXPECT_EQ(future.get().error, FindError::kNone);
}

// A job that begins meets hundreds of hosts in a moment. To write each down would hold up the loop.
TEST_F(FindTest, ManyHostsThatAreSeenAreWrittenDownTogether) {
  struct Counting final : HostMemory {
    explicit Counting(std::atomic<int>& w, std::atomic<size_t>& k) : writes(w), known(k) {}
    const std::vector<SeenHost>& recall(bool) override { return hosts; }
    void remember(const std::vector<SeenHost>& now) override {
      hosts = now;
      known = now.size();
      writes++;
    }
    std::vector<SeenHost> hosts;
    std::atomic<int>& writes;
    std::atomic<size_t>& known;
  };
  constexpr unsigned kHosts = 200;
  std::atomic<int> writes = 0;
  std::atomic<size_t> known = 0;
  Node node;
  node.run([&] {
    node.net->book_set(std::make_unique<HostBook>(
        HostMap(), std::make_unique<Counting>(writes, known), [] { return int64_t{1000}; }));
  });
  const auto see = [&](unsigned from, unsigned to) {
    for (unsigned i = from; i < to; i++)
      node.net->host_seen(wire::Gid::from_ipv4(htonl(2 * i)), {htonl(2 * i), htonl(2 * i + 1)});
  };
  node.run([&] { see(1, 2); });
  while (known != 1) std::this_thread::sleep_for(1ms);
  node.run([&] { see(2, kHosts + 1); });
  while (known != kHosts) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(writes, 2);
}

}  // namespace
}  // namespace shift::net::test
