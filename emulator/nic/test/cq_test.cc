// Completion queues: entries as libmlx5 reads them, overrun, and events.
#include "nic/cq.h"

#include <gtest/gtest.h>

#include "rig.h"

namespace cxemu::test {
namespace {

class CqTest : public ::testing::Test {
 protected:
  explicit CqTest(uint32_t cqe_size = 64) : buffer_(kCount * cqe_size), cq_(config(cqe_size), 3) {}

  CqConfig config(uint32_t cqe_size) {
    return {.buffer = buffer_.data(),
            .db = db_,
            .cqe_count = kCount,
            .cqe_size = cqe_size,
            .user_handle = 42,
            .channel_fd = 7,
            .sink = &events_};
  }
  void arm(uint32_t sn, bool solicited_only, uint32_t consumer) {
    db_[1] = htobe32(sn << 28 | (solicited_only ? 1u << 24 : 0) | consumer);
  }
  bool write(bool solicited = false) {
    return cq_.write({.opcode = kCqeRecvSend, .solicited = solicited}, 0);
  }

  static constexpr uint32_t kCount = 8;
  std::vector<uint8_t> buffer_;
  alignas(8) volatile uint32_t db_[2] = {};
  Events events_;
  Cq cq_;
};

class WideCqTest : public CqTest {
 protected:
  WideCqTest() : CqTest(128) {}
};

TEST_F(CqTest, NothingIsValidAtFirst) {
  for (uint32_t i = 0; i < kCount; i++) EXPECT_EQ(buffer_[i * 64 + 63] >> 4, kCqeInvalid);
}

TEST_F(CqTest, OwnerBitTurnsWithEveryRound) {
  for (uint32_t i = 0; i < 3 * kCount; i++) {
    db_[0] = htobe32(i);
    ASSERT_TRUE(cq_.write({.opcode = kCqeRecvSendImm,
                           .wqe_counter = static_cast<uint16_t>(i),
                           .qpn = 0x12345,
                           .uidx = 9,
                           .byte_count = 77,
                           .imm_be = 0x01020304,
                           .remote_qpn = 0x54321},
                          1234));
    const auto* cqe = reinterpret_cast<const CqeLayout*>(buffer_.data() + i % kCount * 64);
    EXPECT_EQ(cqe->opcode_owner, kCqeRecvSendImm << 4 | ((i / kCount) & 1));
    EXPECT_EQ(be16toh(cqe->wqe_counter), i);
    EXPECT_EQ(be32toh(cqe->wqe_opcode_qpn), 0x12345u);
    EXPECT_EQ(be32toh(cqe->srqn_uidx), 9u);
    EXPECT_EQ(be32toh(cqe->byte_count), 77u);
    EXPECT_EQ(be32toh(cqe->flags_rqpn), 0x54321u);
    EXPECT_EQ(cqe->imm, 0x01020304u);
    EXPECT_EQ(be64toh(cqe->timestamp), 1234u);
  }
}

TEST_F(CqTest, DatagramsTellWhatTheirHeaderIs) {
  ASSERT_TRUE(cq_.write(
      {.opcode = kCqeRecvSend, .remote_qpn = 0x54321, .grh = true, .packet = kCqePacketRoceV2Ipv4},
      0));
  const auto* cqe = reinterpret_cast<const CqeLayout*>(buffer_.data());
  EXPECT_EQ(be32toh(cqe->flags_rqpn), 0x1a054321u);
}

TEST_F(WideCqTest, EntryIsTheSecondHalf) {
  ASSERT_TRUE(write());
  EXPECT_EQ(buffer_[127] >> 4, kCqeRecvSend);
  EXPECT_EQ(buffer_[255] >> 4, kCqeInvalid);
}

TEST_F(CqTest, ErrorEntryHasBothSyndromes) {
  ASSERT_TRUE(cq_.write({.opcode = kCqeRequesterError, .syndrome = kSyndromeFlush}, 0));
  EXPECT_EQ(buffer_[54], 0xf9);
  EXPECT_EQ(buffer_[55], 5);
}

TEST_F(CqTest, OverrunIsReportedOnceAndEndsTheQueue) {
  for (uint32_t i = 0; i < kCount; i++) ASSERT_TRUE(write());
  EXPECT_FALSE(write());
  db_[0] = htobe32(kCount);
  EXPECT_FALSE(write()) << "entries are missing: the queue stays dead";
  EXPECT_EQ(events_.async, (std::vector<Events::Async>{{IBV_EVENT_CQ_ERR, 42}}));
  EXPECT_EQ(cq_.async_events(), 1u);
}

TEST_F(CqTest, FirstArmValueMayBeZero) {
  ASSERT_TRUE(write());
  EXPECT_TRUE(events_.completions.empty()) << "not armed";
  arm(0, false, 0);
  ASSERT_EQ(db_[1], 0u);
  EXPECT_TRUE(cq_.event_check());
  EXPECT_EQ(events_.completions, std::vector<uint64_t>{42});
}

TEST_F(CqTest, OneEventForOneArm) {
  arm(0, false, 0);
  EXPECT_FALSE(cq_.event_check()) << "nothing came yet";
  ASSERT_TRUE(write());
  ASSERT_TRUE(write());
  EXPECT_FALSE(cq_.event_check());
  EXPECT_EQ(cq_.comp_events(), 1u);
  arm(1, false, 2);
  EXPECT_FALSE(cq_.event_check()) << "armed behind what came";
  ASSERT_TRUE(write());
  EXPECT_EQ(cq_.comp_events(), 2u);
}

TEST_F(CqTest, ArmBehindAnEntryThatCameMeanwhileFiresAtOnce) {
  ASSERT_TRUE(write());
  ASSERT_TRUE(write());
  arm(0, false, 1);
  EXPECT_TRUE(cq_.event_check());
}

TEST_F(CqTest, ArmBeforeTakingTheEntryRaisesNoSecondEvent) {
  arm(0, false, 0);
  ASSERT_TRUE(write());
  EXPECT_EQ(cq_.comp_events(), 1u);
  arm(1, false, 0);
  EXPECT_FALSE(cq_.event_check());
  ASSERT_TRUE(write());
  EXPECT_EQ(cq_.comp_events(), 2u);
}

TEST_F(CqTest, SolicitedArmWaitsForSolicitedOrError) {
  arm(0, true, 0);
  ASSERT_TRUE(write());
  EXPECT_EQ(cq_.comp_events(), 0u);
  ASSERT_TRUE(write(true));
  EXPECT_EQ(cq_.comp_events(), 1u);
  arm(1, true, 2);
  ASSERT_TRUE(write());
  EXPECT_FALSE(cq_.event_check()) << "the solicited one was before the arm";
  ASSERT_TRUE(cq_.write({.opcode = kCqeResponderError, .syndrome = kSyndromeFlush}, 0));
  EXPECT_EQ(cq_.comp_events(), 2u);
}

TEST_F(CqTest, EventAfterLongPollingWithoutAny) {
  // Beyond half, and beyond all, of the range that a doorbell's 24 bits can represent.
  uint32_t written = 0;
  for (const uint32_t target : {(1u << 23) + 5, (1u << 24) + 5}) {
    for (; written < target; written++) {
      db_[0] = htobe32(written & 0xffffff);
      ASSERT_TRUE(write());
    }
    const uint32_t events = cq_.comp_events();
    arm(events & 3, true, written & 0xffffff);
    EXPECT_FALSE(cq_.event_check());
    arm(events & 3, false, written & 0xffffff);
    EXPECT_FALSE(cq_.event_check());
    arm(events & 3, false, (written - 1) & 0xffffff);
    EXPECT_TRUE(cq_.event_check());
  }
}

TEST_F(CqTest, SolicitedArmCanBeWidened) {
  arm(0, true, 0);
  ASSERT_TRUE(write());
  arm(0, false, 0);
  EXPECT_TRUE(cq_.event_check());
}

class ResizeTest : public CqTest {
 protected:
  bool resize(uint32_t count) {
    next_.assign(size_t{count} * 64, 0);
    return cq_.resize(next_.data(), count, 64);
  }
  std::vector<uint8_t> next_;
};

TEST_F(ResizeTest, OldRingEndsInAMarkAndTheNewOneGoesOnBehindIt) {
  for (uint32_t i = 0; i < 9; i++) {  // into the second round
    db_[0] = htobe32(i);
    ASSERT_TRUE(write());
  }
  db_[0] = htobe32(7);  // two are left
  ASSERT_TRUE(resize(4));
  EXPECT_EQ(buffer_[9 % kCount * 64 + 63], kCqeResize << 4 | 1) << "owned like its place";
  // The application copies the two left entries to slots 8 and 9, so the next is slot 10, in the
  // third round.
  ASSERT_TRUE(cq_.write({.opcode = kCqeRecvSend, .byte_count = 77}, 0));
  const auto* cqe = reinterpret_cast<const CqeLayout*>(next_.data() + 10 % 4 * 64);
  EXPECT_EQ(cqe->opcode_owner, kCqeRecvSend << 4 | 0);
  EXPECT_EQ(be32toh(cqe->byte_count), 77u);
}

TEST_F(ResizeTest, RefusesARingThatIsTooSmall) {
  for (uint32_t i = 0; i < 4; i++) ASSERT_TRUE(write());
  EXPECT_FALSE(resize(4)) << "four entries and the mark";
  ASSERT_TRUE(write());
  EXPECT_EQ(buffer_[4 * 64 + 63], kCqeRecvSend << 4) << "went on in the old ring";
  EXPECT_TRUE(resize(16));
}

TEST_F(ResizeTest, RefusesWhenThereIsNoPlaceForTheMark) {
  for (uint32_t i = 0; i < kCount; i++) ASSERT_TRUE(write());
  EXPECT_FALSE(resize(64));
}

TEST_F(ResizeTest, NewRingHoldsAllItPromises) {
  ASSERT_TRUE(write());
  ASSERT_TRUE(resize(16));
  for (uint32_t i = 0; i < 14; i++) ASSERT_TRUE(write());  // 15 with the copied entry
  EXPECT_TRUE(events_.async.empty());
}

TEST_F(ResizeTest, MarkRaisesNoEvent) {
  arm(0, false, 0);
  ASSERT_TRUE(resize(16));
  EXPECT_FALSE(cq_.event_check());
  ASSERT_TRUE(write());
  EXPECT_EQ(events_.completions.size(), 1u) << "but what comes then does";
}

TEST_F(ResizeTest, EventOfWhatWasLeftIsNotLost) {
  ASSERT_TRUE(write(true));
  ASSERT_TRUE(resize(16));
  arm(1, true, 1);  // the application counted the mark
  EXPECT_TRUE(cq_.event_check());
}

TEST_F(ResizeTest, WhatHadItsEventHasNoOther) {
  arm(0, false, 0);
  ASSERT_TRUE(write());
  EXPECT_EQ(events_.completions.size(), 1u);
  ASSERT_TRUE(resize(16));
  arm(1, false, 1);
  EXPECT_FALSE(cq_.event_check());
}

TEST_F(CqTest, OverrunCanBeIgnored) {
  CqConfig permissive = config(64);
  permissive.ignore_overrun = true;
  Cq cq(permissive, 4);
  for (uint32_t i = 0; i < 3 * kCount; i++) ASSERT_TRUE(cq.write({.opcode = kCqeRecvSend}, 0));
  EXPECT_TRUE(events_.async.empty());
}

}  // namespace
}  // namespace cxemu::test
