// Memory windows: what a peer may do through one, which queue pairs may bind it, and how a binding
// ends.
#include <gtest/gtest.h>

#include <cstring>

#include "rig.h"

namespace cxemu::test {
namespace {

constexpr uint32_t kRegionAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND;
constexpr uint32_t kRegionSize = 8192;
constexpr uint64_t kIova = 0x7000;

class Windows : public ::testing::Test {
 protected:
  // b exposes the middle of its region through a window; a is its peer.
  uint32_t window_make(bool type2) {
    uint32_t key = 0;
    EXPECT_EQ(rig_.b.nic->mw_allocate(1, type2, &key), 0);
    return key;
  }
  WindowWr bind_request(uint32_t key, bool type2 = true) const {
    return {.type2 = type2,
            .window_key = key,
            .variant = static_cast<uint8_t>(key + 1),
            .region_key = region_.key,
            .address = region_.address() + 100,
            .length = 4000,
            .iova = kIova,
            .rights = kKeyRemoteWrite | kKeyRemoteRead};
  }
  std::vector<Completion> completions(TestCq& cq, size_t count) {
    std::vector<Completion> all;
    rig_.run_until([&] {
      for (const Completion& one : cq.drain()) all.push_back(one);
      return all.size() >= count;
    });
    EXPECT_EQ(all.size(), count);
    all.resize(count);
    return all;
  }
  // Posts the request on b's queue pair; returns the syndrome of its completion.
  uint8_t post(const WindowWr& wr) {
    pair_.b.post_window(wr);
    const Completion done = completions(pair_.b_cq, 1)[0];
    EXPECT_EQ(done.wqe_opcode, kWqeUmr);
    return done.syndrome;
  }
  // Binds a window successfully and returns its key.
  uint32_t bind(bool type2 = true) {
    const uint32_t key = window_make(type2);
    EXPECT_EQ(post(bind_request(key, type2)), kSyndromeNone);
    return (key & ~0xffu) | ((key + 1) & 0xff);
  }
  uint8_t write(uint32_t key, uint64_t address, uint32_t length = 8) {
    pair_.a.post_send({.opcode = kWqeWrite,
                       .sges = {local_.sge(0, length)},
                       .remote_address = address,
                       .rkey = key});
    return completions(pair_.a_cq, 1)[0].syndrome;
  }

