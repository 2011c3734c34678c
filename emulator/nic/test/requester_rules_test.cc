// The rules of the requester; in each test, the test itself plays the responder.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "scripted_peer.h"

namespace cxemu::test {
namespace {

constexpr uint64_t kTimeoutNs = uint64_t{4096} << 8;

class RequesterRules : public ::testing::Test {
 protected:
  uint32_t psn(uint32_t n) const { return psn_add(pair_.a.attr.sq_psn, n); }
  SendWr write(uint32_t length, bool signaled = true) const {
    return {.opcode = kWqeWrite,
            .sges = {local_.sge(0, length)},
            .signaled = signaled,
            .remote_address = 0x10000,
            .rkey = 0x1234};
  }
  SendWr read(uint32_t length) const {
    SendWr wr = write(length);
    wr.opcode = kWqeRead;
    return wr;
  }
  SendWr add() const {
    SendWr wr = write(8);
    wr.opcode = kWqeFetchAdd;
    return wr;
  }
  Packet response(Operation opcode, uint32_t n) const {
    Packet packet = {.opcode = opcode};
    packet.psn = psn(n);
    packet.syndrome = kAethAck;
    return packet;
  }
  Packet ack(uint32_t n) const { return response(Operation::kAcknowledge, n); }
  Packet nak(NakCode code, uint32_t n) const {
    Packet packet = ack(n);
    packet.syndrome = static_cast<uint8_t>(kAethNak | code);
    return packet;
  }
  Packet rnr(uint8_t timer, uint32_t n) const {
    Packet packet = ack(n);
    packet.syndrome = static_cast<uint8_t>(kAethRnr | timer);
    return packet;
  }
  static std::vector<uint8_t> data(size_t size, uint8_t value) {
    return std::vector<uint8_t>(size, value);
  }
  // The WQEs that completed since the last call, all without error.
  std::vector<uint16_t> completed() {
    std::vector<uint16_t> all;
    for (const Completion& one : pair_.a_cq.drain()) {
      EXPECT_EQ(one.opcode, kCqeRequester) << "syndrome " << int{one.syndrome};
      all.push_back(one.wqe_counter);
    }
    return all;
  }
  uint8_t error() {
    const auto one = pair_.a_cq.poll();
    EXPECT_TRUE(one);
    return one ? one->syndrome : uint8_t{0};
  }
  using List = std::vector<uint16_t>;
  static std::vector<uint32_t> psns(const std::vector<Seen>& seen) {
    std::vector<uint32_t> all;
    for (const Seen& one : seen) all.push_back(one.psn);
    return all;
  }

  Rig rig_;
  Pair pair_{rig_, kMtu, {}, [](TestQp& a, TestQp&) {
               a.attr.timeout = 8;
               a.attr.retry_cnt = 2;
               a.attr.rnr_retry = 2;
             }};
  ScriptedPeer peer_{rig_, rig_.b, rig_.a, pair_.a};
  TestMr local_{*rig_.a.nic, 16 * kMtu};
};

// ---- What goes out

TEST_F(RequesterRules, MessageIsCutAtTheMtu) {
  struct Case {
    uint32_t length;
    std::vector<Operation> opcodes;
  };
  const Operation first = Operation::kWriteFirst, middle = Operation::kWriteMiddle,
                  last = Operation::kWriteLast, only = Operation::kWriteOnly;
  const Case cases[] = {{0, {only}},
                        {1, {only}},
                        {kMtu - 1, {only}},
                        {kMtu, {only}},
                        {kMtu + 1, {first, last}},
                        {2 * kMtu, {first, last}},
                        {2 * kMtu + 1, {first, middle, last}},
                        {3 * kMtu, {first, middle, last}}};
  uint32_t next = 0;
  for (const Case& one : cases) {
    pair_.a.post_send(write(one.length));
    const auto seen = peer_.pass();
    ASSERT_EQ(seen.size(), one.opcodes.size()) << one.length;
    uint32_t total = 0;
    for (size_t i = 0; i < seen.size(); i++) {
      EXPECT_EQ(seen[i].opcode, one.opcodes[i]) << one.length;
      EXPECT_EQ(seen[i].psn, psn(next++));
      if (i + 1 < seen.size()) {
        EXPECT_EQ(seen[i].data.size(), kMtu);
      }
      total += static_cast<uint32_t>(seen[i].data.size());
    }
    EXPECT_EQ(total, one.length);
    EXPECT_EQ(seen[0].dma_length, one.length);
    EXPECT_TRUE(seen.back().ack_request) << "or nobody would ever answer";
    peer_.ask(ack(next - 1));
    EXPECT_EQ(completed().size(), 1u);
  }
}

TEST_F(RequesterRules, ImmediateAndSolicitedGoWithTheLastPacket) {
  SendWr send = write(2 * kMtu + 1);
  send.opcode = kWqeSendImm;
  send.imm_be = 77;
  send.solicited = true;
  pair_.a.post_send(send);
  const auto seen = peer_.pass();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0].opcode, Operation::kSendFirst);
  EXPECT_EQ(seen[1].opcode, Operation::kSendMiddle);
  EXPECT_EQ(seen[2].opcode, Operation::kSendLastImm);
  EXPECT_EQ(seen[2].imm_be, 77u);
  EXPECT_FALSE(seen[0].solicited || seen[1].solicited);
  EXPECT_TRUE(seen[2].solicited);
}

