// The modes exact and auto: what the PSN that the peer's responder expected proves, and what
// becomes of the other requests. Each rule has a planted bug that these tests must notice
// (CMakeLists.txt).
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

#include "group/packets.h"
#include "group/test/fake.h"
#include "util/test/random.h"

namespace shift::group {
namespace {

using Ids = std::vector<uint64_t>;
constexpr uint32_t kMtu = 1024;
constexpr uint32_t kFirstPsn = 0xfffffe;  // wraps around at once
constexpr uint32_t kBackupPsn = 0xfffff0;

ibv_send_wr make_wr(uint64_t id, ibv_wr_opcode opcode, ibv_sge* sge, int sges = 1) {
  ibv_send_wr wr{};
  wr.wr_id = id;
  wr.opcode = opcode;
  wr.sg_list = sge;
  wr.num_sge = sges;
  wr.send_flags = IBV_SEND_SIGNALED;
  if (is_atomic(opcode)) {
    wr.wr.atomic = {0x9000, 1, 2, kRkey};
  } else {
    wr.wr.rdma = {0x9000, kRkey};
  }
  return wr;
}

TEST(Packets, EachRequestTakesAsManyNumbersAsItHasPackets) {
  SendJournal journal;
  journal.init(64, 2, 64, false);
  journal.count_packets(kMtu);
  const struct {
    ibv_wr_opcode opcode;
    uint32_t length, packets;
  } cases[] = {
      {IBV_WR_RDMA_WRITE, 0, 1},           {IBV_WR_RDMA_WRITE, 1, 1},
      {IBV_WR_RDMA_WRITE, kMtu, 1},        {IBV_WR_RDMA_WRITE, kMtu + 1, 2},
      {IBV_WR_SEND, 3 * kMtu, 3},          {IBV_WR_RDMA_WRITE_WITH_IMM, 0, 1},
      {IBV_WR_RDMA_READ, 5 * kMtu - 1, 5}, {IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 1},
      {IBV_WR_ATOMIC_CMP_AND_SWP, 8, 1},   {IBV_WR_LOCAL_INV, 0, 0},
  };
  uint32_t total = 0;
  for (const auto& c : cases) {
    ibv_sge sge{0x5000, c.length, kLkey};
    ibv_send_wr wr = make_wr(1, c.opcode, &sge);
    journal.add_chain(&wr);
    total += c.packets;
    EXPECT_EQ(journal.packets_at(journal.head() - 1), c.packets) << c.opcode << " " << c.length;
    EXPECT_EQ(journal.packets(), total);
  }
  ibv_sge two[2] = {{0x5000, kMtu, kLkey}, {0x7000, 1, kLkey}};
  ibv_send_wr wr = make_wr(2, IBV_WR_SEND, two, 2);
  journal.add(wr);
  EXPECT_EQ(journal.packets(), total + 2);
  journal.take_back(journal.head() - 2);
  EXPECT_EQ(journal.packets(), total);
}

// Compares with an oracle that gives each packet its number, from the first packet on.
TEST(Packets, ExecutedIsWhatTheNumbersSay) {
  Random random;
  const auto below = [&](uint64_t limit) { return random.number() % limit; };
  for (int round = 0; round < 2000; round++) {
    SendJournal journal;
    journal.init(32, 2, 64, false);
    journal.count_packets(kMtu);
    SentPackets sent;
    sent.known = true;
    sent.begin = static_cast<uint32_t>(below(1u << 24));
    const uint64_t before = below(40);  // these were completed on an earlier connection
    struct Entry {
      uint64_t begin, end;  // in packets since the start of the connection
      bool is_write;
    };
    std::vector<Entry> entries;
    uint64_t at = below(3);  // the layer's own requests, before the application's
    sent.psn = sent.begin + static_cast<uint32_t>(at);
    const uint64_t count = below(30) + 1;
    for (uint64_t i = 0; i < before + count; i++) {
      constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ,
                                            IBV_WR_ATOMIC_FETCH_AND_ADD};
      const auto opcode = kOpcodes[below(4)];
      ibv_sge sge{0x5000, static_cast<uint32_t>(is_atomic(opcode) ? 8 : below(6 * kMtu)), kLkey};
      const ibv_send_wr wr = make_wr(i, opcode, &sge);
      if (i == before) {
        sent.from = i;
        sent.total = journal.packets();
      }
      journal.add(wr);
      if (i < before) continue;
      uint64_t packets = journal.packets_at(i);
      if (i == before && opcode == IBV_WR_RDMA_WRITE && packets > 1) {
        sent.skipped = static_cast<uint32_t>(below(packets));
        packets -= sent.skipped;
      }
      if (i > before && below(6) == 0) {
        sent.marker_add(i, sent.from);
        at++;
      }
      entries.push_back({at, at + packets, opcode == IBV_WR_RDMA_WRITE});
      at += packets;
    }
    const uint64_t first = before + below(count);
    const uint64_t reached = std::max(entries[first - before].begin, below(at + 1));
    Executed expected{first, first == before ? sent.skipped : 0};
    for (uint64_t i = first; i < before + count; i++) {
      const Entry& entry = entries[i - before];
      if (entry.end <= reached) {
        expected = {i + 1, 0};
      } else if (entry.begin < reached && entry.is_write) {
        expected.packets += static_cast<uint32_t>(reached - entry.begin);
      }
    }
    const auto found = executed_before(journal, sent, first, journal.head(),
                                       (sent.begin + static_cast<uint32_t>(reached)) & kPsnMask);
    ASSERT_TRUE(found);
    ASSERT_EQ(found->position, expected.position) << "round " << round;
    ASSERT_EQ(found->packets, expected.packets) << "round " << round;
    // A packet that was never sent cannot have been executed (C11).
    EXPECT_FALSE(executed_before(journal, sent, first, journal.head(),
                                 (sent.begin + static_cast<uint32_t>(at) + 1) & kPsnMask));
  }
}

TEST(Packets, MoreThanHalfOfAllNumbersUnderWayProveNothing) {
  SendJournal journal;
  journal.init(16, 2, 64, false);
  journal.count_packets(kMtu);
  const SentPackets sent{.known = true};
  ibv_sge sge{0x5000, 1u << 31, kLkey};
  for (int i = 0; i < 4; i++) journal.add(make_wr(1, IBV_WR_RDMA_WRITE, &sge));
  EXPECT_TRUE(executed_before(journal, sent, 0, 3, 5));
  EXPECT_FALSE(executed_before(journal, sent, 0, 4, 5)) << "2^23 packets";
}

class Asking : public ::testing::Test {
 protected:
  explicit Asking(Mode mode) { asks(*group_, mode); }
  static void asks(Group& group, Mode mode) {
    group.mode = mode;
    group.send.journal.count_packets(kMtu);
    group.send.sent = {.known = true, .begin = kFirstPsn, .psn = kFirstPsn};
    for (int member : {kBackup, kThird}) {
      group.life.members[member].path_mtu = kMtu;
      group.life.members[member].last_psn = kBackupPsn;
      group.life.members[member].own_packets = 1;  // the probe
      group.life.remote_keys[member][kRkey] = rkey_on(member, kRkey);
    }
  }
  FakeQp& on(int member) { return World::fake(group_, member); }
  void post(uint64_t id, ibv_wr_opcode opcode, uint32_t length = 8) {
    ibv_sge sge{0x5000, length, kLkey};
    post_send(*group_, make_wr(id, opcode, &sge));
  }
  // Does a round. `received` is the peer's counter, `packets` how many packets of the connection
  // the peer has executed.
  ReplayResult round(uint64_t received, std::optional<uint32_t> packets, int member = kBackup) {
    const uint32_t begin = group_->send.sent.begin;
    leave_for(*group_, member, member);
    group_->life.control.peer_responder.reset();
    if (packets) group_->life.control.peer_responder = (begin + *packets) & kPsnMask;
    return replay(*group_, received);
  }
  void finish(int member) {
    while (on(member).complete_send()) {
    }
  }

