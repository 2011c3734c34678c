// WQE decoding: what libmlx5 writes is decoded, also across the end of the ring; malformed WQEs are
// refused without reading outside the ring.
#include "nic/wqe.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "nic/mlx5_layout.h"

namespace cxemu {
namespace {

constexpr uint32_t kBlocks = 16;

class WqeTest : public ::testing::Test {
 protected:
  // Writes bytes at block `index`, across the end of the ring.
  void put(uint16_t index, const std::vector<uint8_t>& bytes) {
    for (size_t i = 0; i < bytes.size(); i++) {
      ring_[((index % kBlocks) * 64 + i) % ring_.size()] = bytes[i];
    }
  }
  template <typename T>
  static void append(std::vector<uint8_t>* to, const T& value) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    to->insert(to->end(), bytes, bytes + sizeof value);
  }
  static std::vector<uint8_t> ctrl(uint16_t index, uint8_t opcode, uint32_t segments,
                                   uint8_t flags = 0) {
    CtrlSegment ctrl = {};
    ctrl.opmod_idx_opcode = htobe32(uint32_t{index} << 8 | opcode);
    ctrl.qpn_ds = htobe32(0x1234 << 8 | segments);
    ctrl.fm_ce_se = flags;
    ctrl.imm = 0x01020304;
    std::vector<uint8_t> bytes;
    append(&bytes, ctrl);
    return bytes;
  }
  static DataSegment data(uint64_t address, uint32_t length, uint32_t lkey) {
    return {htobe32(length), htobe32(lkey), htobe64(address)};
  }
  WqeError decode(uint16_t index, uint32_t posted = kBlocks) {
    return send_wqe_decode({ring_.data(), kBlocks}, index, posted, &wqe_);
  }

