// Tests the bounds of what peers and false peers can make a process hold and do (C11).
#include <sys/resource.h>

#include "net/socket.h"
#include "net/test/stranger.h"

namespace shift::net::test {
namespace {

// A process with one QP that relies on one honest peer.
class Bounds : public ::testing::Test {
 protected:
  Bounds() {
    node_.notes.add_qp(ours_);
    node_.serve(here_);
    const Found found = honest_.find(qp(ip(47), 8), ours_);
    EXPECT_EQ(found.error, FindError::kNone);
    EXPECT_TRUE(node_.notes.wait([&] { return node_.notes.ups() == 1; }));
    to_node_ = found.channel;
    node_.notes.set_relying_on(node_.notes.last_up());
  }
  // Each comes from the address of one false peer, but says that it is another process.
  bool greet_as(unsigned n, uint32_t address = ip(66)) {
    crowd_.push_back(std::make_unique<Stranger>(here_, address));
    return crowd_.back()->greet(identity(n), qp(address, 5), ours_);
  }
  size_t channels() {
    size_t count = 0;
    node_.run([&] { count = node_.net->channel_count(); });
    return count;
  }
  void expect_unharmed() {
    EXPECT_EQ(honest_.send(to_node_, numbered(99)), 1u);
    EXPECT_TRUE(node_.notes.wait_message(numbered(99)));
    Node later;
    const Found found = later.find(qp(ip(48), 3), ours_);
    ASSERT_EQ(found.error, FindError::kNone);
    EXPECT_EQ(later.send(found.channel, numbered(98)), 1u);
    EXPECT_TRUE(node_.notes.wait_message(numbered(98)));
  }

  const uint32_t here_ = ip(46);
  const wire::QpName ours_ = qp(here_, 7);
  Node node_, honest_;
  PeerChannel* to_node_ = nullptr;
  std::vector<std::unique_ptr<Stranger>> crowd_;
};

// The false peer is of the honest one's host.
TEST_F(Bounds, AFalsePeerWithManyInstancesHoldsFewChannels) {
  const size_t descriptors = open_descriptors(), memory = allocated();
  constexpr unsigned kCrowd = 500;
  for (unsigned i = 0; i < kCrowd; i++) EXPECT_TRUE(greet_as(i, ip(47))) << i;
  ASSERT_TRUE(node_.notes.wait([&] { return node_.notes.ups() == 1 + kCrowd; }));
  // (The strangers' own ends are in this process, too.)
  EXPECT_LT(open_descriptors(), descriptors + kCrowd + 64);
  EXPECT_LT(allocated(), memory + (8 << 20));
  EXPECT_LE(channels(), 1u + 48);
  EXPECT_FALSE(crowd_.back()->is_closed_now()) << "the oldest gives way";
  EXPECT_TRUE(crowd_.front()->closed());
  expect_unharmed();
}

// An honest peer that nothing relies on yet, since it has just come, does not give way to a crowd
// from one other address.
TEST_F(Bounds, APeerThatHasJustComeStays) {
  Node fresh;
  const Found found = fresh.find(qp(ip(49), 4), ours_);
  ASSERT_EQ(found.error, FindError::kNone);
  ASSERT_TRUE(node_.notes.wait([&] { return node_.notes.ups() == 2; }));
  for (unsigned i = 0; i < 100; i++) EXPECT_TRUE(greet_as(i)) << i;
  ASSERT_TRUE(node_.notes.wait([&] { return node_.notes.ups() == 102; }));
  EXPECT_EQ(fresh.live(found.channel), 1u);
  EXPECT_EQ(fresh.send(found.channel, numbered(97)), 1u);
  EXPECT_TRUE(node_.notes.wait_message(numbered(97)));
  EXPECT_EQ(fresh.notes.ups(), 1) << "its connection was never lost";
}

// The descriptors that the process may open, until the object ends.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t limit) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    struct rlimit low = before_;
    low.rlim_cur = limit;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;

 private:
  struct rlimit before_ = {};
};

// Where few descriptors may be open, fewer channels than a false peer may have fill the bound.
TEST_F(Bounds, AtTheBoundOfConnectionsFalsePeersGiveWay) {
  const FewDescriptors few(160);
  for (unsigned i = 0; i < 45; i++) EXPECT_TRUE(greet_as(i)) << i;
  ASSERT_TRUE(node_.notes.wait([&] { return node_.notes.ups() == 46; }));
  EXPECT_LE(channels(), 40u);
  expect_unharmed();
}

// The greater part of the descriptors is for the application, whoever the peers are.
TEST_F(Bounds, ConnectionsTakeAQuarterOfTheDescriptors) {
  node_.notes.set_relying(true);
  std::unique_ptr<FewDescriptors> few = std::make_unique<FewDescriptors>(160);
  for (unsigned i = 0; i < 39; i++) EXPECT_TRUE(greet_as(i)) << i;
  ASSERT_TRUE(node_.notes.wait([&] { return node_.notes.ups() == 40; }));
  EXPECT_TRUE(greet_as(100));
  EXPECT_TRUE(crowd_.back()->closed());
  EXPECT_EQ(channels(), 40u);
  few.reset();
  EXPECT_TRUE(greet_as(101));
  EXPECT_TRUE(node_.notes.wait([&] { return node_.notes.ups() == 41; }));
}

// From half of that on, no channel gets a third connection.
TEST_F(Bounds, FromHalfOfThatOnAChannelHasTwoConnections) {
  node_.notes.set_relying(true);
  const FewDescriptors few(160);
  for (unsigned i = 0; i < 17; i++) EXPECT_TRUE(greet_as(i)) << i;
  for (unsigned i = 0; i < 2; i++) EXPECT_TRUE(greet_as(50)) << i;
  ASSERT_TRUE(node_.notes.wait([&] { return node_.notes.ups() == 20; }));
  EXPECT_TRUE(greet_as(50));
  EXPECT_TRUE(crowd_.back()->closed()) << "a third one";
  EXPECT_TRUE(greet_as(0));
  EXPECT_TRUE(node_.notes.wait([&] { return node_.notes.ups() == 21; })) << "a second one";
}

// A connection keeps no buffer for a long message that has been taken.
TEST_F(Bounds, ALongMessageLeavesNoBufferBehind) {
  node_.notes.set_relying(true);
  const wire::Message long_one =
      wire::KeyQuery{ours_, ours_, 0, 0, 0, std::vector<uint32_t>(wire::kKeysMax, 1)};
  std::vector<uint8_t> bytes, next;
  ASSERT_TRUE(wire::encode(long_one, bytes, 1));
  ASSERT_TRUE(wire::encode(numbered(5), next, 2));
  bytes.push_back(next.front());  // the next message has begun
  const size_t before = allocated();
  size_t kept = 0;
  for (unsigned i = 0; i < 4; i++) {
    ASSERT_TRUE(greet_as(i));
    crowd_.back()->say(bytes);
    ASSERT_TRUE(node_.notes.wait([&] { return node_.notes.messages().size() == i + 1; }));
    node_.run([] {});
    node_.run([] {});
    kept += sizeof(uint32_t) * wire::kKeysMax;  // what the notes keep
  }
  EXPECT_LT(allocated(), before + kept + (256 << 10));
}

}  // namespace
}  // namespace shift::net::test