  World world_;
  CompletionQueue* cq_ = world_.make_cq();
  Group* group_ = world_.make_group(cq_);
};

// What both modes have in common is tried with either.
class Exact : public Asking, public ::testing::WithParamInterface<Mode> {
 protected:
  Exact() : Asking(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(, Exact, ::testing::Values(Mode::kExact, Mode::kAuto),
                         [](const auto& mode) {
                           return mode.param == Mode::kAuto ? "Auto" : "Exact";
                         });

TEST_P(Exact, WhatWasExecutedIsCompletedAndNotRepeated) {
  for (uint64_t id = 1; id <= 4; id++) post(id, IBV_WR_RDMA_WRITE, 2 * kMtu);
  const auto result = round(0, 6);
  ASSERT_EQ(result.refusal, nullptr);
  EXPECT_EQ(result.completed, 3u);
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{1, 2, 3}));
  EXPECT_EQ(posted_ids(on(kBackup), *group_), (Ids{4}));
}

// When a WRITE was executed in part, only its rest runs: the application may have seen its
// beginning.
TEST_P(Exact, AWriteGoesOnInItsMiddle) {
  ibv_sge sges[2] = {{0x5000, kMtu + 100, kLkey}, {0x9000, 3 * kMtu, kLkey}};
  post_send(*group_, make_wr(1, IBV_WR_RDMA_WRITE, sges, 2));
  post(2, IBV_WR_RDMA_WRITE);
  ASSERT_EQ(round(0, 2).refusal, nullptr);
  ASSERT_EQ(posted_ids(on(kBackup), *group_), (Ids{1, 2}));
  const PostedSend& rest = on(kBackup).sends[0];
  EXPECT_EQ(rest.wr.wr.rdma.remote_addr, 0x9000u + 2 * kMtu);
  ASSERT_EQ(rest.sges.size(), 1u);
  EXPECT_EQ(rest.sges[0].addr, 0x9000u + kMtu - 100);
  EXPECT_EQ(rest.sges[0].length, 2 * kMtu + 100);
  EXPECT_EQ(on(kBackup).sends[1].sges.at(0).length, 8u);
  // Another fault: the peer has executed the probe and one further packet of the WRITE.
  ASSERT_EQ(round(0, 1 + 1, kThird).refusal, nullptr);
  ASSERT_EQ(posted_ids(on(kThird), *group_), (Ids{1, 2}));
  EXPECT_EQ(on(kThird).sends[0].wr.wr.rdma.remote_addr, 0x9000u + 3 * kMtu);
  EXPECT_EQ(on(kThird).sends[0].sges.at(0).length, kMtu + 100);
}

// Its completion at the peer says how long it was, so it must run as a whole.
TEST_P(Exact, ANotificationRunsAgainAsAWhole) {
  post(1, IBV_WR_RDMA_WRITE_WITH_IMM, 4 * kMtu);
  ASSERT_EQ(round(0, 2).refusal, nullptr);
  EXPECT_EQ(on(kBackup).sends.at(0).sges.at(0).length, 4 * kMtu);
  ASSERT_EQ(round(0, 1 + 4 - 1, kThird).refusal, nullptr);
  EXPECT_EQ(on(kThird).sends.at(0).sges.at(0).length, 4 * kMtu);
}

TEST_P(Exact, AnAtomicThatWasNotExecutedRunsOnTheOtherPath) {
  post(1, IBV_WR_RDMA_WRITE);
  post(2, IBV_WR_ATOMIC_FETCH_AND_ADD);
  post(3, IBV_WR_ATOMIC_CMP_AND_SWP);
  ASSERT_EQ(round(0, 1).refusal, nullptr);
  EXPECT_EQ(posted_ids(on(kBackup), *group_), (Ids{2, 3}));
  finish(kBackup);
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{1, 2, 3}));
}

