// The rules of the responder; in each test, the test itself plays the requester.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "scripted_peer.h"

namespace cxemu::test {
namespace {

class ResponderRules : public ::testing::Test {
 protected:
  explicit ResponderRules(const EngineTuning& tuning = Rig::tuning_default())
      : rig_(1, tuning), peer_(rig_, rig_.a, rig_.b, pair_.b) {
    for (size_t i = 0; i < memory_.bytes.size(); i++) {
      memory_.bytes[i] = static_cast<uint8_t>(i * 7 + i / 255);
    }
  }

  uint32_t psn(uint32_t n) const { return psn_add(pair_.a.attr.sq_psn, n); }
  // The n-th packet after the connection was set up.
  Packet packet(Operation opcode, uint32_t n) const {
    Packet one = {.opcode = opcode};
    one.psn = psn(n);
    one.ack_request = true;
    one.remote_address = memory_.address();
    one.rkey = memory_.key;
    return one;
  }
  Packet write(Operation opcode, uint32_t n, uint32_t length) const {
    Packet one = packet(opcode, n);
    one.dma_length = length;
    return one;
  }
  Packet read(uint32_t n, uint32_t length, uint64_t offset = 0) const {
    Packet one = write(Operation::kReadRequest, n, length);
    one.remote_address += offset;
    return one;
  }
  Packet add(uint32_t n, uint64_t value) const {
    Packet one = packet(Operation::kFetchAdd, n);
    one.swap_or_add = value;
    return one;
  }
  static std::vector<uint8_t> data(size_t size, uint8_t value) {
    return std::vector<uint8_t>(size, value);
  }
  uint64_t word() const {
    uint64_t value;
    memcpy(&value, memory_.bytes.data(), sizeof value);
    return value;
  }
  void word_set(uint64_t value) { memcpy(memory_.bytes.data(), &value, sizeof value); }
  void expect_executed(uint32_t packets) const {
    EXPECT_EQ(pair_.b.query().rq_psn, psn(packets)) << "packets executed";
  }
  void expect_one_ack(const std::vector<Seen>& seen, uint32_t n) const {
    ASSERT_EQ(seen.size(), 1u);
    EXPECT_TRUE(seen[0].is_ack());
    EXPECT_EQ(seen[0].psn, psn(n));
  }
  // Expects a final refusal: a NAK says so, and the QP is dead.
  void expect_refused(const std::vector<Seen>& seen, NakCode code, uint32_t n) const {
    ASSERT_EQ(seen.size(), 1u);
    EXPECT_TRUE(seen[0].is_nak(code)) << int{seen[0].syndrome};
    EXPECT_EQ(seen[0].psn, psn(n));
    EXPECT_EQ(pair_.b.query().qp_state, IBV_QPS_ERR);
  }
  // Expects a refusal because the request itself is wrong, which the host learns by an event.
  void expect_invalid(const std::vector<Seen>& seen, uint32_t n) const {
    expect_refused(seen, kNakInvalidRequest, n);
    EXPECT_EQ(rig_.b.events.async,
              (std::vector<Events::Async>{{IBV_EVENT_QP_REQ_ERR, TestQp::kUserHandle}}));
  }
  void expect_access_error(const std::vector<Seen>& seen, uint32_t n) const {
    expect_refused(seen, kNakRemoteAccess, n);
    EXPECT_EQ(rig_.b.events.async,
              (std::vector<Events::Async>{{IBV_EVENT_QP_ACCESS_ERR, TestQp::kUserHandle}}));
  }