TEST_F(RequesterRules, ReadTakesTheNumbersOfItsResponses) {
  pair_.a.post_send(read(3 * kMtu));
  pair_.a.post_send(write(4));
  EXPECT_EQ(psns(peer_.pass()), (std::vector<uint32_t>{psn(0), psn(3)}));
}

TEST_F(RequesterRules, ReadIntoMemoryThatMustNotBeWrittenIsNotEvenAsked) {
  const TestMr constant(*rig_.a.nic, 100, IBV_ACCESS_REMOTE_READ);
  SendWr wr = read(100);
  wr.sges = {constant.sge(0, 100)};
  pair_.a.post_send(wr);
  EXPECT_TRUE(peer_.pass().empty());
  EXPECT_EQ(error(), kSyndromeLocalProtection);
}

// ---- Acknowledgements

TEST_F(RequesterRules, NothingCompletesBeforeItsAcknowledgement) {
  pair_.a.post_send(write(4));
  peer_.pass();
  peer_.pass();
  EXPECT_EQ(completed(), List{});
  peer_.ask(ack(0));
  EXPECT_EQ(completed(), List{0});
}

TEST_F(RequesterRules, OneAckCompletesAllBeforeIt) {
  for (int i = 0; i < 4; i++) pair_.a.post_send(write(4));
  peer_.pass();
  peer_.ask(ack(2));
  EXPECT_EQ(completed(), (List{0, 1, 2}));
}

TEST_F(RequesterRules, AckAcrossTheWrapOfTheNumbers) {
  for (int i = 0; i < 40; i++) pair_.a.post_send(write(4));
  peer_.pass();
  ASSERT_LT(psn(39), psn(0));
  peer_.ask(ack(39));
  EXPECT_EQ(completed().size(), 40u);
}

TEST_F(RequesterRules, AckInsideAMessageIsProgress) {
  pair_.a.post_send(write(6 * kMtu));
  peer_.pass();
  peer_.ask(ack(2));
  EXPECT_EQ(completed(), List{});
  EXPECT_EQ(psns(peer_.pass(kTimeoutNs + 1)), (std::vector<uint32_t>{psn(3), psn(4), psn(5)}))
      << "only what is not acknowledged goes out again";
}

TEST_F(RequesterRules, AckOfWhatWasNeverSentIsIgnored) {
  pair_.a.post_send(write(4));
  peer_.pass();
  peer_.ask(ack(1));
  peer_.ask(ack(5000));
  EXPECT_EQ(completed(), List{});
  peer_.ask(ack(0));
  EXPECT_EQ(completed(), List{0});
}

