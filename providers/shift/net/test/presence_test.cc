// Tests whether a process listens at the peer's port. Every answer is bounded in time.
#include "net/presence.h"

#include <sys/resource.h>

#include "net/socket.h"
#include "net/test/net_fixture.h"

namespace shift::net::test {
namespace {

bool at(Presence& presence, uint32_t local_ip_be, uint32_t remote_ip_be) {
  return presence.at(wire::Gid::from_ipv4(local_ip_be), wire::Gid::from_ipv4(remote_ip_be), [=] {
    return Presence::Addresses{local_ip_be, remote_ip_be};
  });
}

bool asked_once(uint32_t local_ip_be, uint32_t remote_ip_be) {
  Presence presence(test_port());
  return at(presence, local_ip_be, remote_ip_be);
}

TEST(Presence, ProcessThatServesTheAddressIsThere) {
  Node node;
  node.serve(ip(1));
  EXPECT_TRUE(asked_once(ip(2), ip(1)));
}

// The port owner does not take the question for a peer, and the next connection finds its process.
TEST(Presence, QuestionLeavesNothingBehind) {
  Node node, other;
  node.serve(ip(1));
  ASSERT_TRUE(asked_once(ip(2), ip(1)));
  node.notes.add_qp(qp(ip(1), 7));
  EXPECT_NE(other.find(qp(ip(2), 8), qp(ip(1), 7)).channel, nullptr);
  EXPECT_TRUE(node.notes.wait([&] { return node.notes.ups() == 1; }));
}

TEST(Presence, RefusalIsANo) {
  EXPECT_FALSE(asked_once(ip(2), ip(3)));
}

// It is enough that the kernel accepts: the process there may not get a processor for a while.
TEST(Presence, ProcessNeedNotRun) {
  const UniqueFd listener = tcp_listen(ip(4), test_port());
  ASSERT_TRUE(listener);
  EXPECT_TRUE(asked_once(ip(2), ip(4)));
}

// A listener whose queue is full accepts no connection, but refuses none either.
TEST(Presence, SilenceIsANoInTime) {
  const UniqueFd listener = tcp_listen(ip(5), test_port());
  ASSERT_TRUE(listener);
  ASSERT_EQ(listen(listener.get(), 0), 0) << "room for no more than one that waits";
  std::vector<UniqueFd> waiting;
  Presence presence(test_port(), 20ms, 0ms);
  for (int i = 0; i < 4; i++) waiting.push_back(tcp_connect(ip(2), ip(5), test_port()));
  EXPECT_FALSE(at(presence, ip(2), ip(5)));
}

TEST(Presence, AnswerIsKeptForAWhile) {
  Presence presence(test_port(), Presence::kPatience, 1h);
  Presence forgetful(test_port(), Presence::kPatience, 0ms);
  {
    const UniqueFd listener = tcp_listen(ip(6), test_port());
    ASSERT_TRUE(at(presence, ip(2), ip(6)));
    ASSERT_TRUE(at(forgetful, ip(2), ip(6)));
  }
  EXPECT_TRUE(at(presence, ip(2), ip(6))) << "as it was";
  EXPECT_FALSE(at(presence, ip(3), ip(6))) << "of that pair of addresses only";
  EXPECT_FALSE(at(forgetful, ip(2), ip(6)));
}

TEST(Presence, WhereNobodyCanBeAskedNobodyIs) {
  Presence presence(test_port());
  int asked = 0;
  const auto nowhere = [&] {
    asked++;
    return std::optional<Presence::Addresses>();
  };
  EXPECT_FALSE(presence.at(wire::Gid{}, wire::Gid{}, nowhere));
  EXPECT_FALSE(presence.at(wire::Gid{}, wire::Gid{}, nowhere));
  EXPECT_EQ(asked, 1) << "that takes its time, and is kept as well";
}

TEST(Presence, NoDescriptorIsANo) {
  Node node;
  node.serve(ip(7));
  struct rlimit before {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const struct rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool is_there = asked_once(ip(2), ip(7));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(is_there);
}

}  // namespace
}  // namespace shift::net::test