  Rig rig_;
  Pair pair_{rig_, kMtu};
  ScriptedPeer peer_;
  TestMr memory_{*rig_.b.nic, 16 * kMtu};
  TestMr target_{*rig_.b.nic, 16 * kMtu};
};

// ---- Sequence numbers and acknowledgements

TEST_F(ResponderRules, AckNamesTheNewestAndCoversSeveral) {
  for (uint32_t i = 0; i < 3; i++) {
    peer_.send(write(Operation::kWriteOnly, i, 1), data(1, 1));
  }
  const auto seen = peer_.pass();
  expect_one_ack(seen, 2);
}

TEST_F(ResponderRules, AckComesWhenItIsAskedFor) {
  Packet quiet = write(Operation::kWriteOnly, 0, 1);
  quiet.ack_request = false;
  peer_.ask(quiet, data(1, 1));
  expect_one_ack(peer_.ask(write(Operation::kWriteOnly, 1, 1), data(1, 1)), 1);
}

TEST_F(ResponderRules, MsnCountsMessages) {
  pair_.b.post_recv({target_.sge(0, 100)});
  auto seen = peer_.ask(write(Operation::kWriteOnly, 0, 4), data(4, 1));
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].msn, 1u);
  seen = peer_.ask(write(Operation::kWriteFirst, 1, kMtu + 1), data(kMtu, 1));
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].msn, 1u) << "the message is not complete";
  seen = peer_.ask(write(Operation::kWriteLast, 2, 0), data(1, 1));
  EXPECT_EQ(seen.at(0).msn, 2u);
  seen = peer_.ask(packet(Operation::kSendOnly, 3), data(4, 1));
  EXPECT_EQ(seen.at(0).msn, 3u);
  seen = peer_.ask(read(4, 4));
  EXPECT_EQ(seen.at(0).msn, 4u);
  seen = peer_.ask(add(5, 1));
  EXPECT_EQ(seen.at(0).msn, 5u);
}

TEST_F(ResponderRules, GapIsToldOnceUntilThereIsProgress) {
  const auto before = memory_.bytes;
  auto seen = peer_.ask(write(Operation::kWriteOnly, 1, 1), data(1, 0xaa));
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_TRUE(seen[0].is_nak(kNakSequence));
  EXPECT_EQ(seen[0].psn, psn(0)) << "what is missing, not what came";
  EXPECT_TRUE(peer_.ask(write(Operation::kWriteOnly, 2, 1), data(1, 0xaa)).empty());
  EXPECT_TRUE(peer_.ask(write(Operation::kWriteOnly, 1, 1), data(1, 0xaa)).empty());
  EXPECT_EQ(memory_.bytes, before) << "nothing behind the gap is executed";
  expect_executed(0);

  expect_one_ack(peer_.ask(write(Operation::kWriteOnly, 0, 1), data(1, 0xbb)), 0);
  EXPECT_EQ(memory_.bytes[0], 0xbb);
  seen = peer_.ask(write(Operation::kWriteOnly, 3, 1), data(1, 0xcc));
  ASSERT_EQ(seen.size(), 1u) << "another gap is told again";
  EXPECT_TRUE(seen[0].is_nak(kNakSequence));
  EXPECT_EQ(seen[0].psn, psn(1));
}

TEST_F(ResponderRules, NumbersWrap) {
  for (uint32_t i = 0; i < 40; i++) {
    expect_one_ack(peer_.ask(write(Operation::kWriteOnly, i, 1), data(1, 1)), i);
  }
  EXPECT_LT(psn(39), psn(0)) << "they did wrap";
  // Seen from the other side of the wrap, these are still a duplicate and a gap.
  expect_one_ack(peer_.ask(write(Operation::kWriteOnly, 2, 1), data(1, 9)), 39);
  const auto seen = peer_.ask(write(Operation::kWriteOnly, 41, 1), data(1, 9));
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_TRUE(seen[0].is_nak(kNakSequence));
}

// ---- Duplicates

TEST_F(ResponderRules, DuplicateSendIsOnlyAcknowledged) {
  for (uint32_t i = 0; i < 3; i++) pair_.b.post_recv({target_.sge(i * 100, 100)});
  for (uint32_t i = 0; i < 2; i++) peer_.ask(packet(Operation::kSendOnly, i), data(10, 1));
  expect_one_ack(peer_.ask(packet(Operation::kSendOnly, 0), data(10, 2)), 1);
  expect_executed(2);
  EXPECT_EQ(target_.bytes[0], 1);
  EXPECT_EQ(target_.bytes[200], 0) << "no receive was used";
  EXPECT_EQ(pair_.b_cq.drain().size(), 2u);
}