// C5: the atomic must not run twice, and the value that it found is lost.
TEST_P(Exact, AnAtomicWhoseResultIsLostGetsTheOriginalError) {
  post(1, IBV_WR_RDMA_WRITE);
  post(2, IBV_WR_ATOMIC_FETCH_AND_ADD);
  post(3, IBV_WR_RDMA_WRITE);
  EXPECT_NE(round(0, 2).refusal, nullptr);
  EXPECT_TRUE(on(kBackup).sends.empty());
  fail(*group_);
  const auto completions = poll_all(cq_);
  ASSERT_EQ(wr_ids(completions), (Ids{1, 2, 3}));
  EXPECT_EQ(completions[0].status, IBV_WC_SUCCESS) << "proven executed";
  EXPECT_EQ(completions[1].status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(completions[2].status, IBV_WC_WR_FLUSH_ERR);
}

class ExactOnly : public Asking {
 protected:
  ExactOnly() : Asking(Mode::kExact) {}
};

// C6: if the receiver's NIC has died, the peer sends no PSN.
TEST_F(ExactOnly, WithoutAWordAnUncoveredWriteGetsTheOriginalError) {
  for (ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    // This holds after a notification, too: it may have been executed, and its completion lost.
    for (bool behind : {false, true}) {
      World world;
      CompletionQueue* cq = world.make_cq();
      Group* group = world.make_group(cq);
      group->mode = Mode::kExact;
      group->send.journal.count_packets(kMtu);
      group->send.sent = {.known = true, .begin = kFirstPsn, .psn = kFirstPsn};
      post_send(*group, 1, IBV_WR_RDMA_WRITE);
      post_send(*group, 2, IBV_WR_SEND);
      if (behind) post_send(*group, 3, IBV_WR_SEND);
      post_send(*group, 4, opcode);
      leave_for(*group, kBackup, kBackup);
      group->life.remote_keys[kBackup][kRkey] = kBackupRkey;
      EXPECT_NE(replay(*group, 1).refusal, nullptr) << opcode << behind;
      EXPECT_TRUE(World::fake(group, kBackup).sends.empty());
      fail(*group);
      const auto completions = poll_all(cq);
      ASSERT_GE(completions.size(), 3u);
      EXPECT_EQ(completions[0].status, IBV_WC_SUCCESS) << "what is proven is a success";
      EXPECT_EQ(completions[1].status, IBV_WC_SUCCESS);
      EXPECT_EQ(completions[2].status, IBV_WC_RETRY_EXC_ERR);
    }
  }
}

TEST_P(Exact, WithoutAWordWhatDoesNoHarmRunsAgain) {
  post(1, IBV_WR_RDMA_READ);
  post(2, IBV_WR_SEND);
  post(3, IBV_WR_RDMA_WRITE, 0);
  ASSERT_EQ(round(0, std::nullopt).refusal, nullptr);
  EXPECT_EQ(posted_ids(on(kBackup), *group_), (Ids{1, 2, 3}));
}

TEST_P(Exact, WhatWasOnlyParkedNeedsNoWord) {
  ASSERT_TRUE(fence({group_})[0]);
  park_send(*group_, 1, IBV_WR_ATOMIC_FETCH_AND_ADD);
  ASSERT_EQ(commit(*group_, kBackup, kBackup), Commit::kDone);
  ASSERT_EQ(replay(*group_, 0).refusal, nullptr);
  EXPECT_EQ(posted_ids(on(kBackup), *group_), (Ids{1}));
}

// The peer's counter and its PSN must agree.
TEST_P(Exact, ACounterThatContradictsThePacketNumberIsRefused) {
  for (const auto& [received, packets] : {std::pair{0u, 2u}, {1u, 1u}, {2u, 2u}}) {
    World world;
    Group* group = world.make_group(world.make_cq());
    group->mode = GetParam();
    group->send.journal.count_packets(kMtu);
    group->send.sent = {.known = true};
    post_send(*group, 1, IBV_WR_RDMA_WRITE);
    post_send(*group, 2, IBV_WR_SEND);
    post_send(*group, 3, IBV_WR_SEND);
    leave_for(*group, kBackup, kBackup);
    group->life.remote_keys[kBackup][kRkey] = kBackupRkey;
    group->life.control.peer_responder = packets;
    EXPECT_NE(replay(*group, received).refusal, nullptr) << received << " " << packets;
    EXPECT_TRUE(World::fake(group, kBackup).sends.empty());
  }
}

// At a second fault the backup's receiver sends no PSN: what the first one proved stays proven.
TEST_P(Exact, WhatOnceWasProvenStaysSo) {
  post(1, IBV_WR_RDMA_READ);
  post(2, IBV_WR_RDMA_WRITE);
  post(3, IBV_WR_SEND);
  ASSERT_EQ(round(0, 2).refusal, nullptr);
  // The READ runs again, then a stand-in for the WRITE, then the SEND.
  EXPECT_EQ(posted_ids(on(kBackup), *group_), (Ids{1, 2, 3}));
  ASSERT_EQ(round(0, std::nullopt, kThird).refusal, nullptr) << "the WRITE was executed";
  EXPECT_EQ(on(kThird).sends.at(1).sges.size(), 0u) << "a stand-in, not the WRITE";
}

// The repeated READ and its stand-ins take packet numbers, too.
TEST_P(Exact, WhatRunsBeforeTheRestIsCounted) {
  post(1, IBV_WR_RDMA_READ, 3 * kMtu);
  post(2, IBV_WR_RDMA_WRITE);
  post(3, IBV_WR_RDMA_WRITE);
  post(4, IBV_WR_RDMA_WRITE);
  ASSERT_EQ(round(0, 4).refusal, nullptr);
  // These are the probe, the READ, the stand-in and the third request.
  ASSERT_EQ(round(0, 1 + 3 + 1 + 1, kThird).refusal, nullptr);
  ASSERT_EQ(on(kThird).sends.size(), 4u);
  EXPECT_TRUE(on(kThird).sends[2].sges.empty()) << "executed: a stand-in";
  EXPECT_FALSE(on(kThird).sends[3].sges.empty()) << "not executed: the WRITE";
}

TEST_P(Exact, APathWithOtherPacketsProvesNothing) {
  post(1, IBV_WR_SEND);
  group_->life.members[kBackup].path_mtu = 256;
  ASSERT_EQ(round(0, 0).refusal, nullptr);
  {
    std::lock_guard lock(group_->send.mutex);
    ibv_sge sge{0x5000, 8, kLkey};
    group_->send.journal.add(make_wr(2, IBV_WR_RDMA_WRITE, &sge));
    ASSERT_EQ(pump(*group_), 0);
  }
  // In the mode auto the WRITE runs again.
  EXPECT_EQ(round(0, 1, kThird).refusal == nullptr, GetParam() == Mode::kAuto);
}

// More packets are under way than numbers can tell apart.
TEST_P(Exact, ANumberThatMayBeAnotherProvesNothing) {
  for (uint64_t id = 1; id <= 4; id++) post(id, IBV_WR_RDMA_WRITE, 1u << 31);
  EXPECT_EQ(round(0, 5).refusal == nullptr, GetParam() == Mode::kAuto);
  const Ids all = GetParam() == Mode::kAuto ? Ids{1, 2, 3, 4} : Ids{};
  EXPECT_EQ(posted_ids(on(kBackup), *group_), all);
}

// ---- the mode auto, when nothing is known

class Auto : public Asking {
 protected:
  Auto() : Asking(Mode::kAuto) {}
};

// Its notification covers the first WRITE. The others run again, as in the mode relaxed.
TEST_F(Auto, WithoutAWordUncoveredWritesRunAgain) {
  post(1, IBV_WR_RDMA_WRITE);
  post(2, IBV_WR_SEND);
  post(3, IBV_WR_RDMA_WRITE);
  post(4, IBV_WR_SEND);
  post(5, IBV_WR_RDMA_WRITE);
  ASSERT_EQ(round(1, std::nullopt).refusal, nullptr);
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{1, 2}));
  EXPECT_EQ(posted_ids(on(kBackup), *group_), (Ids{3, 4, 5}));
}

