// Tests that strangers cast no doubt on where a peer's GID is that holds no address (C11).
#include "net/test/net_fixture.h"

namespace shift::net::test {
namespace {

// A link-local GID that no other test uses.
wire::Gid unnamed_gid(uint8_t n) {
  wire::Gid gid;
  gid.raw = {0xfe, 0x80};
  const auto pid = static_cast<uint32_t>(getpid());
  for (size_t i = 0; i < 4; i++) gid.raw[8 + i] = static_cast<uint8_t>(pid >> (8 * i));
  gid.raw[14] = 0xdb;
  gid.raw[15] = n;
  return gid;
}

// A peer has found this process, and so it is known where the peer's GID is. Another host claims to
// have that GID, too.
class LinkDoubt : public ::testing::Test {
 protected:
  LinkDoubt() {
    node_.notes.add_qp(ours_);
    serve(node_, ip(61), unnamed_gid(1));
    serve(peer_, ip(62), unnamed_gid(2));
    EXPECT_EQ(find(peer_, theirs_, ip(62), kPatience), FindError::kNone);
    EXPECT_TRUE(node_.notes.wait([&] { return node_.notes.ups() == 1; }));
    serve(liar_, ip(63), unnamed_gid(2));
  }
  static void serve(Node& node, uint32_t ip_be, const wire::Gid& gid) {
    node.serve(ip_be);
    node.run([&] { node.net->name_address(ip_be, {gid}); });
  }
  FindError find(Node& asker, const wire::QpName& name, uint32_t ip_be,
                 std::chrono::milliseconds patience) {
    auto promise = std::make_shared<std::promise<FindError>>();
    asker.run([&] {
      FindRequest request{ours_, name, Reactor::Clock::now() + patience, ip_be};
      asker.net->find_peer(request,
                           [promise](PeerChannel*, FindError error) { promise->set_value(error); });
    });
    return promise->get_future().get();
  }

  const wire::QpName ours_{unnamed_gid(1), 7}, theirs_{unnamed_gid(2), 8};
  Node node_, peer_, liar_;
};

TEST_F(LinkDoubt, AStrangerWithTheRightNamesIsNotBelieved) {
  EXPECT_EQ(find(liar_, theirs_, ip(63), 2s), FindError::kNoSuchQp);
  EXPECT_EQ(node_.notes.ups(), 1);
  std::optional<uint32_t> known;
  node_.run(
      [&] { node_.net->find_address(ip(61), unnamed_gid(2), [&](auto found) { known = found; }); });
  EXPECT_EQ(known, ip(62)) << "it is still known, and needs no question";
}

// The peer is gone from there, so the GID may be elsewhere now.
TEST_F(LinkDoubt, WhereNoPeerIsTheLinkIsAskedAnew) {
  node_.notes.set_relying(false);
  EXPECT_EQ(find(liar_, theirs_, ip(63), kPatience), FindError::kNone);
}

}  // namespace
}  // namespace shift::net::test
