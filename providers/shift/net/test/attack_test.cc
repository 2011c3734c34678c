// Tests attackers that know how processes talk to each other: from other addresses, as a peer of
// the same process, and with what they have recorded (C11).
#include <sodium.h>

#include "net/socket.h"
#include "net/test/stranger.h"

namespace shift::net::test {
namespace {

// A process with two QPs, each of which is connected to a peer's.
class Attack : public ::testing::Test {
 protected:
  Attack() {
    node_.notes.add_qp(ours_);
    node_.serve(here_);
    victim_.notes.add_qp(theirs_);
    const Found found = victim_.find(theirs_, ours_);
    EXPECT_EQ(found.error, FindError::kNone);
    EXPECT_TRUE(node_.notes.wait([&] { return node_.notes.ups() == 1; }));
    to_node_ = found.channel;
  }
  // What an attacker at `address` says, who poses as that process.
  wire::Hello hello_of(const Identity& posed, uint32_t address) const {
    return hello_by(posed, qp(address, 5), ours_);
  }
  bool greet(Stranger& stranger, unsigned number, uint32_t address) const {
    return stranger.greet(identity(number), qp(address, 5), ours_);
  }
  // The process is the victim's peer as before.
  void expect_unharmed() {
    EXPECT_EQ(victim_.send(to_node_, numbered(99)), 1u);
    EXPECT_TRUE(node_.notes.wait_message(numbered(99)));
    EXPECT_EQ(node_.notes.downs(), 0);
    EXPECT_EQ(node_.notes.alones(), 1) << "nobody else has a channel";
  }