TEST_F(ResponderRules, DuplicateWriteIsOnlyAcknowledged) {
  for (uint32_t i = 0; i < 2; i++) {
    peer_.ask(write(Operation::kWriteOnly, i, 10), data(10, 1));
  }
  memory_.bytes[0] = 0x77;  // the application's own value
  expect_one_ack(peer_.ask(write(Operation::kWriteOnly, 0, 10), data(10, 1)), 1);
  expect_executed(2);
  EXPECT_EQ(memory_.bytes[0], 0x77);
}

TEST_F(ResponderRules, DuplicateReadIsReadAgain) {
  peer_.ask(read(0, 4 * kMtu));
  expect_executed(4);
  memory_.bytes[2 * kMtu] = 0x5a;
  // Asks again for the second half only.
  const auto seen = peer_.ask(read(2, 2 * kMtu, 2 * kMtu));
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].opcode, Operation::kReadResponseFirst);
  EXPECT_EQ(seen[0].psn, psn(2));
  EXPECT_EQ(seen[0].data.at(0), 0x5a) << "what is there now";
  EXPECT_EQ(seen[1].opcode, Operation::kReadResponseLast);
  EXPECT_EQ(seen[1].psn, psn(3));
  expect_executed(4);
}

TEST_F(ResponderRules, DuplicateReadBeyondWhatWasAskedIsIgnored) {
  peer_.ask(read(0, 2 * kMtu));
  EXPECT_TRUE(peer_.ask(read(1, 2 * kMtu, kMtu)).empty());
  EXPECT_EQ(pair_.b.query().qp_state, IBV_QPS_RTS);
}

TEST_F(ResponderRules, DuplicateReadOfMemoryThatIsGoneIsRefused) {
  peer_.ask(read(0, 4));
  peer_.ask(write(Operation::kWriteOnly, 1, 0));
  ASSERT_EQ(rig_.b.nic->mr_deregister(memory_.key), 0);
  expect_access_error(peer_.ask(read(0, 4)), 0);
}

TEST_F(ResponderRules, DuplicateAtomicsGetTheirFirstResults) {
  word_set(100);
  for (uint32_t i = 0; i < 4; i++) EXPECT_EQ(peer_.ask(add(i, 1)).at(0).original, 100u + i);
  EXPECT_EQ(word(), 104u);
  // The responder remembers as many as may be outstanding.
  for (uint32_t i = 0; i < 4; i++) {
    const auto seen = peer_.ask(add(i, 1));
    ASSERT_EQ(seen.size(), 1u);
    EXPECT_EQ(seen[0].opcode, Operation::kAtomicAcknowledge);
    EXPECT_EQ(seen[0].psn, psn(i));
    EXPECT_EQ(seen[0].original, 100u + i);
  }
  EXPECT_EQ(word(), 104u) << "executed once";
  expect_executed(4);
}

// ---- Receiver not ready

TEST_F(ResponderRules, ReceiverNotReadyIsToldAndWhatFollowsIsDropped) {
  auto seen = peer_.ask(packet(Operation::kSendOnly, 0), data(10, 1));
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_TRUE(seen[0].is_rnr());
  EXPECT_EQ(seen[0].syndrome & kAethValueMask, pair_.b.attr.min_rnr_timer);
  EXPECT_EQ(seen[0].psn, psn(0));
  pair_.b.post_recv({target_.sge(0, 100)});
  EXPECT_TRUE(peer_.ask(packet(Operation::kSendOnly, 1), data(10, 2)).empty())
      << "its sender waits and comes again";
  EXPECT_EQ(target_.bytes[0], 0);
  expect_one_ack(peer_.ask(packet(Operation::kSendOnly, 0), data(10, 1)), 0);
  EXPECT_EQ(target_.bytes[0], 1);
  EXPECT_EQ(pair_.b.query().qp_state, IBV_QPS_RTS);
}

TEST_F(ResponderRules, WriteTakesNoReceive) {
  expect_one_ack(peer_.ask(write(Operation::kWriteOnly, 0, 10), data(10, 1)), 0);
  EXPECT_TRUE(pair_.b_cq.drain().empty());
}