// C5: what is proven executed completes with success, and the atomic gets the original error.
TEST_F(Auto, WithoutAWordAnAtomicUnderWayGetsTheOriginalError) {
  post(1, IBV_WR_SEND);
  post(2, IBV_WR_ATOMIC_FETCH_AND_ADD);
  EXPECT_NE(round(1, std::nullopt).refusal, nullptr);
  EXPECT_TRUE(on(kBackup).sends.empty());
  fail(*group_);
  const auto completions = poll_all(cq_);
  ASSERT_EQ(wr_ids(completions), (Ids{1, 2}));
  EXPECT_EQ(completions[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(completions[1].status, IBV_WC_RETRY_EXC_ERR);
}

// A word that was heard counts for good: no later silence makes what was executed run again.
TEST_F(Auto, WhatOnceWasProvenStaysSoInSilence) {
  post(1, IBV_WR_RDMA_WRITE, 4 * kMtu);
  post(2, IBV_WR_RDMA_WRITE);
  ASSERT_EQ(round(0, 2).refusal, nullptr);
  ASSERT_EQ(round(0, std::nullopt, kThird).refusal, nullptr);
  ASSERT_EQ(posted_ids(on(kThird), *group_), (Ids{1, 2}));
  EXPECT_EQ(on(kThird).sends[0].wr.wr.rdma.remote_addr, 0x9000u + 2 * kMtu);
  EXPECT_EQ(on(kThird).sends[0].sges.at(0).length, 2 * kMtu);
}

// After a fault of which nothing was known, the packets of the new path are counted again.
TEST_F(Auto, AfterSilenceTheNextWordCounts) {
  post(1, IBV_WR_RDMA_WRITE, 2 * kMtu);
  post(2, IBV_WR_RDMA_WRITE);
  ASSERT_EQ(round(0, std::nullopt).refusal, nullptr);
  EXPECT_EQ(posted_ids(on(kBackup), *group_), (Ids{1, 2}));
  // The probe, and the first WRITE.
  ASSERT_EQ(round(0, 1 + 2, kThird).refusal, nullptr);
  EXPECT_EQ(wr_ids(poll_all(cq_)), (Ids{1}));
  EXPECT_EQ(posted_ids(on(kThird), *group_), (Ids{2}));
}

// A number that cannot be is no silence.
TEST_F(Auto, AContradictionIsRefused) {
  post(1, IBV_WR_RDMA_WRITE);
  EXPECT_NE(round(0, 2).refusal, nullptr);
  EXPECT_TRUE(on(kBackup).sends.empty());
}

// ---- the other end: the PSN that its fence finds

TEST_P(Exact, TheFenceTellsTheResponderToWhoAsks) {
  for (bool asks : {false, true}) {
    for (int error : {0, EIO}) {
      World world;
      Group* group = world.make_group(world.make_cq());
      group->life.control.asks_responder = asks;
      World::fake(group, kDefault).expected_psn = 0xabcdef;
      World::fake(group, kDefault).query_error = error;
      Group* const self = group;
      park({&self, 1});
      Fence shut({group}, kPatience);
      while (!shut.step(Clock::now())) {
      }
      const auto& told = shut.entries()[0].responder;
      EXPECT_EQ(told.has_value(), asks && error == 0);
      if (told) {
        EXPECT_EQ(*told, 0xabcdefu);
      }
    }
  }
}

TEST_P(Exact, ADeadDeviceTellsNothing) {
  group_->life.control.asks_responder = true;
  world_.context.members[kDefault].dead = true;
  park({&group_, 1});
  Fence shut({group_}, kPatience);
  while (!shut.step(Clock::now())) {
  }
  EXPECT_EQ(shut.entries()[0].result, Fence::Result::kProven);
  EXPECT_FALSE(shut.entries()[0].responder);
}

// C4: the QP's PSN belongs to a connection that RESET has ended.
TEST_P(Exact, AQueuePairThatWasResetTellsNothing) {
  World world;
  World::Options options;
  options.srq = world.make_srq(8);
  CompletionQueue* cq = world.make_cq();
  Group* group = world.make_group(cq, cq, options);
  group->life.control.asks_responder = true;
  group->context->members[kDefault].is_soft_roce = world.nic(kDefault).is_soft_roce = true;
  World::fake(group, kDefault).expected_psn = 0xabcdef;
  Group* const self = group;
  park({&self, 1});
  Fence shut({group}, kPatience);
  while (!shut.step(Clock::now())) {
  }
  EXPECT_EQ(shut.entries()[0].result, Fence::Result::kProven);
  EXPECT_FALSE(shut.entries()[0].responder);
}

}  // namespace
}  // namespace shift::group
