// What is put into the journals comes out again, and they always know how far a queue has
// completed.
#include "group/journal.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "util/test/random.h"

namespace shift::group {
namespace {

struct Request {
  ibv_send_wr wr{};
  std::vector<ibv_sge> sges;

  ibv_send_wr& get() {
    wr.sg_list = sges.data();
    wr.num_sge = static_cast<int>(sges.size());
    return wr;
  }
};

Request request(ibv_wr_opcode opcode, size_t num_sge, uint64_t id) {
  Request r;
  r.wr.wr_id = id;
  r.wr.opcode = opcode;
  r.wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
  r.wr.imm_data = 0x12345678;
  if (is_atomic(opcode)) {
    r.wr.wr.atomic = {id << 20, id * 3, id * 5, 77};
  } else {
    r.wr.wr.rdma = {id << 20, 0x777};
  }
  for (size_t i = 0; i < num_sge; i++) {
    r.sges.push_back(
        {0x1000 * (i + 1) + id, static_cast<uint32_t>(64 + i), static_cast<uint32_t>(0x100 + i)});
  }
  return r;
}

void expect_same_sges(const ibv_send_wr& wr, const Request& original) {
  ASSERT_EQ(wr.num_sge, static_cast<int>(original.sges.size()));
  for (int i = 0; i < wr.num_sge; i++) {
    const ibv_sge& expected = original.sges[static_cast<size_t>(i)];
    EXPECT_EQ(wr.sg_list[i].addr, expected.addr);
    EXPECT_EQ(wr.sg_list[i].length, expected.length);
    EXPECT_EQ(wr.sg_list[i].lkey, expected.lkey);
  }
}

constexpr ibv_wr_opcode kEveryOpcode[] = {
    IBV_WR_RDMA_WRITE,           IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM,        IBV_WR_RDMA_READ,           IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_LOCAL_INV,           IBV_WR_SEND_WITH_INV};

TEST(SendJournal, RebuildsEveryOpcodeWithAnyNumberOfElements) {
  SendJournal journal;
  journal.init(64, 4, 0, false);
  std::vector<Request> originals;
  for (ibv_wr_opcode opcode : kEveryOpcode) {
    for (size_t num_sge = 0; num_sge <= (is_atomic(opcode) ? 1u : 4u); num_sge++) {
      originals.push_back(request(opcode, num_sge, originals.size() + 1));
      journal.append(originals.back().get());
    }
  }
  for (size_t i = 0; i < originals.size(); i++) {
    const ibv_send_wr& original = originals[i].wr;
    SCOPED_TRACE(original.opcode);
    ibv_send_wr wr;
    ibv_sge sges[4];
    journal.rebuild(i, &wr, sges);
    EXPECT_EQ(wr.next, nullptr);
    EXPECT_EQ(wr.wr_id, original.wr_id);
    EXPECT_EQ(wr.opcode, original.opcode);
    EXPECT_EQ(wr.send_flags, original.send_flags);
    EXPECT_EQ(wr.imm_data, original.imm_data);
    expect_same_sges(wr, originals[i]);
    if (is_atomic(original.opcode)) {
      EXPECT_EQ(wr.wr.atomic.remote_addr, original.wr.atomic.remote_addr);
      EXPECT_EQ(wr.wr.atomic.compare_add, original.wr.atomic.compare_add);
      EXPECT_EQ(wr.wr.atomic.swap, original.wr.atomic.swap);
      EXPECT_EQ(wr.wr.atomic.rkey, original.wr.atomic.rkey);
      EXPECT_EQ(journal.at(i).rkey, original.wr.atomic.rkey);
    } else {
      EXPECT_EQ(wr.wr.rdma.remote_addr, original.wr.rdma.remote_addr);
      EXPECT_EQ(wr.wr.rdma.rkey, original.wr.rdma.rkey);
    }
  }
}

// The element count means nothing in such a request, and programs leave any value there.
TEST(SendJournal, ABoundWindowComesOutAgain) {
  for (int num_sge : {0, 1, 3}) {
    for (bool in_chain : {false, true}) {
      SendJournal journal;
      journal.init(4, 1, 0, false);
      ibv_mw mw{};
      ibv_mr mr{};
      ibv_send_wr wr{};
      wr.wr_id = 7;
      wr.opcode = IBV_WR_BIND_MW;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.num_sge = num_sge;
      wr.bind_mw.mw = &mw;
      wr.bind_mw.rkey = 0x12345;
      wr.bind_mw.bind_info = {&mr, 0x123456789abc, 0x100000001, IBV_ACCESS_REMOTE_WRITE};
      in_chain ? journal.append_chain(&wr) : journal.append(wr);
      ibv_send_wr again;
      ibv_sge sges[1];
      journal.rebuild(0, &again, sges);
      EXPECT_EQ(again.wr_id, 7u);
      EXPECT_EQ(again.opcode, IBV_WR_BIND_MW);
      EXPECT_EQ(again.num_sge, 0);
      EXPECT_TRUE(journal.is_signaled(journal.at(0)));
      EXPECT_EQ(again.bind_mw.mw, &mw);
      EXPECT_EQ(again.bind_mw.rkey, 0x12345u);
      EXPECT_EQ(again.bind_mw.bind_info.mr, &mr);
      EXPECT_EQ(again.bind_mw.bind_info.addr, 0x123456789abcu);
      EXPECT_EQ(again.bind_mw.bind_info.length, 0x100000001u);
      EXPECT_EQ(again.bind_mw.bind_info.mw_access_flags, unsigned{IBV_ACCESS_REMOTE_WRITE});
    }
  }
}

// The application may overwrite an inline buffer as soon as the post has returned.
TEST(SendJournal, InlinePayloadIsCopied) {
  SendJournal journal;
  journal.init(8, 2, 64, false);
  std::string first = "hello ", second = "world";
  Request r = request(IBV_WR_SEND, 0, 1);
  r.wr.send_flags |= IBV_SEND_INLINE;
  for (std::string* part : {&first, &second}) {
    r.sges.push_back(
        {reinterpret_cast<uintptr_t>(part->data()), static_cast<uint32_t>(part->size()), 0});
  }
  journal.append(r.get());
  first = second = "??????";
  ibv_send_wr wr;
  ibv_sge sges[2];
  journal.rebuild(0, &wr, sges);
  ASSERT_EQ(wr.num_sge, 1);
  EXPECT_TRUE(wr.send_flags & IBV_SEND_INLINE);
  EXPECT_EQ(std::string(reinterpret_cast<char*>(sges[0].addr), sges[0].length), "hello world");
}

TEST(SendJournal, InlinePayloadLargerThanTheQueueAllowsStaysInItsSlot) {
  SendJournal journal;
  journal.init(8, 1, 16, false);
  journal.append(request(IBV_WR_SEND, 1, 1).get());
  const uint32_t room = journal.extension_size();
  const std::string large(room + 1, 'x');
  Request r = request(IBV_WR_SEND, 0, 2);
  r.wr.send_flags |= IBV_SEND_INLINE;
  r.sges.push_back({reinterpret_cast<uintptr_t>(large.data()), room + 1, 0});
  journal.append(r.get());  // AddressSanitizer would report a write beyond the slot
  ibv_send_wr wr;
  ibv_sge sges[1];
  journal.rebuild(1, &wr, sges);
  EXPECT_EQ(wr.num_sge, 0);
}

// What the NIC refused is taken back: the next request gets the numbers that the first one had.
TEST(SendJournal, ARequestThatIsTakenBackCountsForNothing) {
  SendJournal journal;
  journal.init(8, 1, 0, false);
  Request silent = request(IBV_WR_RDMA_WRITE, 1, 1);
  silent.wr.send_flags = 0;
  journal.append(request(IBV_WR_SEND, 1, 0).get());
  for (Request next : {request(IBV_WR_SEND, 1, 1), silent}) {
    journal.append(next.get());
    journal.append(request(IBV_WR_SEND, 1, 2).get());
    journal.take_back(1);
    EXPECT_EQ(journal.head(), 1u);
    journal.append(request(IBV_WR_SEND, 1, 3).get());
    EXPECT_EQ(journal.at(1).signaled_total, 2u);
    EXPECT_EQ(journal.at(1).notification_total, 2u);
    journal.take_back(1);
  }
}

TEST(SendJournal, KeepsTheLatestEntriesWhenTheRingWraps) {
  SendJournal journal;
  constexpr uint32_t kDepth = 5;
  journal.init(kDepth, 2, 0, true);
  for (uint64_t i = 0; i < 100; i++) {
    journal.append(request(IBV_WR_RDMA_WRITE, i % 3, i).get());
    for (uint64_t p = i + 1 > kDepth ? i + 1 - kDepth : 0; p <= i; p++) {
      ibv_send_wr wr;
      ibv_sge sges[2];
      journal.rebuild(p, &wr, sges);
      ASSERT_EQ(wr.wr_id, p);
      expect_same_sges(wr, request(IBV_WR_RDMA_WRITE, p % 3, p));
    }
  }
}

// A batch under construction must not touch outstanding entries, not even with full queues.
TEST(SendJournal, UncommittedSlotsLieBesideOutstandingOnes) {
  SendJournal journal;
  constexpr uint32_t kDepth = 8;
  journal.init(kDepth, 1, 0, true);
  for (uint64_t i = 0; i < 3 * kDepth; i++) journal.append(request(IBV_WR_SEND, 1, i).get());
  for (uint32_t pending = 0; pending < kDepth; pending++) journal.slot(pending).wr_id = 999;
  for (uint64_t p = journal.head() - kDepth; p < journal.head(); p++) {
    EXPECT_EQ(journal.at(p).wr_id, p);
  }
}

// Compares with a list of all that was ever posted. The counts start just before they wrap around.
TEST(SendJournal, FirstIncompleteAgreesWithALongMemory) {
  Random random;
  for (int round = 0; round < 200; round++) {
    const uint32_t depth = 1 + random.below(40);
    const bool all_signaled = random.chance(20);
    const uint32_t percent_signaled = random.below(101);
    const uint32_t start_signaled = random.chance(50) ? 0 : UINT32_MAX - random.below(64);
    const uint32_t start_notifications = random.chance(50) ? 0 : UINT32_MAX - random.below(64);
    SendJournal journal;
    journal.init(depth, 1, 0, all_signaled);
    journal.start_counts_at(start_signaled, start_notifications);
    std::vector<bool> signaled;  // for each position
    size_t first = 0;            // the first WR without a completion
    uint32_t done = start_signaled, notifications = start_notifications;
    for (int turn = 0; turn < 300; turn++) {
      if (random.chance(60) && signaled.size() - first < depth) {
        Request r =
            request(kEveryOpcode[random.below(std::size(kEveryOpcode))], 1, signaled.size());
        r.wr.send_flags = random.chance(percent_signaled) ? IBV_SEND_SIGNALED : 0;
        if (is_notification(r.wr.opcode)) notifications++;
        signaled.push_back(all_signaled || r.wr.send_flags != 0);
        journal.append(r.get());
      } else {
        size_t next = first;
        while (next < signaled.size() && !signaled[next]) next++;
        if (next < signaled.size()) {
          first = next + 1;
          done++;
        }
      }
      ASSERT_EQ(journal.first_incomplete(done), first)
          << "round " << round << " head " << journal.head() << " depth " << depth;
      ASSERT_EQ(journal.notifications_posted(), notifications);
    }
  }
}

TEST(SendJournal, TheCountsWrapEachForItself) {
  SendJournal journal;
  journal.init(8, 1, 0, true);
  journal.start_counts_at(UINT32_MAX, 10);
  journal.append(request(IBV_WR_SEND, 1, 1).get());
  EXPECT_EQ(journal.at(0).signaled_total, 0u);
  EXPECT_EQ(journal.at(0).notification_total, 11u);
  journal.start_counts_at(5, UINT32_MAX);
  journal.append(request(IBV_WR_SEND, 1, 2).get());
  EXPECT_EQ(journal.at(1).signaled_total, 6u);
  EXPECT_EQ(journal.at(1).notification_total, 0u);
}

TEST(SendJournal, CountsNotificationsOnly) {
  for (ibv_wr_opcode opcode : kEveryOpcode) {
    SendJournal journal;
    journal.init(4, 1, 0, false);
    journal.append(request(opcode, 1, 1).get());
    const bool expected = opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
                          opcode == IBV_WR_SEND_WITH_INV || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    EXPECT_EQ(journal.notifications_posted(), expected ? 1u : 0u) << opcode;
  }
}

TEST(RecvJournal, RebuildsAndWraps) {
  RecvJournal journal;
  constexpr uint32_t kDepth = 6;
  journal.init(kDepth, 3);
  for (uint64_t i = 0; i < 50; i++) {
    const Request r = request(IBV_WR_SEND, i % 4, i);
    ibv_recv_wr wr{i, nullptr, const_cast<ibv_sge*>(r.sges.data()), static_cast<int>(i % 4)};
    if (i % 4 == 0) wr.sg_list = nullptr;
    journal.append(wr);
    for (uint64_t p = i + 1 > kDepth ? i + 1 - kDepth : 0; p <= i; p++) {
      ibv_recv_wr out;
      ibv_sge sges[3];
      journal.rebuild(p, &out, sges);
      ASSERT_EQ(out.wr_id, p);
      ASSERT_EQ(journal.wr_id(p), p);
      ASSERT_EQ(out.next, nullptr);
      ASSERT_EQ(out.num_sge, static_cast<int>(p % 4));
      const Request expected = request(IBV_WR_SEND, p % 4, p);
      for (size_t k = 0; k < p % 4; k++) {
        ASSERT_EQ(sges[k].addr, expected.sges[k].addr);
        ASSERT_EQ(sges[k].lkey, expected.sges[k].lkey);
      }
    }
  }
}

}  // namespace
}  // namespace shift::group