TEST_F(ResponderRules, WriteWithImmediateTakesItsReceiveAtTheEnd) {
  peer_.send(write(Operation::kWriteFirst, 0, 2 * kMtu), data(kMtu, 1));
  Packet last = write(Operation::kWriteLastImm, 1, 0);
  last.imm_be = 0x01020304;
  auto seen = peer_.ask(last, data(kMtu, 2));
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_TRUE(seen[0].is_rnr());
  EXPECT_EQ(seen[0].psn, psn(1)) << "the first packet needs none";
  EXPECT_EQ(memory_.bytes[kMtu - 1], 1);
  EXPECT_NE(memory_.bytes[kMtu], 2);
  pair_.b.post_recv({});
  expect_one_ack(peer_.ask(last, data(kMtu, 2)), 1);
  EXPECT_EQ(memory_.bytes[kMtu], 2);
  const auto got = pair_.b_cq.poll();
  ASSERT_TRUE(got);
  EXPECT_EQ(got->opcode, kCqeRecvWriteImm);
  EXPECT_EQ(got->byte_count, 2 * kMtu);
  EXPECT_EQ(got->imm_be, 0x01020304u);
}

// ---- Form of requests

TEST_F(ResponderRules, MessageMustNotBeginInTheMiddle) {
  expect_invalid(peer_.ask(packet(Operation::kSendMiddle, 0), data(kMtu, 1)), 0);
}
TEST_F(ResponderRules, MessageMustNotBeginWithItsLast) {
  expect_invalid(peer_.ask(packet(Operation::kWriteLast, 0), data(4, 1)), 0);
}
TEST_F(ResponderRules, MessageMustNotBeginInsideAnother) {
  pair_.b.post_recv({target_.sge(0, 8 * kMtu)});
  peer_.ask(packet(Operation::kSendFirst, 0), data(kMtu, 1));
  expect_invalid(peer_.ask(packet(Operation::kSendOnly, 1), data(4, 1)), 1);
}
TEST_F(ResponderRules, ReadMustNotComeInsideAMessage) {
  peer_.ask(write(Operation::kWriteFirst, 0, 4 * kMtu), data(kMtu, 1));
  expect_invalid(peer_.ask(read(1, 4)), 1);
}
TEST_F(ResponderRules, MessageMustNotChangeItsKind) {
  peer_.ask(write(Operation::kWriteFirst, 0, 4 * kMtu), data(kMtu, 1));
  expect_invalid(peer_.ask(packet(Operation::kSendMiddle, 1), data(kMtu, 1)), 1);
}

TEST_F(ResponderRules, FirstPacketMustBeFull) {
  expect_invalid(peer_.ask(write(Operation::kWriteFirst, 0, 2 * kMtu), data(kMtu - 4, 1)), 0);
}
TEST_F(ResponderRules, MiddlePacketMustNotExceedTheMtu) {
  peer_.ask(write(Operation::kWriteFirst, 0, 4 * kMtu), data(kMtu, 1));
  expect_invalid(peer_.ask(write(Operation::kWriteMiddle, 1, 0), data(kMtu + 4, 1)), 1);
}
TEST_F(ResponderRules, LastPacketMustNotBeEmpty) {
  pair_.b.post_recv({target_.sge(0, 8 * kMtu)});
  peer_.ask(packet(Operation::kSendFirst, 0), data(kMtu, 1));
  expect_invalid(peer_.ask(packet(Operation::kSendLast, 1)), 1);
}
TEST_F(ResponderRules, OnlyPacketMustNotExceedTheMtu) {
  expect_invalid(peer_.ask(write(Operation::kWriteOnly, 0, kMtu + 4), data(kMtu + 4, 1)), 0);
}

TEST_F(ResponderRules, WriteMustNotBeLongerThanItSaid) {
  peer_.ask(write(Operation::kWriteFirst, 0, kMtu + 4), data(kMtu, 1));
  expect_invalid(peer_.ask(write(Operation::kWriteLast, 1, 0), data(8, 1)), 1);
}
TEST_F(ResponderRules, WriteMustNotBeShorterThanItSaid) {
  expect_invalid(peer_.ask(write(Operation::kWriteOnly, 0, 8), data(4, 1)), 0);
}

