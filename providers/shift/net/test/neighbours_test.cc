// Tests that a link-local GID is believed only of the NIC whose MAC address it holds (C11).
#include "net/neighbours.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>
#include <sstream>

#include "net/test/net_fixture.h"
#include "net/test/own_namespace.h"

namespace shift::net::test {
namespace {

constexpr Mac kMac{0x02, 0x11, 0x22, 0x33, 0x44, 0x55}, kOther{0x02, 0x11, 0x22, 0x33, 0x44, 0x56};
constexpr char kTable[] =
    "IP address       HW type     Flags       HW address            Mask     Device\n"
    "192.0.2.1        0x1         0x2         02:11:22:33:44:55     *        eth0\n"
    "192.0.2.2        0x1         0x0         00:00:00:00:00:00     *        eth0\n"
    "192.0.2.3        0x1         0x2         02:11:22:33:44:56     *        eth0\n"
    "192.0.2.3        0x1         0x6         02:11:22:33:44:55     *        eth1\n"
    "192.0.2.4        0x20        0x2         80:00:02:08:fe:80     *        ib0\n"
    "192.0.2.5        0x1         0x2         02:11:22\n";

bool contradicts(const char* address, const Mac& mac) {
  std::istringstream table(kTable);
  return table_contradicts(table, inet_addr(address), mac);
}

TEST(Neighbours, OnlyAGidOfAMacAddressHasOne) {
  wire::Gid gid;
  gid.raw = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55};
  EXPECT_EQ(mac_of(gid), kMac);
  auto opaque = gid;
  opaque.raw[11] = 0;
  EXPECT_FALSE(mac_of(opaque));
  auto global = gid;
  global.raw[0] = 0x20;
  EXPECT_FALSE(mac_of(global));
  EXPECT_FALSE(mac_of(wire::Gid::from_ipv4(inet_addr("192.0.2.1"))));
}

TEST(Neighbours, AnotherMacAddressContradicts) {
  EXPECT_FALSE(contradicts("192.0.2.1", kMac));
  EXPECT_TRUE(contradicts("192.0.2.1", kOther));
}

TEST(Neighbours, OneOfSeveralEntriesIsEnough) {
  EXPECT_FALSE(contradicts("192.0.2.3", kMac));
  EXPECT_FALSE(contradicts("192.0.2.3", kOther));
}

TEST(Neighbours, WhatIsNotKnownContradictsNothing) {
  EXPECT_FALSE(contradicts("192.0.2.2", kMac)) << "it is not resolved";
  EXPECT_FALSE(contradicts("192.0.2.4", kMac)) << "it is no Ethernet address";
  EXPECT_FALSE(contradicts("192.0.2.5", kMac)) << "the line is damaged";
  EXPECT_FALSE(contradicts("192.0.2.9", kMac));
}

// ---- Two hosts on a link, each in a namespace of its own

wire::Gid gid_of(const Mac& m) {
  wire::Gid gid;
  gid.raw = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]};
  gid.raw[8] = m[0] ^ 2;
  return gid;
}

FindError find_from(Node& node, uint32_t ip_be, const wire::QpName& local,
                    const wire::QpName& remote, std::chrono::milliseconds patience) {
  auto promise = std::make_shared<std::promise<FindError>>();
  node.run([&] {
    FindRequest request{remote, local, Reactor::Clock::now() + patience, ip_be};
    node.net->find_peer(request,
                        [promise](PeerChannel*, FindError error) { promise->set_value(error); });
  });
  return promise->get_future().get();
}