TEST_F(RequesterRules, OldAckIsIgnored) {
  for (int i = 0; i < 2; i++) pair_.a.post_send(write(4));
  peer_.pass();
  peer_.ask(ack(0));
  peer_.ask(ack(0));
  peer_.ask(nak(kNakSequence, 0));
  EXPECT_EQ(completed(), List{0});
  EXPECT_TRUE(peer_.pass().empty()) << "nor does an old NAK make it go back";
}

TEST_F(RequesterRules, ReservedSyndromesAreIgnored) {
  pair_.a.post_send(write(4));
  peer_.pass();
  for (unsigned syndrome = 0x40; syndrome < 0x60; syndrome++) {
    Packet packet = ack(0);
    packet.syndrome = static_cast<uint8_t>(syndrome);
    EXPECT_TRUE(peer_.ask(packet).empty());
  }
  for (unsigned code = 4; code < 32; code++) {
    EXPECT_TRUE(peer_.ask(nak(static_cast<NakCode>(code), 0)).empty()) << code;
  }
  EXPECT_EQ(completed(), List{});
  EXPECT_EQ(pair_.a.query().qp_state, IBV_QPS_RTS);
}

// ---- NAKs

TEST_F(RequesterRules, SequenceNakAcknowledgesWhatIsBeforeIt) {
  for (int i = 0; i < 4; i++) pair_.a.post_send(write(4));
  peer_.pass();
  EXPECT_EQ(psns(peer_.ask(nak(kNakSequence, 2))), (std::vector<uint32_t>{psn(2), psn(3)}));
  EXPECT_EQ(completed(), (List{0, 1}));
}

TEST_F(RequesterRules, DoubledSequenceNakIsOneLoss) {
  pair_.a.post_send(write(4));
  peer_.pass();
  EXPECT_EQ(peer_.ask(nak(kNakSequence, 0)).size(), 1u);
  for (int i = 0; i < 5; i++) EXPECT_TRUE(peer_.ask(nak(kNakSequence, 0)).empty());
  EXPECT_EQ(pair_.a.query().qp_state, IBV_QPS_RTS);
  EXPECT_EQ(peer_.pass(kTimeoutNs + 1).size(), 1u) << "the timer still runs";
  EXPECT_EQ(peer_.ask(nak(kNakSequence, 0)).size(), 0u) << "two retries are used up";
  EXPECT_EQ(error(), kSyndromeRetryExceeded);
}

TEST_F(RequesterRules, FatalNaksFailTheRequestTheyName) {
  struct Case {
    NakCode code;
    Syndrome syndrome;
  };
  constexpr Case kCases[] = {{kNakInvalidRequest, kSyndromeRemoteInvalidRequest},
                             {kNakRemoteAccess, kSyndromeRemoteAccess},
                             {kNakRemoteOperation, kSyndromeRemoteOperation}};
  for (const Case& one : kCases) {
    Pair pair(rig_, kMtu);
    ScriptedPeer peer(rig_, rig_.b, rig_.a, pair.a);
    for (int i = 0; i < 3; i++) pair.a.post_send(write(4));
    peer.pass();
    peer.ask(nak(one.code, 1));
    const auto all = pair.a_cq.drain();
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[0].opcode, kCqeRequester) << "a NAK acknowledges what is before it";
    EXPECT_EQ(all[1].syndrome, one.syndrome);
    EXPECT_EQ(all[2].syndrome, kSyndromeFlush);
    EXPECT_EQ(pair.a.query().qp_state, IBV_QPS_ERR);
  }
}

// ---- Receiver not ready