// A region of more than 2 GiB that is never touched.
class LargeRegion {
 public:
  static constexpr uint64_t kSize = (1ull << 31) + (1 << 16);
  explicit LargeRegion(Nic& nic)
      : at_(mmap(nullptr, kSize, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    EXPECT_NE(at_, MAP_FAILED);
    EXPECT_EQ(nic.mr_register(
                  1, address(), kSize, address(),
                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, &key),
              0);
  }
  ~LargeRegion() { munmap(at_, kSize); }
  LargeRegion(const LargeRegion&) = delete;
  LargeRegion& operator=(const LargeRegion&) = delete;

  uint64_t address() const { return reinterpret_cast<uint64_t>(at_); }
  uint32_t key = 0;

 private:
  void* const at_;
};

TEST_F(ResponderRules, WriteOfTwoGigabytesIsTheLongest) {
  const LargeRegion region(*rig_.b.nic);
  Packet first = write(Operation::kWriteFirst, 0, 1u << 31);
  first.remote_address = region.address();
  first.rkey = region.key;
  expect_one_ack(peer_.ask(first, data(kMtu, 1)), 0);
}
TEST_F(ResponderRules, LongerWriteIsRefused) {
  const LargeRegion region(*rig_.b.nic);
  Packet first = write(Operation::kWriteFirst, 0, (1u << 31) + 1);
  first.remote_address = region.address();
  first.rkey = region.key;
  expect_invalid(peer_.ask(first, data(kMtu, 1)), 0);
}
TEST_F(ResponderRules, LongerReadIsRefused) {
  const LargeRegion region(*rig_.b.nic);
  Packet request = read(0, (1u << 31) + 1);
  request.remote_address = region.address();
  request.rkey = region.key;
  expect_invalid(peer_.ask(request), 0);
}

// ---- Access

TEST_F(ResponderRules, NothingIsWrittenUnlessAllOfItMay) {
  const auto before = memory_.bytes;
  Packet first = write(Operation::kWriteFirst, 0, 2 * kMtu);
  first.remote_address += 15 * kMtu;  // its first packet alone would fit
  expect_access_error(peer_.ask(first, data(kMtu, 0xaa)), 0);
  EXPECT_EQ(memory_.bytes, before);
}

TEST_F(ResponderRules, EmptyRequestsNeedNoKey) {
  Packet empty = write(Operation::kWriteOnly, 0, 0);
  empty.rkey = 0x12345678;
  expect_one_ack(peer_.ask(empty), 0);
  empty = read(1, 0);
  empty.rkey = 0x12345678;
  const auto seen = peer_.ask(empty);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].opcode, Operation::kReadResponseOnly);
  EXPECT_TRUE(seen[0].data.empty());
}

// ---- Responses

TEST_F(ResponderRules, ReadResponsesAreCutAndNumbered) {
  const auto seen = peer_.ask(read(0, 2 * kMtu + 5));
  ASSERT_EQ(seen.size(), 3u);
  constexpr Operation kOpcodes[] = {Operation::kReadResponseFirst, Operation::kReadResponseMiddle,
                                    Operation::kReadResponseLast};
  std::vector<uint8_t> got;
  for (uint32_t i = 0; i < 3; i++) {
    EXPECT_EQ(seen[i].opcode, kOpcodes[i]);
    EXPECT_EQ(seen[i].psn, psn(i));
    got.insert(got.end(), seen[i].data.begin(), seen[i].data.end());
  }
  EXPECT_EQ(seen[1].data.size(), kMtu);
  EXPECT_EQ(got, std::vector<uint8_t>(memory_.bytes.begin(), memory_.bytes.begin() + 2 * kMtu + 5));
  expect_executed(3);
  const auto full = peer_.ask(read(3, kMtu));
  ASSERT_EQ(full.size(), 1u) << "no empty packet behind a full one";
  EXPECT_EQ(full[0].opcode, Operation::kReadResponseOnly);
}

// The engine may send only a few packets in a pass.
class SlowResponderRules : public ResponderRules {
 protected:
  SlowResponderRules()
      : ResponderRules([] {
          EngineTuning tuning = Rig::tuning_default();
          tuning.qp_send_bytes = kMtu;
          return tuning;
        }()) {}
  std::vector<Seen> passes(int count) {
    std::vector<Seen> all;
    for (int i = 0; i < count; i++) {
      for (Seen& one : peer_.pass()) all.push_back(std::move(one));
    }
    return all;
  }
};

