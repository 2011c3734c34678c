// Random operations in both directions over a wire that loses, doubles and reorders packets: every
// byte, every completion, every order is checked, and that atomics ran once.
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "rig.h"

namespace cxemu::test {
namespace {

constexpr uint32_t kSlot = 20'000;  // bytes that one operation may touch
constexpr uint32_t kOperations = 60;

void fill(std::vector<uint8_t>& bytes, uint32_t seed) {
  for (size_t i = 0; i < bytes.size(); i++) {
    bytes[i] = static_cast<uint8_t>(i * 31 + seed + i / 251);
  }
}

// One side's memory and its record of what was posted and what came.
struct Side {
  Side(Process& process, TestQp& own_qp, TestCq& own_cq)
      : qp(own_qp),
        cq(own_cq),
        source(*process.nic, kSlot * kOperations),
        written(*process.nic, kSlot * kOperations),
        received(*process.nic, kSlot * kOperations),
        readable(*process.nic, kSlot * kOperations),
        fetched(*process.nic, kSlot * kOperations),
        counter(*process.nic, 8) {}

  TestQp& qp;
  TestCq& cq;
  TestMr source;    // payload of SENDs and WRITEs, one slot per operation
  TestMr written;   // target of the peer's WRITEs
  TestMr received;  // receives, one slot each
  TestMr readable;  // target of the peer's READs
  TestMr fetched;   // where READs and atomics put what they got
  TestMr counter;   // target of the peer's atomics
  std::vector<uint16_t> posted, completed;
  std::vector<uint32_t> imms_sent, imms_got;  // got: by the peer
  std::vector<uint32_t> recv_lengths;         // of what the peer must get, in order
  std::vector<uint64_t> sums;                 // result that each atomic must have, and its slot
  std::vector<uint32_t> sum_slots;
  uint64_t sum = 0;
};

struct Expectation {
  const uint8_t *expected, *got;
  uint32_t size;
};

class BadWire : public ::testing::TestWithParam<uint64_t> {
 protected:
  BadWire()
      : rig_(GetParam(), tuning()),
        random_(GetParam()),
        pair_(rig_, std::array<uint32_t, 3>{256, 1024, 4096}[GetParam() % 3], {},
              [](TestQp& a, TestQp& b) { a.attr.timeout = b.attr.timeout = 8; }),
        sides_{Side(rig_.a, pair_.a, pair_.a_cq), Side(rig_.b, pair_.b, pair_.b_cq)} {
    rig_.net.loss = rig_.net.duplication = rig_.net.reordering = 0.02;
  }

  static EngineTuning tuning() {
    EngineTuning tuning = Rig::tuning_default();
    tuning.qp_send_bytes = 8192;  // so that the directions mix
    return tuning;
  }

  void post_all(Side& own, Side& peer);
  SendWr operation(Side& own, Side& peer, uint32_t slot);
  bool collect();

