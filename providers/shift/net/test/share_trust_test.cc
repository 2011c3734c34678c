// Tests what processes of one host do that share a port, or want to, and are not to be trusted
// (C11).
#include <sys/syscall.h>

#include "net/proof.h"
#include "net/test/raw_sharer.h"
#include "net/test/stranger.h"

namespace shift::net::test {
namespace {

std::unique_ptr<JobKeys> one_key() {
  std::array<uint8_t, kJobKeySize> secret;
  secret.fill(1);
  const std::vector all{secret};
  return JobKeys::make(all);
}

// The names and ports of processes with the key.
class Keyed {
 public:
  std::string name(uint32_t ip_be) const {
    return secrets_.local_name(ip_be, Secrets::port_of(test_port(), id_), id_);
  }
  SecretKey key() const { return secrets_.job_key(id_); }

 private:
  const Secrets secrets_{one_key()};
  const uint64_t id_ = secrets_.key_ids()[0];
};

// While it lives, the calling thread is another user's for the kernel. Needs root.
class OtherUser {
 public:
  OtherUser() { EXPECT_EQ(syscall(SYS_setresuid, -1, 65534, -1), 0); }
  ~OtherUser() { EXPECT_EQ(syscall(SYS_setresuid, -1, 0, -1), 0); }
  OtherUser(const OtherUser&) = delete;
};

UniqueFd connect_when_there(const std::string& name) {
  UniqueFd fd;
  while (!(fd = local_connect(name))) usleep(1000);
  return fd;
}

// A process has taken the local name of one address, and poses to the owner of another one as the
// process that wants to share the first.
TEST(ShareTrust, ARegisterCountsForItsOwnAddressOnly) {
  const Keyed keyed;
  Node owner(one_key()), sharer(one_key());
  owner.serve(ip(71));
  const UniqueFd to_owner = connect_when_there(keyed.name(ip(71)));
  const UniqueFd taken = local_listen(keyed.name(ip(72)));
  ASSERT_TRUE(taken);
  sharer.serve(ip(72));
  UniqueFd to_sharer, none;
  while (!(to_sharer = local_accept(taken.get()))) usleep(1000);
  LocalPacket packet;
  ASSERT_TRUE(packet_receive(to_owner.get(), packet, none));
  ASSERT_EQ(packet.kind, LocalKind::kChallenge);
  packet_send(to_sharer.get(), packet);
  ASSERT_TRUE(packet_receive(to_sharer.get(), packet, none));
  ASSERT_EQ(packet.kind, LocalKind::kRegister);
  packet_send(to_owner.get(), packet);
  EXPECT_FALSE(packet_receive(to_owner.get(), packet, none)) << "it is not welcome";
}

TEST(ShareTrust, TheTagsCoverAllThatWasSaid) {
  const Keyed keyed;
  wire::Nonce challenge;
  wire::Hello hello;
  for (const auto& make : {register_tag, welcome_tag}) {
    const wire::Tag tag = make(keyed.key(), "one", challenge, hello);
    EXPECT_TRUE(tag_fits(make(keyed.key(), "one", challenge, hello), tag));
    EXPECT_FALSE(tag_fits(make(keyed.key(), "two", challenge, hello), tag));
    wire::Nonce other = challenge;
    other.raw[0]++;
    EXPECT_FALSE(tag_fits(make(keyed.key(), "one", other, hello), tag));
    wire::Hello changed = hello;
    changed.instance.raw[0]++;
    EXPECT_FALSE(tag_fits(make(keyed.key(), "one", challenge, changed), tag));
  }
}

// Nobody takes a connection from another address than its QP's, so no sharer is asked about it.
TEST(ShareTrust, SharersAreNotAskedForWhoComesFromElsewhere) {
  Node owner;
  owner.serve(ip(73));
  RawSharer sharer(ip(73));
  wire::Hello hello;
  hello.instance = instance(9);
  hello.want = qp(ip(73), 200);
  hello.from = qp(ip(74), 1);
  Stranger stranger(ip(73));
  stranger.say(hello);
  const auto answer = stranger.hear();
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(std::get<wire::HelloReply>(*answer).status, wire::HelloStatus::kNoSuchQp);
  hello.want.qpn = 201;
  Stranger honest(ip(73), ip(74));
  honest.say(hello);
  const LocalPacket question = sharer.receive();
  EXPECT_EQ(question.kind, LocalKind::kAsk);
  EXPECT_EQ(question.hello.want.qpn, 201u);
}

// Sixty sockets of another user wait to register. One of this user that came before them stays.
TEST(ShareTrust, AnotherUsersCrowdKeepsNoSharerOut) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const Keyed keyed;
  Node owner(one_key());
  owner.serve(ip(75));
  const UniqueFd honest = connect_when_there(keyed.name(ip(75)));
  LocalPacket challenge, packet;
  UniqueFd none;
  ASSERT_TRUE(packet_receive(honest.get(), challenge, none));
  std::vector<UniqueFd> crowd;
  {
    const OtherUser other;
    for (int i = 0; i < 60; i++) crowd.push_back(local_connect(keyed.name(ip(75))));
  }
  for (const UniqueFd& fd : crowd) ASSERT_TRUE(packet_receive(fd.get(), packet, none));
  packet.kind = LocalKind::kRegister;
  packet.hello = {};
  packet.hello.instance = instance(8);
  packet.hello.tag =
      register_tag(keyed.key(), keyed.name(ip(75)), challenge.hello.nonce, packet.hello);
  packet_send(honest.get(), packet);
  ASSERT_TRUE(packet_receive(honest.get(), packet, none));
  EXPECT_EQ(packet.kind, LocalKind::kWelcome);
}

// How often somebody knocks at the local socket, and is shut out again, in 300 ms from the first.
int knocks(const UniqueFd& listener) {
  int count = 0;
  auto end = Reactor::Clock::time_point::max();
  while (Reactor::Clock::now() < end) {
    if (!local_accept(listener.get())) {
      usleep(100);
    } else if (++count == 1) {
      end = Reactor::Clock::now() + 300ms;
    }
  }
  return count;
}

TEST(ShareTrust, APortOfAnotherUserIsLeftAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  UniqueFd listener;
  {
    const OtherUser other;
    listener = local_listen(local_name(ip(76), test_port()));
  }
  ASSERT_TRUE(listener);
  Node node;
  node.serve(ip(76));
  EXPECT_EQ(knocks(listener), 1) << "it comes again after seconds";
}

TEST(ShareTrust, AnOwnerWithoutTheKeyIsAskedWithGrowingPauses) {
  const UniqueFd listener = local_listen(Keyed().name(ip(77)));
  ASSERT_TRUE(listener);
  Node node(one_key());
  node.serve(ip(77));
  EXPECT_LE(knocks(listener), 9) << "after 2, 4, ... 256 ms";
}

}  // namespace
}  // namespace shift::net::test