TEST_F(SlowResponderRules, AckWaitsForTheAnswersBeforeIt) {
  peer_.send(read(0, 4 * kMtu));
  peer_.send(write(Operation::kWriteOnly, 4, 4), data(4, 1));
  const auto seen = passes(10);
  ASSERT_EQ(seen.size(), 5u);
  for (uint32_t i = 0; i < 5; i++) EXPECT_EQ(seen[i].psn, psn(i));
  EXPECT_EQ(seen[3].opcode, Operation::kReadResponseLast);
  EXPECT_TRUE(seen[4].is_ack());
}

TEST_F(SlowResponderRules, RefusalWaitsForTheAnswersBeforeIt) {
  peer_.send(read(0, 4 * kMtu));
  Packet bad = write(Operation::kWriteOnly, 4, 4);
  bad.rkey ^= 1;
  peer_.send(bad, data(4, 1));
  const auto seen = passes(10);
  ASSERT_EQ(seen.size(), 5u);
  EXPECT_EQ(seen[3].opcode, Operation::kReadResponseLast);
  EXPECT_TRUE(seen[4].is_nak(kNakRemoteAccess));
  EXPECT_EQ(seen[4].psn, psn(4));
}

// ---- The end

TEST_F(ResponderRules, QpInErrIsMute) {
  pair_.b.post_recv({target_.sge(0, 100)});
  ASSERT_EQ(pair_.b.to_state(IBV_QPS_ERR), 0);
  EXPECT_TRUE(peer_.ask(write(Operation::kWriteOnly, 0, 10), data(10, 0xee)).empty());
  EXPECT_NE(memory_.bytes[0], 0xee);
}

TEST_F(ResponderRules, ResetForgetsTheConnection) {
  for (uint32_t i = 0; i < 3; i++) pair_.b.post_recv({target_.sge(i * kMtu, kMtu)});
  peer_.ask(packet(Operation::kSendOnly, 0), data(10, 1));
  peer_.ask(packet(Operation::kSendFirst, 1), data(kMtu, 1));  // the rest never comes
  (void)peer_.ask(packet(Operation::kSendOnly, 9), data(10, 1));
  for (TestQp* qp : {&pair_.a, &pair_.b}) {
    ASSERT_EQ(qp->to_state(IBV_QPS_RESET), 0);
    qp->reset_indices();
  }
  (void)pair_.b_cq.drain();
  rig_.connect(pair_.a, pair_.b);
  pair_.b.post_recv({target_.sge(0, kMtu)});
  const auto seen = peer_.ask(packet(Operation::kSendOnly, 0), data(10, 5));
  expect_one_ack(seen, 0);
  EXPECT_EQ(seen.at(0).msn, 1u);
  const auto got = pair_.b_cq.poll();
  ASSERT_TRUE(got);
  EXPECT_EQ(got->opcode, kCqeRecvSend);
  EXPECT_EQ(got->wqe_counter, 0);
  EXPECT_EQ(target_.bytes[0], 5);
}

// ---- Solicited events

TEST_F(ResponderRules, SolicitedMessageRaisesTheEventThatWaitsForIt) {
  TestCq cq(*rig_.b.nic, rig_.b.events, 64, 5);
  TestQp b(*rig_.b.nic, rig_.b.events, cq, cq);
  TestQp a(*rig_.a.nic, rig_.a.events, pair_.a_cq, pair_.a_cq);
  rig_.connect(a, b);
  ScriptedPeer peer(rig_, rig_.a, rig_.b, b);
  for (uint32_t i = 0; i < 2; i++) b.post_recv({target_.sge(i * 100, 100)});
  cq.arm(true);
  Packet one = packet(Operation::kSendOnly, 0);
  peer.ask(one, data(4, 1));
  EXPECT_TRUE(rig_.b.events.completions.empty());
  one.psn = psn(1);
  one.solicited = true;
  peer.ask(one, data(4, 1));
  EXPECT_EQ(rig_.b.events.completions.size(), 1u);
}

}  // namespace
}  // namespace cxemu::test