  std::vector<uint8_t> ring_ = std::vector<uint8_t>(kBlocks * 64);
  SendWqe wqe_;
};

TEST_F(WqeTest, WriteOverTheEndOfTheRing) {
  const uint16_t index = 0xfffe;  // block 14 of 16; the WQE's third block is block 0
  auto bytes = ctrl(index, kWqeWriteImm, 2 + 8, 2 << 2 | 2);
  append(&bytes, RemoteSegment{htobe64(0x1111222233334444), htobe32(0x55), 0});
  for (uint32_t i = 0; i < 8; i++) append(&bytes, data(0x1000 * i, 100 + i, i));
  put(index, bytes);
  ASSERT_EQ(decode(index), WqeError::kNone);
  EXPECT_EQ(wqe_.opcode, kWqeWriteImm);
  EXPECT_EQ(wqe_.blocks, 3);
  EXPECT_TRUE(wqe_.signaled);
  EXPECT_TRUE(wqe_.solicited);
  EXPECT_FALSE(wqe_.fence_reads);
  EXPECT_EQ(wqe_.imm_be, 0x01020304u);
  EXPECT_EQ(wqe_.remote_address, 0x1111222233334444u);
  EXPECT_EQ(wqe_.rkey, 0x55u);
  ASSERT_EQ(wqe_.part_count, 8u);
  EXPECT_EQ(wqe_.part[7].address, 0x7000u);
  EXPECT_EQ(wqe_.part[7].length, 107u);
  EXPECT_EQ(wqe_.part[7].lkey, 7u);
  EXPECT_EQ(wqe_.length, 8 * 100u + 28);
}

TEST_F(WqeTest, InlineDataOverTheEndOfTheRing) {
  const uint16_t index = 15;
  auto bytes = ctrl(index, kWqeSend, 1 + 7);
  append(&bytes, htobe32(100u | kInlineFlag));
  for (uint8_t i = 0; i < 100; i++) bytes.push_back(i);
  put(index, bytes);
  ASSERT_EQ(decode(index), WqeError::kNone);
  ASSERT_EQ(wqe_.part_count, 1u);
  EXPECT_EQ(wqe_.length, 100u);
  EXPECT_EQ(wqe_.blocks, 2);
  uint8_t got[100];
  ring_copy({ring_.data(), kBlocks}, wqe_.part[0].address, got, 100);
  for (uint8_t i = 0; i < 100; i++) EXPECT_EQ(got[i], i);
}

TEST_F(WqeTest, AtomicHasOperands) {
  auto bytes = ctrl(0, kWqeCompareSwap, 4);
  append(&bytes, RemoteSegment{htobe64(8), htobe32(9), 0});
  append(&bytes, AtomicSegment{htobe64(10), htobe64(11)});
  append(&bytes, data(12, 8, 13));
  put(0, bytes);
  ASSERT_EQ(decode(0), WqeError::kNone);
  EXPECT_EQ(wqe_.swap_or_add, 10u);
  EXPECT_EQ(wqe_.compare, 11u);
  EXPECT_EQ(wqe_.length, 8u);
}

TEST_F(WqeTest, FlagsOfTheControlSegment) {
  struct Case {
    uint8_t flags;
    bool signaled, fence;
  };
  for (const Case& c :
       {Case{0, false, false}, Case{1 << 2, false, false}, Case{2 << 2, true, false},
        Case{3 << 2, true, false}, Case{1 << 5, false, false}, Case{4 << 5, false, true},
        Case{2 << 5, false, true}}) {
    auto bytes = ctrl(3, kWqeSend, 1, c.flags);
    put(3, bytes);
    ASSERT_EQ(decode(3), WqeError::kNone);
    EXPECT_EQ(wqe_.signaled, c.signaled) << int{c.flags};
    EXPECT_EQ(wqe_.fence_reads, c.fence) << int{c.flags};
    EXPECT_EQ(wqe_.length, 0u);
  }
}

TEST_F(WqeTest, ZeroByteCountMeansTwoGigabytes) {
  auto bytes = ctrl(0, kWqeSend, 2);
  append(&bytes, data(0, 0, 1));
  put(0, bytes);
  ASSERT_EQ(decode(0), WqeError::kNone);
  EXPECT_EQ(wqe_.length, uint64_t{1} << 31);
  bytes = ctrl(0, kWqeSend, 3);
  append(&bytes, data(0, 0, 1));
  append(&bytes, data(0, 1, 1));
  put(0, bytes);
  EXPECT_EQ(decode(0), WqeError::kBadSegments) << "beyond the largest message";
}

TEST_F(WqeTest, MalformedIsRefused) {
  put(0, ctrl(0, kWqeSend, 0));
  EXPECT_EQ(decode(0), WqeError::kBadLength);
  EXPECT_EQ(wqe_.blocks, 0);
  put(0, ctrl(0, kWqeSend, 5));
  EXPECT_EQ(decode(0, 1), WqeError::kBadLength) << "longer than what was posted";
  put(0, ctrl(1, kWqeSend, 1));
  EXPECT_EQ(decode(0), WqeError::kBadIndex);
  EXPECT_EQ(wqe_.blocks, 0);
  for (int opcode : {0x0e, 0x1b, 0x26, 0xff}) {
    put(0, ctrl(0, static_cast<uint8_t>(opcode), 1));
    EXPECT_EQ(decode(0), WqeError::kBadOpcode) << opcode;
    EXPECT_EQ(wqe_.blocks, 1) << "the ring can still be walked";
  }
  put(0, ctrl(0, kWqeWrite, 1));
  EXPECT_EQ(decode(0), WqeError::kBadSegments) << "no remote segment";
  put(0, ctrl(0, kWqeFetchAdd, 2));
  EXPECT_EQ(decode(0), WqeError::kBadSegments) << "no operands";
  auto bytes = ctrl(0, kWqeSend, 2);
  append(&bytes, htobe32(13u | kInlineFlag));
  put(0, bytes);
  EXPECT_EQ(decode(0), WqeError::kBadSegments) << "inline data beyond the WQE";
  bytes = ctrl(0, kWqeSend, 2);
  append(&bytes, 0xffffffffu);
  put(0, bytes);
  EXPECT_EQ(decode(0), WqeError::kBadSegments) << "absurd inline length";
  bytes = ctrl(0, kWqeRead, 3);
  append(&bytes, RemoteSegment{});
  append(&bytes, htobe32(8u | kInlineFlag));
  put(0, bytes);
  EXPECT_EQ(decode(0), WqeError::kBadSegments) << "READ into the ring";
  put(0, ctrl(0, kWqeUmr, 7));
  EXPECT_EQ(decode(0), WqeError::kBadSegments) << "no key";
  bytes = ctrl(0, kWqeFetchAdd, 4);
  append(&bytes, RemoteSegment{});
  append(&bytes, AtomicSegment{});
  append(&bytes, data(0, 4, 1));
  put(0, bytes);
  EXPECT_EQ(decode(0), WqeError::kBadSegments) << "atomic of four bytes";
}

TEST_F(WqeTest, RandomRingsGiveBoundedResults) {
  std::mt19937_64 random(3);
  int good = 0;
  for (int i = 0; i < 50'000; i++) {
    for (uint8_t& byte : ring_) byte = static_cast<uint8_t>(random());
    const auto index = static_cast<uint16_t>(random());
    static constexpr uint8_t kOpcodes[] = {kWqeSend,     kWqeWrite, kWqeRead,
                                           kWqeFetchAdd, kWqeNop,   kWqeUmr};
    put(index, ctrl(index, kOpcodes[i % 6], static_cast<uint32_t>(random() % 64)));
    if (decode(index, 1 + i % kBlocks) != WqeError::kNone) continue;
    good++;
    ASSERT_LE(wqe_.part_count, kMaxParts);
    ASSERT_LE(wqe_.length, kMaxMessage);
    ASSERT_LE(wqe_.blocks, kBlocks);
    uint64_t inline_bytes = 0;
    for (uint32_t p = 0; p < wqe_.part_count; p++) {
      if (wqe_.part[p].is_inline) inline_bytes += wqe_.part[p].length;
    }
    ASSERT_LE(inline_bytes, wqe_.blocks * 64u);
  }
  EXPECT_GT(good, 100);
}

TEST(RecvWqe, ListEndsAtItsMarkOrAtItsSize) {
  std::vector<uint8_t> ring(4 * 64);
  const auto put = [&](uint32_t index, uint32_t place, uint32_t length, uint32_t lkey) {
    const DataSegment segment = {htobe32(length), htobe32(lkey), htobe64(0x1000 + place)};
    memcpy(ring.data() + index * 64 + place * 16, &segment, sizeof segment);
  };
  const RecvRing recv_ring = {ring.data(), 4, 6};
  RecvWqe wqe;
  put(2, 0, 10, 1);
  put(2, 1, 20, 2);
  put(2, 2, 0, kListEndKey);
  recv_wqe_decode(recv_ring, 0xfffe, &wqe);
  EXPECT_EQ(wqe.index, 0xfffe);
  ASSERT_EQ(wqe.part_count, 2u);
  EXPECT_EQ(wqe.length, 30u);
  EXPECT_EQ(wqe.part[1].address, 0x1001u);
  for (uint32_t i = 0; i < 4; i++) put(3, i, 5, 1);
  recv_wqe_decode(recv_ring, 3, &wqe);
  EXPECT_EQ(wqe.part_count, 4u) << "full list without end mark";
}

}  // namespace
}  // namespace cxemu