TEST_F(RequesterRules, NothingGoesOutWhileTheReceiverIsNotReady) {
  for (int i = 0; i < 2; i++) pair_.a.post_send(write(4));
  peer_.pass();
  EXPECT_TRUE(peer_.ask(rnr(14, 0)).empty());
  EXPECT_TRUE(peer_.pass(rnr_timer_ns(14) - 10'000).empty()) << "longer than the ACK timeout";
  EXPECT_EQ(psns(peer_.pass(10'000)), (std::vector<uint32_t>{psn(0), psn(1)}));
}

TEST_F(RequesterRules, DoubledRnrNakCountsOnce) {
  pair_.a.post_send(write(4));
  peer_.pass();
  for (int i = 0; i < 5; i++) EXPECT_TRUE(peer_.ask(rnr(14, 0)).empty());
  EXPECT_EQ(peer_.pass(rnr_timer_ns(14)).size(), 1u);
  EXPECT_TRUE(peer_.ask(rnr(14, 0)).empty());
  EXPECT_EQ(peer_.pass(rnr_timer_ns(14)).size(), 1u);
  EXPECT_FALSE(pair_.a_cq.poll());
  peer_.ask(rnr(14, 0));
  EXPECT_EQ(error(), kSyndromeRnrRetryExceeded) << "the third is one too many";
}

TEST_F(RequesterRules, RnrRetrySevenWaitsForEver) {
  Pair pair(rig_, kMtu, {}, [](TestQp& a, TestQp&) { a.attr.rnr_retry = 7; });
  ScriptedPeer peer(rig_, rig_.b, rig_.a, pair.a);
  pair.a.post_send(write(4));
  peer.pass();
  for (int i = 0; i < 50; i++) {
    EXPECT_TRUE(peer.ask(rnr(1, 0)).empty());
    EXPECT_EQ(peer.pass(rnr_timer_ns(1)).size(), 1u);
  }
  EXPECT_FALSE(pair.a_cq.poll());
}

// ---- READ responses

TEST_F(RequesterRules, AckIsNoAnswerToARead) {
  pair_.a.post_send(read(2 * kMtu));
  peer_.pass();
  const auto seen = peer_.ask(ack(1));
  EXPECT_EQ(completed(), List{});
  EXPECT_EQ(psns(seen), std::vector<uint32_t>{psn(0)}) << "the answer got lost: asked again";
}

TEST_F(RequesterRules, ResponseAcknowledgesWhatIsBeforeIt) {
  pair_.a.post_send(write(4));
  pair_.a.post_send(read(4));
  peer_.pass();
  peer_.ask(response(Operation::kReadResponseOnly, 1), data(4, 0x11));
  EXPECT_EQ(completed(), (List{0, 1}));
  EXPECT_EQ(local_.bytes[3], 0x11);
}

TEST_F(RequesterRules, AckBehindAMissingResponseAsksForItAtOnce) {
  pair_.a.post_send(read(4));
  pair_.a.post_send(write(4));
  peer_.pass();
  EXPECT_EQ(psns(peer_.ask(ack(1))), (std::vector<uint32_t>{psn(0), psn(1)}));
  EXPECT_EQ(completed(), List{}) << "and nothing overtakes the READ";
}

TEST_F(RequesterRules, ResponseBehindAGapIsNotTaken) {
  pair_.a.post_send(read(3 * kMtu));
  peer_.pass();
  peer_.ask(response(Operation::kReadResponseFirst, 0), data(kMtu, 1));
  const auto again = peer_.ask(response(Operation::kReadResponseLast, 2), data(kMtu, 3));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].opcode, Operation::kReadRequest);
  EXPECT_EQ(again[0].psn, psn(1)) << "from the gap on";
  EXPECT_EQ(again[0].remote_address, 0x10000u + kMtu);
  EXPECT_EQ(again[0].dma_length, 2 * kMtu);
  EXPECT_EQ(local_.bytes[2 * kMtu], 0);
  EXPECT_EQ(completed(), List{});
  peer_.ask(response(Operation::kReadResponseFirst, 1), data(kMtu, 2));
  peer_.ask(response(Operation::kReadResponseLast, 2), data(kMtu, 3));
  EXPECT_EQ(completed(), List{0});
  EXPECT_EQ(local_.bytes[2 * kMtu], 3);
}

TEST_F(RequesterRules, LateResponseChangesNothing) {
  pair_.a.post_send(read(4));
  peer_.pass();
  peer_.ask(response(Operation::kReadResponseOnly, 0), data(4, 1));
  EXPECT_EQ(completed(), List{0});
  local_.bytes[0] = 0x77;  // now the application owns it again
  pair_.a.post_send(write(4));
  peer_.pass();
  peer_.ask(response(Operation::kReadResponseOnly, 0), data(4, 1));
  EXPECT_EQ(local_.bytes[0], 0x77);
}

TEST_F(RequesterRules, ResponseOfTheWrongLengthIsAnError) {
  pair_.a.post_send(read(kMtu / 2));
  peer_.pass();
  peer_.ask(response(Operation::kReadResponseOnly, 0), data(kMtu / 2 + 4, 1));
  EXPECT_EQ(error(), kSyndromeBadResponse);
  EXPECT_EQ(local_.bytes[0], 0);
}

TEST_F(RequesterRules, ResponseMustEndWhereTheMessageEnds) {
  pair_.a.post_send(read(2 * kMtu));
  peer_.pass();
  peer_.ask(response(Operation::kReadResponseOnly, 0), data(kMtu, 1));
  EXPECT_EQ(error(), kSyndromeBadResponse);
}

TEST_F(RequesterRules, ResponseOfTheWrongKindIsAnError) {
  pair_.a.post_send(read(8));
  peer_.pass();
  peer_.ask(response(Operation::kAtomicAcknowledge, 0));
  EXPECT_EQ(error(), kSyndromeBadResponse);
}

TEST_F(RequesterRules, ReadResponseIsNoAnswerToAnAtomic) {
  pair_.a.post_send(add());
  peer_.pass();
  peer_.ask(response(Operation::kReadResponseOnly, 0), data(8, 1));
  EXPECT_EQ(error(), kSyndromeBadResponse);
}

TEST_F(RequesterRules, AtomicAnswerIsTheOldValue) {
  pair_.a.post_send(add());
  peer_.pass();
  Packet answer = response(Operation::kAtomicAcknowledge, 0);
  answer.original = 0x1122334455667788;
  peer_.ask(answer);
  EXPECT_EQ(completed(), List{0});
  uint64_t value;
  memcpy(&value, local_.bytes.data(), sizeof value);
  EXPECT_EQ(value, answer.original);
}

// ---- Time

TEST_F(RequesterRules, ProgressRestartsTheTimer) {
  for (int i = 0; i < 2; i++) pair_.a.post_send(write(4));
  peer_.pass();
  EXPECT_TRUE(peer_.pass(kTimeoutNs - 10'000).empty());
  peer_.ask(ack(0));
  EXPECT_TRUE(peer_.pass(kTimeoutNs - 10'000).empty());
  EXPECT_EQ(psns(peer_.pass(20'000)), std::vector<uint32_t>{psn(1)});
}

// ---- Limits

// Two GiB of addresses that map to the same few pages over and over.
class GreatMemory {
 public:
  static constexpr uint64_t kSize = 1ull << 31;

  explicit GreatMemory(Nic& nic) {
    constexpr size_t kPart = 1 << 22;
    const int fd = memfd_create("great", 0);
    at = static_cast<uint8_t*>(
        mmap(nullptr, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    EXPECT_TRUE(at != MAP_FAILED && ftruncate(fd, kPart) == 0);
    for (uint64_t offset = 0; offset < kSize; offset += kPart)
      mmap(at + offset, kPart, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    close(fd);
    const auto address = reinterpret_cast<uint64_t>(at);
    EXPECT_EQ(nic.mr_register(1, address, kSize, address, IBV_ACCESS_LOCAL_WRITE, &key), 0);
  }
  ~GreatMemory() { munmap(at, kSize); }
  GreatMemory(const GreatMemory&) = delete;
  GreatMemory& operator=(const GreatMemory&) = delete;

  uint8_t* at;
  uint32_t key = 0;
};

class GreatReads : public RequesterRules {
 protected:
  static constexpr uint32_t kSmallMtu = 256, kPackets = GreatMemory::kSize / kSmallMtu;

  SendWr read_great(uint64_t length) const {
    SendWr wr = read(0);
    const auto half = static_cast<uint32_t>(length / 2);
    wr.sges = {{memory_.at, half, memory_.key}, {memory_.at + half, half, memory_.key}};
    return wr;
  }
  // The n-th response to a READ of 2 GiB that was the first request.
  Packet part(uint32_t n) const {
    Packet packet = {.opcode = n == 0              ? Operation::kReadResponseFirst
                               : n + 1 == kPackets ? Operation::kReadResponseLast
                                                   : Operation::kReadResponseMiddle};
    packet.psn = number(n);
    packet.syndrome = kAethAck;
    return packet;
  }
  uint32_t number(uint32_t n) const { return psn_add(small_.a.attr.sq_psn, n); }

  GreatMemory memory_{*rig_.a.nic};
  Pair small_{rig_, kSmallMtu, {}, [](TestQp& a, TestQp&) {
                a.attr.max_rd_atomic = 16;
                a.attr.timeout = 8;
              }};
  ScriptedPeer answers_{rig_, rig_.b, rig_.a, small_.a};
};

TEST_F(GreatReads, HalfOfTheNumbersStayFree) {
  for (int i = 0; i < 3; i++) small_.a.post_send(read_great((1u << 30) - kSmallMtu));
  EXPECT_EQ(answers_.pass().size(), 2u) << "of 2^22 - 1 numbers each";
}

// 2 GiB in the smallest packets take half of the numbers, which is all that may be in flight.
TEST_F(GreatReads, TheGreatestGoesAlone) {
  small_.a.post_send(read_great(GreatMemory::kSize));
  small_.a.post_send(read_great(GreatMemory::kSize));
  SendWr behind = write(8);
  small_.a.post_send(behind);
  const auto seen = answers_.pass();
  ASSERT_EQ(psns(seen), std::vector<uint32_t>{number(0)});
  EXPECT_EQ(seen[0].dma_length, 1u << 31);
  // The requester waits for it, and asks again from where the response broke off.
  const auto data_of = [](uint32_t n) { return data(kSmallMtu, static_cast<uint8_t>(n + 1)); };
  for (uint32_t n = 0; n < 3; n++) EXPECT_TRUE(answers_.ask(part(n), data_of(n)).empty());
  EXPECT_EQ(memory_.at[2 * kSmallMtu], 3);
  const auto again = answers_.pass(kTimeoutNs + 1);
  ASSERT_EQ(psns(again), std::vector<uint32_t>{number(3)});
  EXPECT_EQ(again[0].dma_length, (1u << 31) - 3 * kSmallMtu);
  EXPECT_FALSE(small_.a_cq.poll());
}

#ifndef __SANITIZE_ADDRESS__  // takes too long with this sanitizer
TEST_F(GreatReads, TheGreatestCompletesAndTheNextOneFollows) {
  small_.a.post_send(read_great(GreatMemory::kSize));
  small_.a.post_send(read_great(2 * kSmallMtu));
  ASSERT_EQ(answers_.pass().size(), 1u);
  const auto bytes = data(kSmallMtu, 7);
  for (uint32_t n = 0; n + 1 < kPackets; n++) {
    answers_.send(part(n), bytes);
    if (n % 2048 != 0) continue;
    // The second READ follows when it finds room after what has arrived.
    const auto seen = answers_.pass();
    ASSERT_EQ(psns(seen),
              n == 2048 ? std::vector<uint32_t>{number(kPackets)} : std::vector<uint32_t>{});
    ASSERT_FALSE(small_.a_cq.poll());
  }
  answers_.ask(part(kPackets - 1), bytes);
  const auto done = small_.a_cq.poll();
  ASSERT_TRUE(done);
  EXPECT_EQ(done->opcode, kCqeRequester);
  Packet last = response(Operation::kReadResponseFirst, 0);
  last.psn = number(kPackets);
  answers_.ask(last, bytes);
  last.opcode = Operation::kReadResponseLast;
  last.psn = number(kPackets + 1);
  answers_.ask(last, bytes);
  ASSERT_TRUE(small_.a_cq.poll());
}
#endif

}  // namespace
}  // namespace cxemu::test
