// Tests the news of network devices, in a network namespace that the test makes for itself with a
// pair of veth devices.
#include "net/link_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "net/reactor.h"
#include "net/test/own_namespace.h"

namespace shift::net {
namespace {

// Keeps the newest state of each device.
class Sink final : public LinkSink {
 public:
  void link_state(int ifindex, bool up) override {
    std::lock_guard lock(mutex_);
    up_[ifindex] = up;
    changed_.notify_all();
  }
  void link_gone(int ifindex) override {
    std::lock_guard lock(mutex_);
    gone_.insert(ifindex);
    changed_.notify_all();
  }
  void address_changed(int ifindex) override {
    std::lock_guard lock(mutex_);
    addresses_[ifindex]++;
    changed_.notify_all();
  }
  // Waits without a bound: the test's own time limit ends a wait that never succeeds.
  void await_state(int ifindex, bool up) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      const auto found = up_.find(ifindex);
      return found != up_.end() && found->second == up;
    });
  }
  void await_gone(int ifindex) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return gone_.contains(ifindex); });
  }
  void await_addresses(int ifindex, int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return addresses_[ifindex] >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, bool> up_;
  std::set<int> gone_;
  std::map<int, int> addresses_;
};

constexpr auto ip = test::ip_command;

bool namespace_make() {
  return test::namespace_enter() && ip("link add near type veth peer name far") == 0 &&
         ip("link set near up") == 0 && ip("link set far up") == 0 &&
         ip("address add 127.9.8.7/32 dev near") == 0;
}

class LinkWatchTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { entered_ = namespace_make(); }
  void SetUp() override {
    if (!entered_) GTEST_SKIP() << "no network namespace with veth devices can be made here";
    near_ = static_cast<int>(if_nametoindex("near"));
    ASSERT_EQ(ip("link set near up"), 0);
    ASSERT_EQ(ip("link set far up"), 0);
    ASSERT_TRUE(reactor_.start());
    reactor_.call_and_wait([this] {
      watch_ = std::make_unique<LinkWatch>(reactor_, sink_);
      EXPECT_EQ(watch_->start(), nullptr);
    });
  }
  void TearDown() override {
    if (!entered_) return;
    reactor_.call_and_wait([this] { watch_.reset(); });
    reactor_.stop();
  }
  // In host byte order.
  std::optional<uint32_t> mask_of(int ifindex, const uint8_t (&ip_bytes)[4]) {
    uint32_t ip_be;
    memcpy(&ip_be, ip_bytes, sizeof ip_be);
    std::optional<uint32_t> mask;
    reactor_.call_and_wait([&] { mask = watch_->mask_of(ifindex, ip_be); });
    if (mask) mask = ntohl(*mask);
    return mask;
  }
  uint16_t vlan_of(int ifindex) {
    uint16_t vlan = 0;
    reactor_.call_and_wait([&] { vlan = watch_->vlan_of(ifindex); });
    return vlan;
  }

  static inline bool entered_ = false;
  int near_ = 0;
  Sink sink_;
  Reactor reactor_;
  std::unique_ptr<LinkWatch> watch_;
};

TEST_F(LinkWatchTest, TellsEveryDevicesStateAtTheBeginning) {
  sink_.await_state(near_, true);
  sink_.await_state(static_cast<int>(if_nametoindex("lo")), false);
}

TEST_F(LinkWatchTest, TellsOfCarriersThatGoAndCome) {
  sink_.await_state(near_, true);
  ASSERT_EQ(ip("link set far down"), 0);  // as if the cable were pulled
  sink_.await_state(near_, false);
  ASSERT_EQ(ip("link set far up"), 0);
  sink_.await_state(near_, true);
  ASSERT_EQ(ip("link set near down"), 0);  // as an administrator does
  sink_.await_state(near_, false);
  ASSERT_EQ(ip("link set near up"), 0);
  sink_.await_state(near_, true);
}