// This process is one host, and its child is the other one. The child says that it has the GID of
// `claimed`; its NIC has kOther. This process's NIC has kMac.
class LinkTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    (void)test_port();  // while there is a loopback device
    entered_ = namespace_enter() && ip_command("link add near type veth peer name far") == 0 &&
               ip_command("link del near") == 0;
  }
  void SetUp() override {
    if (!entered_) GTEST_SKIP() << "no network namespace with veth devices can be made here";
    ASSERT_EQ(pipe(to_child_), 0);
    ASSERT_EQ(pipe(to_parent_), 0);
  }
  // The child runs `act` when the link is there, and ends with its result when told to.
  void begin(const std::function<int()>& act) {
    child_ = fork();
    ASSERT_GE(child_, 0);
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (unshare(CLONE_NEWNET) != 0) _exit(2);
      tell(to_parent_[1]);
      await(to_child_[0]);
      const bool is_linked =
          ip_command("address add 192.0.2.2/24 dev far") == 0 && ip_command("link set far up") == 0;
      _exit(is_linked ? act() : 3);
    }
    await(to_parent_[0]);
    ASSERT_EQ(ip_command("link add near address 02:11:22:33:44:55 type veth peer name far address "
                         "02:11:22:33:44:56 netns " +
                         std::to_string(child_)),
              0);
    ASSERT_EQ(ip_command("address add 192.0.2.1/24 dev near"), 0);
    ASSERT_EQ(ip_command("link set near up"), 0);
    tell(to_child_[1]);
  }
  int end() {
    int status = 0;
    EXPECT_EQ(waitpid(child_, &status, 0), child_);
    (void)ip_command("link del near");  // the child's namespace may live on for a moment
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void TearDown() override {
    for (const int fd : {to_child_[0], to_child_[1], to_parent_[0], to_parent_[1]}) close(fd);
  }
  static void tell(int fd) { EXPECT_EQ(write(fd, "x", 1), 1); }
  static void await(int fd) {
    char c;
    EXPECT_EQ(read(fd, &c, 1), 1);
  }
  static void serve(Node& node, uint32_t ip_be, const wire::QpName& name) {
    node.notes.add_qp(name);
    node.serve(ip_be);
    node.run([&] { node.net->name_address(ip_be, {name.gid}); });
  }

  static inline bool entered_ = false;
  const uint32_t near_ = inet_addr("192.0.2.1"), far_ = inet_addr("192.0.2.2");
  const wire::QpName ours_{gid_of(kMac), 7};
  int to_child_[2]{}, to_parent_[2]{};
  pid_t child_ = -1;
};

TEST_F(LinkTest, WhoAnswersForAGidHasToHaveItsMacAddress) {
  for (const Mac& claimed : {kOther, kMac}) {
    SCOPED_TRACE(claimed == kOther);
    const std::chrono::milliseconds patience = claimed == kOther ? kPatience : 2s;
    const wire::QpName theirs{gid_of(claimed), 8};
    ASSERT_NO_FATAL_FAILURE(begin([&] {
      Node node;
      serve(node, far_, theirs);
      tell(to_parent_[1]);
      await(to_child_[0]);
      return 0;
    }));
    await(to_parent_[0]);
    {
      Node asker;
      serve(asker, near_, ours_);
      const FindError error = find_from(asker, near_, ours_, theirs, patience);
      EXPECT_EQ(error == FindError::kNone, claimed == kOther) << find_error_name(error);
    }
    tell(to_child_[1]);
    EXPECT_EQ(end(), 0);
  }
}

TEST_F(LinkTest, WhoAsksForAGidHasToHaveItsMacAddress) {
  for (const Mac& claimed : {kOther, kMac}) {
    SCOPED_TRACE(claimed == kOther);
    const std::chrono::milliseconds patience = claimed == kOther ? kPatience : 2s;
    const wire::QpName theirs{gid_of(claimed), 8};
    ASSERT_NO_FATAL_FAILURE(begin([&] {
      Node node;
      serve(node, far_, theirs);
      const FindError error = find_from(node, far_, theirs, ours_, patience);
      return error == FindError::kNone ? 10 : 11;
    }));
    Node asked;
    serve(asked, near_, ours_);
    EXPECT_EQ(end(), claimed == kOther ? 10 : 11);
    if (claimed == kOther) {
      // The asker has its answer before this process has noted the connection.
      EXPECT_TRUE(asked.notes.wait([&] { return asked.notes.ups() > 0; }));
    } else {
      EXPECT_EQ(asked.notes.ups(), 0);
    }
  }
}

}  // namespace
}  // namespace shift::net::test