  Rig rig_;
  Pair pair_{rig_};
  TestMr local_{*rig_.a.nic, kRegionSize};
  TestMr region_{*rig_.b.nic, kRegionSize, kRegionAccess};
};

TEST_F(Windows, GrantMoreThanTheirRegionAndLess) {
  for (const bool type2 : {false, true}) {
    const uint32_t key = bind(type2);
    std::fill(local_.bytes.begin(), local_.bytes.end(), uint8_t{0x5a});
    std::fill(region_.bytes.begin(), region_.bytes.end(), uint8_t{0});
    EXPECT_EQ(write(key, kIova, 4000), kSyndromeNone) << "the region itself grants no writing";
    EXPECT_EQ(region_.bytes[99], 0);
    EXPECT_EQ(region_.bytes[100], 0x5a);
    EXPECT_EQ(region_.bytes[4099], 0x5a);
    EXPECT_EQ(region_.bytes[4100], 0);
    pair_.a.post_send({.opcode = kWqeRead,
                       .sges = {local_.sge(0, 1)},
                       .remote_address = kIova + 3999,
                       .rkey = key});
    EXPECT_EQ(completions(pair_.a_cq, 1)[0].syndrome, kSyndromeNone);
  }
}

TEST_F(Windows, RangeIsExact) {
  const uint32_t key = bind();
  EXPECT_EQ(write(key, kIova + 1, 4000), kSyndromeRemoteAccess);
}

TEST_F(Windows, RightsAreTheWindows) {
  const uint32_t key = window_make(true);
  WindowWr wr = bind_request(key);
  wr.rights = kKeyRemoteRead;
  ASSERT_EQ(post(wr), kSyndromeNone);
  EXPECT_EQ(write((key & ~0xffu) | wr.variant, kIova), kSyndromeRemoteAccess);
}

TEST_F(Windows, OldKeyOfABoundWindowIsDead) {
  EXPECT_EQ(write(bind() - 1, kIova), kSyndromeRemoteAccess);
}

TEST_F(Windows, AreNoLocalKeys) {
  const uint32_t key = bind();
  pair_.b.post_send({.opcode = kWqeSend, .sges = {{reinterpret_cast<const void*>(kIova), 8, key}}});
  EXPECT_EQ(completions(pair_.b_cq, 1)[0].syndrome, kSyndromeLocalProtection);
}

TEST_F(Windows, Type2BelongsToTheQueuePairThatBoundIt) {
  TestCq other_a_cq(*rig_.a.nic, rig_.a.events), other_b_cq(*rig_.b.nic, rig_.b.events);
  TestQp other_a(*rig_.a.nic, rig_.a.events, other_a_cq, other_a_cq);
  TestQp other_b(*rig_.b.nic, rig_.b.events, other_b_cq, other_b_cq);
  rig_.connect(other_a, other_b);
  const auto write_through_other = [&](uint32_t key) {
    other_a.post_send(
        {.opcode = kWqeWrite, .sges = {local_.sge(0, 8)}, .remote_address = kIova, .rkey = key});
    return completions(other_a_cq, 1)[0].syndrome;
  };
  EXPECT_EQ(write_through_other(bind(false)), kSyndromeNone);
  EXPECT_EQ(write_through_other(bind(true)), kSyndromeRemoteAccess);
}

TEST_F(Windows, BindIsExecutedOnceWhateverIsSentAgain) {
  // The first SEND is lost, so b sends it again after the bind that follows it was executed.
  int lost = 0;
  rig_.net.filter = [&](const Packet& packet) {
    return packet.opcode == Operation::kSendOnly && lost++ == 0 ? 0 : 1;
  };
  TestMr sink(*rig_.a.nic, 64);
  pair_.a.post_recv({sink.sge(0, 64)});
  pair_.b.post_send({.opcode = kWqeSend, .sges = {region_.sge(0, 8)}});
  const uint32_t key = window_make(true);
  pair_.b.post_window(bind_request(key));
  const auto done = completions(pair_.b_cq, 2);
  EXPECT_GE(lost, 2);
  EXPECT_EQ(done[0].wqe_opcode, kWqeSend);
  EXPECT_EQ(done[1].wqe_opcode, kWqeUmr);
  EXPECT_EQ(done[1].syndrome, kSyndromeNone) << "a second bind would find the window bound";
}

TEST_F(Windows, BindAndWhatFollowsKeepTheirOrder) {
  const uint32_t key = window_make(true);
  const WindowWr wr = bind_request(key);
  TestMr sink(*rig_.a.nic, 64);
  pair_.a.post_recv({sink.sge(0, 64)});
  pair_.b.post_window(wr);
  pair_.b.post_send({.opcode = kWqeSend, .sges = {region_.sge(0, 8)}});
  const auto got = completions(pair_.a_cq, 1);
  EXPECT_EQ(got[0].opcode, kCqeRecvSend);
  EXPECT_EQ(write((key & ~0xffu) | wr.variant, kIova), kSyndromeNone);
}

struct BadBind {
  const char* name;
  std::function<void(WindowWr&, const TestMr& other_region)> spoil;
};

class BadBinds : public Windows, public ::testing::WithParamInterface<BadBind> {};

TEST_P(BadBinds, EndsInAnErrorAndBindsNothing) {
  // A region of another domain, and one that does not permit windows.
  const TestMr other(*rig_.b.nic, 64, kRegionAccess, 2);
  const uint32_t key = window_make(true);
  WindowWr wr = bind_request(key);
  GetParam().spoil(wr, other);
  EXPECT_EQ(post(wr), kSyndromeWindowBind);
  EXPECT_EQ(pair_.b.query().qp_state, IBV_QPS_ERR);
  EXPECT_EQ(rig_.b.nic->mr_deregister(region_.key), 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, BadBinds,
    ::testing::Values(
        BadBind{"Beyond", [](WindowWr& wr, const TestMr&) { wr.length = kRegionSize; }},
        BadBind{"Before", [](WindowWr& wr, const TestMr&) { wr.address -= 101; }},
        BadBind{"OtherRegionKey", [](WindowWr& wr, const TestMr&) { wr.region_key++; }},
        BadBind{"OtherDomain",
                [](WindowWr& wr, const TestMr& other) {
                  wr.region_key = other.key;
                  wr.address = other.address();
                  wr.length = 64;
                }},
        BadBind{"NotAWindow", [](WindowWr& wr, const TestMr&) { wr.window_key = wr.region_key; }},
        BadBind{"OtherType", [](WindowWr& wr, const TestMr&) { wr.type2 = false; }},
        BadBind{"WrappingName", [](WindowWr& wr, const TestMr&) { wr.iova = UINT64_MAX - 10; }}),
    [](const auto& param_info) { return param_info.param.name; });

TEST_F(Windows, RegionMustPermitThem) {
  const TestMr closed(*rig_.b.nic, 64, IBV_ACCESS_LOCAL_WRITE);
  WindowWr wr = bind_request(window_make(true));
  wr.region_key = closed.key;
  wr.address = closed.address();
  wr.length = 64;
  EXPECT_EQ(post(wr), kSyndromeWindowBind);
}

TEST_F(Windows, ReadOnlyRegionCannotBeWrittenThroughOne) {
  const TestMr read_only(*rig_.b.nic, 64, IBV_ACCESS_MW_BIND);
  WindowWr wr = bind_request(window_make(true));
  wr.region_key = read_only.key;
  wr.address = read_only.address();
  wr.length = 64;
  EXPECT_EQ(post(wr), kSyndromeWindowBind);
}

TEST_F(Windows, Type2MustBeInvalidatedBeforeItIsBoundAnew) {
  const uint32_t key = bind();
  EXPECT_EQ(post(bind_request(key)), kSyndromeWindowBind);
}

TEST_F(Windows, Type1IsBoundAnewAtOnceAndEndsByLengthZero) {
  const uint32_t first = bind(false);
  ASSERT_EQ(post(bind_request(first, false)), kSyndromeNone);
  const uint32_t second = (first & ~0xffu) | ((first + 1) & 0xff);
  EXPECT_EQ(write(second, kIova), kSyndromeNone);
  EXPECT_EQ(rig_.b.nic->mr_deregister(region_.key), EBUSY);
  ASSERT_EQ(post({.type2 = false, .window_key = second, .variant = 9}), kSyndromeNone);
  EXPECT_EQ(rig_.b.nic->mr_deregister(region_.key), 0);
  EXPECT_EQ(write((first & ~0xffu) | 9, kIova), kSyndromeRemoteAccess);
}

TEST_F(Windows, LocalInvalidateEndsABinding) {
  const uint32_t key = bind();
  ASSERT_EQ(post({.window_key = key}), kSyndromeNone);
  EXPECT_EQ(post(bind_request(key)), kSyndromeNone) << "free again";
  ASSERT_EQ(post({.window_key = (key & ~0xffu) | ((key + 1) & 0xff)}), kSyndromeNone);
  EXPECT_EQ(write(key, kIova), kSyndromeRemoteAccess);
}

TEST_F(Windows, LocalInvalidateNeedsTheRightKey) {
  EXPECT_EQ(post({.window_key = bind() + 1}), kSyndromeWindowBind);
}

TEST_F(Windows, SendWithInvalidateEndsABindingAndSaysSo) {
  for (const uint32_t length : {0u, 100u, 5000u}) {
    const uint32_t key = bind();
    TestMr sink(*rig_.b.nic, 5000);
    pair_.b.post_recv({sink.sge(0, 5000)});
    pair_.a.post_send(
        {.opcode = kWqeSendInvalidate, .sges = {local_.sge(0, length)}, .imm_be = htobe32(key)});
    const Completion sent = completions(pair_.a_cq, 1)[0];
    const Completion got = completions(pair_.b_cq, 1)[0];
    EXPECT_EQ(sent.syndrome, kSyndromeNone);
    EXPECT_EQ(sent.wqe_opcode, kWqeSendInvalidate);
    EXPECT_EQ(got.opcode, kCqeRecvSendInvalidate);
    EXPECT_EQ(got.byte_count, length);
    EXPECT_EQ(got.imm_be, htobe32(key));
    EXPECT_EQ(post(bind_request(key)), kSyndromeNone) << "free again";
  }
}

// IBA 9.9.3, class J.
TEST_F(Windows, InvalidatingWhatIsNotBoundFailsBothEnds) {
  const uint32_t key = bind();
  TestMr sink(*rig_.b.nic, 64);
  pair_.b.post_recv({sink.sge(0, 64)});
  pair_.a.post_send(
      {.opcode = kWqeSendInvalidate, .sges = {local_.sge(0, 8)}, .imm_be = htobe32(key + 1)});
  EXPECT_EQ(completions(pair_.a_cq, 1)[0].syndrome, kSyndromeRemoteAccess);
  const Completion got = completions(pair_.b_cq, 1)[0];
  EXPECT_EQ(got.opcode, kCqeResponderError);
  EXPECT_EQ(got.syndrome, kSyndromeRemoteInvalidRequest);
  EXPECT_EQ(pair_.b.query().qp_state, IBV_QPS_ERR);
}

TEST_F(Windows, PeersCannotInvalidateRegionsNorType1) {
  EXPECT_FALSE(static_cast<NicModel&>(*rig_.b.nic)
                   .memory()
                   .window_invalidate(1, pair_.b.number(), region_.key));
  EXPECT_FALSE(static_cast<NicModel&>(*rig_.b.nic)
                   .memory()
                   .window_invalidate(1, pair_.b.number(), bind(false)));
}

TEST_F(Windows, RegionStaysWhileOneIsBound) {
  const uint32_t key = bind();
  uint32_t new_key = 0;
  EXPECT_EQ(rig_.b.nic->mr_deregister(region_.key), EBUSY);
  EXPECT_EQ(rig_.b.nic->mr_reregister(region_.key, {.access = true}, &new_key), EBUSY);
  EXPECT_EQ(write(key, kIova), kSyndromeNone);
  EXPECT_EQ(rig_.b.nic->mw_deallocate(key), 0) << "bound or not";
  EXPECT_EQ(rig_.b.nic->mw_deallocate(key), EINVAL);
  EXPECT_EQ(rig_.b.nic->mr_deregister(region_.key), 0);
}

TEST_F(Windows, NothingElseMayBeDoneToKeys) {
  // A request that changes a property that windows do not have, here only the free bit.
  const uint32_t key = window_make(true);
  const uint16_t at = pair_.b.post_window(bind_request(key));
  const uint64_t mask = htobe64(kUmrMaskFree);
  memcpy(pair_.b.block(at) + 16 + offsetof(UmrControlSegment, mask), &mask, sizeof mask);
  EXPECT_EQ(completions(pair_.b_cq, 1)[0].syndrome, kSyndromeLocalQpOperation);
}

}  // namespace
}  // namespace cxemu::test