int netlink_sockets() {
  int count = 0;
  for (int fd = 0; fd < 1024; fd++) {
    int domain = 0;
    socklen_t size = sizeof domain;
    const bool is_socket = getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0;
    count += is_socket && domain == AF_NETLINK;
  }
  return count;
}

TEST_F(LinkWatchTest, AForkChildHasNoSocketOfIt) {
  ASSERT_EQ(netlink_sockets(), 1);
  const pid_t child = fork();
  if (child == 0) _exit(netlink_sockets());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(LinkWatchTest, TellsOfADeviceThatIsRemoved) {
  ASSERT_EQ(ip("link add gone type veth peer name gone_peer"), 0);
  ASSERT_EQ(ip("link set gone up"), 0);
  ASSERT_EQ(ip("link set gone_peer up"), 0);
  const int gone = static_cast<int>(if_nametoindex("gone"));
  sink_.await_state(gone, true);
  ASSERT_EQ(ip("link delete gone"), 0);
  sink_.await_gone(gone);
}

TEST_F(LinkWatchTest, TellsOfAddresses) {
  sink_.await_state(near_, true);
  ASSERT_EQ(ip("address del 127.9.8.7/32 dev near"), 0);
  sink_.await_addresses(near_, 1);
  EXPECT_FALSE(mask_of(near_, {127, 9, 8, 7}));
  ASSERT_EQ(ip("address add 127.9.8.7/32 dev near"), 0);
  sink_.await_addresses(near_, 2);
  EXPECT_EQ(mask_of(near_, {127, 9, 8, 7}), 0xffffffff);
  EXPECT_FALSE(mask_of(near_, {127, 9, 8, 6}));
  EXPECT_FALSE(mask_of(near_ + 1000, {127, 9, 8, 7}));
  ASSERT_EQ(ip("address add 10.1.2.3/20 dev near"), 0);
  EXPECT_EQ(mask_of(near_, {10, 1, 2, 3}), 0xfffff000);
  ASSERT_EQ(ip("address del 10.1.2.3/20 dev near"), 0);
}

TEST_F(LinkWatchTest, KnowsTheVlanOfADevice) {
  if (ip("link add link near name near.5 type vlan id 5") != 0)
    GTEST_SKIP() << "this kernel makes no VLAN devices";
  ASSERT_EQ(ip("link set near.5 up"), 0);
  const int vlan = static_cast<int>(if_nametoindex("near.5"));
  sink_.await_state(vlan, true);
  EXPECT_EQ(vlan_of(vlan), 5);
  EXPECT_EQ(vlan_of(near_), 0);
  ASSERT_EQ(ip("link delete near.5"), 0);
  sink_.await_gone(vlan);
  EXPECT_EQ(vlan_of(vlan), 0);
}

// The kernel drops messages that the socket cannot hold; the LinkWatch then asks for the newest
// state.
TEST_F(LinkWatchTest, MessagesThatWereLostAreMadeUpFor) {
  sink_.await_state(near_, true);
  std::promise<void> blocked, released;
  reactor_.call_soon([&] {
    blocked.set_value();
    released.get_future().wait();
  });
  blocked.get_future().wait();
  std::string batch;
  for (int i = 0; i < 300; i++) batch += "link set near mtu " + std::to_string(1000 + i) + "\n";
  batch += "link set far down\n";
  const std::string path = ::testing::TempDir() + "link_watch." + std::to_string(getpid());
  test::file_write(path.c_str(), batch);
  const int status = ip("-batch " + path);
  unlink(path.c_str());
  released.set_value();
  ASSERT_EQ(status, 0);
  sink_.await_state(near_, false);
}

TEST(LinkWatchStart, SaysWhatIsMissing) {
  Reactor reactor;
  Sink sink;
  LinkWatch watch(reactor, sink);
  EXPECT_STREQ(watch.start("libnl-of-nobody.so.1"), "libnl-3 is not installed");
  EXPECT_NE(std::string(watch.start("libc.so.6")).find("lacks nl_socket_alloc"), std::string::npos);
}

}  // namespace
}  // namespace shift::net