  Rig rig_;
  std::mt19937_64 random_;
  Pair pair_;
  Side sides_[2];
  std::vector<Expectation> expectations_;
};

SendWr BadWire::operation(Side& own, Side& peer, uint32_t slot) {
  const uint32_t at = slot * kSlot;
  const auto size = static_cast<uint32_t>(random_() % (random_() % 2 == 0 ? 300 : kSlot));
  SendWr wr = {.sges = {own.source.sge(at, size)},
               .fence = random_() % 4 == 0,
               .imm_be = static_cast<uint32_t>(random_())};
  const auto notify = [&](uint32_t length) {
    own.imms_sent.push_back(wr.imm_be);
    own.recv_lengths.push_back(length);
  };
  switch (random_() % 5) {
    case 0:
      wr.opcode = kWqeSendImm;
      expectations_.push_back({own.source.bytes.data() + at,
                               peer.received.bytes.data() + own.imms_sent.size() * kSlot, size});
      notify(size);
      break;
    case 1:
      wr.opcode = kWqeRead;
      wr.remote_address = peer.readable.address() + at;
      wr.rkey = peer.readable.key;
      wr.sges = {own.fetched.sge(at, size)};
      expectations_.push_back(
          {peer.readable.bytes.data() + at, own.fetched.bytes.data() + at, size});
      break;
    case 2:
      wr.opcode = kWqeFetchAdd;
      wr.sges = {own.fetched.sge(at, 8)};
      wr.remote_address = peer.counter.address();
      wr.rkey = peer.counter.key;
      wr.swap_or_add = slot + 1;
      own.sums.push_back(own.sum);
      own.sum_slots.push_back(slot);
      own.sum += slot + 1;
      break;
    default:
      wr.opcode = random_() % 2 == 0 ? kWqeWrite : kWqeWriteImm;
      wr.remote_address = peer.written.address() + at;
      wr.rkey = peer.written.key;
      if (wr.opcode == kWqeWriteImm) notify(size);
      expectations_.push_back({own.source.bytes.data() + at, peer.written.bytes.data() + at, size});
  }
  return wr;
}

void BadWire::post_all(Side& own, Side& peer) {
  fill(own.source.bytes, static_cast<uint32_t>(random_()));
  fill(own.readable.bytes, static_cast<uint32_t>(random_()));
  for (uint32_t i = 0; i < kOperations; i++) {
    peer.qp.post_recv({peer.received.sge(i * kSlot, kSlot)});
  }
  for (uint32_t i = 0; i < kOperations; i++) {
    own.posted.push_back(own.qp.post_send(operation(own, peer, i)));
  }
}

// Takes completions; whether all sends are completed.
bool BadWire::collect() {
  for (int i = 0; i < 2; i++) {
    Side& own = sides_[i];
    Side& peer = sides_[1 - i];
    for (const Completion& one : own.cq.drain()) {
      if (one.opcode == kCqeRequester) {
        own.completed.push_back(one.wqe_counter);
        continue;
      }
      EXPECT_TRUE(one.opcode == kCqeRecvSendImm || one.opcode == kCqeRecvWriteImm)
          << "opcode " << int{one.opcode} << " syndrome " << int{one.syndrome};
      EXPECT_EQ(one.byte_count, peer.recv_lengths.at(peer.imms_got.size()));
      peer.imms_got.push_back(one.imm_be);
    }
  }
  return sides_[0].completed.size() >= kOperations && sides_[1].completed.size() >= kOperations;
}

TEST_P(BadWire, EverythingHappensOnceAndInOrder) {
  post_all(sides_[0], sides_[1]);
  post_all(sides_[1], sides_[0]);
  ASSERT_TRUE(rig_.run_until([&] { return collect(); }, 10'000'000'000, 20'000));
  for (int i = 0; i < 2; i++) {
    const Side& own = sides_[i];
    EXPECT_EQ(own.completed, own.posted);
    EXPECT_EQ(own.imms_got, own.imms_sent);
    uint64_t total;
    memcpy(&total, sides_[1 - i].counter.bytes.data(), sizeof total);
    EXPECT_EQ(total, own.sum);
    for (size_t k = 0; k < own.sums.size(); k++) {
      uint64_t result;
      memcpy(&result, own.fetched.bytes.data() + own.sum_slots[k] * kSlot, sizeof result);
      EXPECT_EQ(result, own.sums[k]);
    }
  }
  for (const Expectation& one : expectations_) {
    EXPECT_EQ(memcmp(one.expected, one.got, one.size), 0);
  }
  EXPECT_GT(rig_.a.fabric_nic.retransmits + rig_.b.fabric_nic.retransmits, 0u)
      << "the wire was not bad enough to show anything";
}

INSTANTIATE_TEST_SUITE_P(Seeds, BadWire, ::testing::Range<uint64_t>(1, 61));

}  // namespace
}  // namespace cxemu::test