  const uint32_t here_ = ip(40);
  const wire::QpName ours_ = qp(here_, 7), theirs_ = qp(ip(41), 8);
  Node node_, victim_;
  PeerChannel* to_node_ = nullptr;
};

// Another peer of the process poses as the victim: it owns a QP that is connected to one of this
// process's, and has learned the victim's instance and the public half of its identity.
TEST_F(Attack, APeerCannotJoinAnothersChannel) {
  const Identity& own = identity(1);
  for (const auto* shown : {&victim_.net->identity(), &own}) {
    auto hello = hello_of(victim_.net->identity(), ip(66));
    hello.identity = shown->public_key();
    for (const bool signs : {false, true}) {
      Stranger peer(here_, ip(66));
      peer.say(hello);
      const auto answer = peer.hear();
      ASSERT_NE(answer, nullptr);
      const auto& reply = std::get<wire::HelloReply>(*answer);
      peer.say(signs ? peer.confirm(hello, reply, own) : wire::Confirm{});
      EXPECT_TRUE(peer.closed());
    }
  }
  expect_unharmed();
}

// It comes before the victim has a channel, and keeps nobody out.
TEST_F(Attack, NorByComingFirst) {
  Node later;
  const wire::QpName its = qp(ip(42), 9);
  const Identity& own = identity(1);
  auto hello = hello_of(later.net->identity(), ip(66));
  {
    Stranger peer(here_, ip(66));
    hello.identity = own.public_key();
    peer.say(hello);
    EXPECT_TRUE(peer.closed()) << "the instance is not that of its key";
  }
  hello.identity = later.net->identity().public_key();
  Stranger peer(here_, ip(66));
  peer.say(hello);
  const auto answer = peer.hear();
  ASSERT_NE(answer, nullptr);
  later.notes.add_qp(its);
  ASSERT_EQ(later.find(its, ours_).error, FindError::kNone);
  ASSERT_TRUE(node_.notes.wait([&] { return node_.notes.ups() == 2; }));
  peer.say(peer.confirm(hello, std::get<wire::HelloReply>(*answer), own));
  EXPECT_TRUE(peer.closed());
  EXPECT_EQ(node_.notes.ups(), 2);
}

// A peer of two processes hands on what the one says to the other. Each proof is for the two
// addresses between which it was made.
TEST_F(Attack, APeerOfBothCannotStandBetweenThem) {
  const uint32_t middle = ip(69);
  const UniqueFd listener = tcp_listen(middle, test_port());
  ASSERT_TRUE(listener);
  Node other;
  other.notes.add_qp(qp(ip(42), 9));
  auto search = other.find_start(qp(middle, 9), qp(middle, 5), 1s);
  UniqueFd to_other;
  for (uint32_t from; !(to_other = tcp_accept(listener.get(), from));) usleep(1000);
  Stranger to_node(here_, middle);
  uint8_t bytes[512];
  ssize_t n;
  const auto take = [&] {
    while ((n = recv(to_other.get(), bytes, sizeof bytes, 0)) < 0 && errno == EAGAIN) usleep(1000);
    return std::span<const uint8_t>(bytes, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  };
  wire::Message message;
  ASSERT_TRUE(wire::decode(take(), message));
  // What the other process has asked of the one in the middle, it asks of this one.
  auto hello = std::get<wire::Hello>(message);
  hello.want = ours_;
  hello.from = qp(middle, 5);
  to_node.say(hello);
  const auto answer = to_node.hear();
  ASSERT_NE(answer, nullptr);
  auto reply = std::get<wire::HelloReply>(*answer);
  EXPECT_EQ(reply.status, wire::HelloStatus::kOk);
  reply.want = std::get<wire::Hello>(message).want;
  reply.from = std::get<wire::Hello>(message).from;
  std::vector<uint8_t> out;
  ASSERT_TRUE(wire::encode(reply, out));
  ASSERT_TRUE(send_whole(to_other.get(), out));
  EXPECT_TRUE(take().empty()) << "the answer proves nothing at this address";
  to_node.say(wire::Confirm{});
  EXPECT_TRUE(to_node.closed());
  EXPECT_NE(search.get().error, FindError::kNone);
  expect_unharmed();
}

// The same where both ends do not notice that the names were changed: the addresses alone decide.
TEST(Proof, AProofIsForTwoAddresses) {
  const Identity &a = identity(1), &b = identity(2), &stranger = identity(3);
  const auto ab = a.pair_key(b.public_key(), b.instance());
  const auto ba = b.pair_key(a.public_key(), a.instance());
  const auto other = stranger.pair_key(b.public_key(), b.instance());
  ASSERT_TRUE(ab && ba && other);
  EXPECT_EQ(*ab, *ba);
  EXPECT_NE(*ab, *other);
  const wire::Hello hello;
  const wire::Tag tag = hello_tag({*ab, {ip(1), ip(2)}}, hello);
  EXPECT_TRUE(tag_fits(hello_tag({*ba, {ip(1), ip(2)}}, hello), tag));
  EXPECT_FALSE(tag_fits(hello_tag({*ba, {ip(3), ip(2)}}, hello), tag));
  EXPECT_FALSE(tag_fits(hello_tag({*ba, {ip(1), ip(3)}}, hello), tag));
  EXPECT_FALSE(tag_fits(hello_tag({*ba, {ip(2), ip(1)}}, hello), tag));
}

TEST(Proof, NobodySharesAKeyByAPublicKeyThatIsNone) {
  const Identity& a = identity(1);
  EXPECT_FALSE(a.pair_key(identity(2).public_key(), identity(3).instance()));
  EXPECT_FALSE(a.pair_key({}, {}));
  // With a few public keys, zero and one among them, everybody computes the same.
  for (const uint8_t low : {0, 1}) {
    wire::PublicKey key;
    key.raw[0] = low;
    wire::Instance hash;
    crypto_generichash(hash.raw.data(), hash.raw.size(), key.raw.data(), key.raw.size(), nullptr,
                       0);
    EXPECT_FALSE(a.pair_key(key, hash));
  }
}

// An instance alone opens no further connection, and neither does a proof that is made up.
TEST_F(Attack, FurtherConnectionsNeedAProof) {
  const Identity& own = identity(1);
  const auto key = own.pair_key(node_.net->identity().public_key(), node_.net->instance());
  ASSERT_TRUE(key);
  for (const bool signs : {false, true}) {
    SCOPED_TRACE(signs);
    Stranger s(here_, ip(66));
    wire::Hello h = hello_of(victim_.net->identity(), ip(66));
    h.want = h.from = {};
    h.target = node_.net->instance();
    if (signs) h.tag = hello_tag({*key, {ip(66), here_}}, h);
    s.say(h);
    const auto answer = s.hear();
    ASSERT_NE(answer, nullptr);
    EXPECT_EQ(std::get<wire::HelloReply>(*answer).status, wire::HelloStatus::kNoSuchQp);
    EXPECT_TRUE(s.closed());
  }
  expect_unharmed();
}

// Somebody listens at an address that the peer had, and is dialed there.
TEST_F(Attack, AnAddressThatWasThePeersProvesNothing) {
  const UniqueFd listener = tcp_listen(ip(67), test_port());
  ASSERT_TRUE(listener);
  victim_.run([&] { to_node_->keep_connection(ip(41), ip(67)); });
  UniqueFd fd;
  uint32_t from = 0;
  ASSERT_TRUE(node_.notes.wait([&] {
    fd = tcp_accept(listener.get(), from);
    if (!fd) usleep(1000), node_.notes.on_connection_up(nullptr, false);
    return static_cast<bool>(fd);
  }));
  uint8_t bytes[512];
  ssize_t n;
  while ((n = recv(fd.get(), bytes, sizeof bytes, 0)) < 0 && errno == EAGAIN) usleep(1000);
  wire::Message message;
  ASSERT_TRUE(n > 0 && wire::decode({bytes, static_cast<size_t>(n)}, message));
  const auto& hello = std::get<wire::Hello>(message);
  wire::HelloReply reply;
  reply.instance = node_.net->instance();
  std::vector<uint8_t> out;
  ASSERT_TRUE(wire::encode(reply, out));
  ASSERT_TRUE(send_whole(fd.get(), out));
  // The dial ends, since the answer proves nothing.
  while ((n = recv(fd.get(), bytes, sizeof bytes, 0)) < 0 && errno == EAGAIN) usleep(1000);
  EXPECT_EQ(n, 0);
  EXPECT_EQ(victim_.live(to_node_), 1u);
  EXPECT_EQ(hello.target, node_.net->instance());
}

TEST_F(Attack, ANumberThatJumpsEndsTheConnection) {
  Stranger s(here_);
  ASSERT_TRUE(greet(s, 50, ip(66)));
  s.sequence_set(uint64_t{1} << 63);
  s.say(numbered(1));
  EXPECT_TRUE(s.closed());
  EXPECT_EQ(node_.notes.count(numbered(1)), 0u);
}

TEST_F(Attack, WhatIsLongNeedsAChannelThatServes) {
  const wire::Message long_one =
      wire::KeyQuery{ours_, ours_, 0, 0, 0, std::vector<uint32_t>(2000, 1)};
  for (const bool serves : {true, false}) {
    SCOPED_TRACE(serves);
    node_.notes.set_relying(serves);
    Stranger s(here_);
    ASSERT_TRUE(greet(s, serves ? 51 : 52, ip(66)));
    s.say(long_one);
    if (serves) {
      EXPECT_TRUE(node_.notes.wait_message(long_one));
    } else {
      EXPECT_TRUE(s.closed());
    }
  }
  EXPECT_EQ(node_.notes.count(long_one), 1u);
}

TEST_F(Attack, AChannelThatServesNothingHasFewConnectionsAndEnds) {
  Node guarded(3s, nullptr, 1s);
  guarded.notes.set_relying(false);
  guarded.notes.add_qp(qp(ip(43), 7));
  guarded.serve(ip(43));
  ASSERT_EQ(victim_.find(theirs_, qp(ip(43), 7)).error, FindError::kNone);
  ASSERT_TRUE(guarded.notes.wait([&] { return guarded.notes.ups() == 1; }));
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int i = 0; i < 6; i++) {
    crowd.push_back(std::make_unique<Stranger>(ip(43)));
    ASSERT_TRUE(crowd.back()->greet(identity(53), qp(ip(66), 5), qp(ip(43), 7)));
  }
  for (auto& s : crowd) EXPECT_TRUE(s->closed());
  EXPECT_TRUE(guarded.notes.wait([&] { return guarded.notes.downs() == 2; }));
  EXPECT_LE(guarded.notes.ups(), 5) << "4 of the stranger's";
}

// The channel has ended, and a new one begins: what was said on the old one is not taken again.
TEST_F(Attack, WhatWasRecordedIsNotTakenOnANewChannel) {
  Node forgetful(50ms);
  forgetful.notes.add_qp(qp(ip(44), 7));
  forgetful.serve(ip(44));
  // The process listens when an honest peer has found it.
  ASSERT_EQ(victim_.find(theirs_, qp(ip(44), 7)).error, FindError::kNone);
  ASSERT_TRUE(forgetful.notes.wait([&] { return forgetful.notes.ups() == 1; }));
  const wire::QpName from = qp(ip(66), 5), to = qp(ip(44), 7);
  {
    Stranger s(ip(44));
    ASSERT_TRUE(s.greet(identity(54), from, to));
    s.sequence_set(100);
    s.say(numbered(1));
    ASSERT_TRUE(forgetful.notes.wait_message(numbered(1)));
  }
  ASSERT_TRUE(forgetful.notes.wait([&] { return forgetful.notes.downs() == 1; }));
  Stranger again(ip(44));
  ASSERT_TRUE(again.greet(identity(54), from, to));
  again.sequence_set(100);
  again.say(numbered(1));
  again.say(numbered(2));
  ASSERT_TRUE(forgetful.notes.wait_message(numbered(2)));
  EXPECT_EQ(forgetful.notes.count(numbered(1)), 1u);
}

// Many strangers from many addresses, some silent, some that ask, some that are in the middle of a
// handshake.
TEST_F(Attack, ACrowdHoldsFewDescriptorsAndKeepsNobodyOut) {
  const size_t before = open_descriptors();
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (unsigned i = 0; i < 300; i++) {
    crowd.push_back(std::make_unique<Stranger>(here_, ip(100 + i % 100)));
    auto hello = hello_of(identity(i), ip(100 + i % 100));
    if (i % 3 == 1) hello.want.qpn = 1000 + i;
    if (i % 3 != 0) crowd.back()->say(hello);
  }
  Node honest;
  honest.notes.add_qp(qp(ip(45), 3));
  EXPECT_EQ(honest.find(qp(ip(45), 3), ours_).error, FindError::kNone);
  node_.run([] {});
  // The attackers' ends are in this process, too, and so are the honest process's descriptors.
  EXPECT_LT(open_descriptors(), before + crowd.size() + 64 + 16);
  EXPECT_EQ(victim_.send(to_node_, numbered(98)), 1u);
  EXPECT_TRUE(node_.notes.wait_message(numbered(98)));
}

// Strangers and false peers, each of whom says most of the longest message that there is.
TEST_F(Attack, ACrowdTakesLittleMemory) {
  std::vector<uint8_t> most;
  ASSERT_TRUE(wire::encode(
      wire::KeyQuery{ours_, ours_, 0, 0, 0, std::vector<uint32_t>(wire::kKeysMax, 1)}, most, 1));
  most.resize(most.size() - 1);
  node_.notes.set_relying(false);
  std::vector<std::unique_ptr<Stranger>> crowd;
  const size_t before = allocated();
  for (unsigned i = 0; i < 200; i++) {
    crowd.push_back(std::make_unique<Stranger>(here_, ip(100 + i % 100)));
    if (i % 2 == 0) {
      EXPECT_TRUE(greet(*crowd.back(), i + 1, ip(100 + i % 100)));
    }
    crowd.back()->say(most);
  }
  node_.run([] {});
  EXPECT_LT(allocated(), before + (8 << 20));
}

}  // namespace
}  // namespace shift::net::test
