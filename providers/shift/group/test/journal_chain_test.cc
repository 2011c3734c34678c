// append_chain(), which the hot paths use, leaves the entries that append() leaves for each single
// WR.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "group/journal.h"
#include "util/test/random.h"

namespace shift::group {
namespace {

constexpr uint32_t kMaxSge = 3;
constexpr uint32_t kMaxInline = 48;
constexpr ibv_wr_opcode kChainOpcodes[] = {
    IBV_WR_RDMA_WRITE,           IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM,        IBV_WR_RDMA_READ,           IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_LOCAL_INV,           IBV_WR_SEND_WITH_INV};

struct Slot {
  ibv_send_wr wr{};
  ibv_recv_wr recv{};
  std::array<ibv_sge, kMaxSge> sges{};
  std::array<char, 16> payload{};
};

void fill(Slot* slot, Random& random, uint64_t id) {
  ibv_send_wr& wr = slot->wr;
  wr = {};
  wr.wr_id = id;
  // Half of the WRs are of the common shape, so that chains begin with it.
  const bool is_common = random.below(2) == 0;
  wr.opcode = kChainOpcodes[random.below(is_common ? 5 : std::size(kChainOpcodes))];
  wr.num_sge = is_common || is_atomic(wr.opcode) ? 1 : static_cast<int>(random.below(kMaxSge + 1));
  wr.send_flags = random.below(2) != 0 ? IBV_SEND_SIGNALED : 0;
  if (!is_common && !is_atomic(wr.opcode) && random.below(2) != 0) wr.send_flags |= IBV_SEND_INLINE;
  wr.imm_data = static_cast<uint32_t>(id * 7);
  wr.wr.rdma = {id << 16, static_cast<uint32_t>(id + 1)};
  if (is_atomic(wr.opcode)) wr.wr.atomic = {id << 16, id * 3, id * 5, static_cast<uint32_t>(id)};
  slot->payload.fill(static_cast<char>(id));
  for (ibv_sge& sge : slot->sges) {
    sge = {reinterpret_cast<uint64_t>(slot->payload.data()),
           static_cast<uint32_t>(1 + random.below(slot->payload.size())),
           static_cast<uint32_t>(random.below(1000))};
  }
  wr.sg_list = slot->sges.data();
  slot->recv = {id, nullptr, slot->sges.data(), wr.num_sge};
}

void expect_same(const SendJournal& one, const SendJournal& other, uint64_t position) {
  const SendEntry &a = one.at(position), &b = other.at(position);
  ASSERT_EQ(a.signaled_total, b.signaled_total);
  ASSERT_EQ(a.notification_total, b.notification_total);
  ibv_send_wr wr[2];
  ibv_sge sges[2][kMaxSge];
  one.rebuild(position, &wr[0], sges[0]);
  other.rebuild(position, &wr[1], sges[1]);
  ASSERT_EQ(wr[0].wr_id, wr[1].wr_id);
  ASSERT_EQ(wr[0].opcode, wr[1].opcode);
  ASSERT_EQ(wr[0].send_flags, wr[1].send_flags);
  ASSERT_EQ(wr[0].imm_data, wr[1].imm_data);
  ASSERT_EQ(std::memcmp(&wr[0].wr, &wr[1].wr, sizeof wr[0].wr), 0);
  ASSERT_EQ(wr[0].num_sge, wr[1].num_sge);
  for (int i = 0; i < wr[0].num_sge; i++) {
    ASSERT_EQ(sges[0][i].length, sges[1][i].length);
    ASSERT_EQ(sges[0][i].lkey, sges[1][i].lkey);
    if (wr[0].send_flags & IBV_SEND_INLINE) {
      ASSERT_EQ(std::memcmp(reinterpret_cast<void*>(sges[0][i].addr),
                            reinterpret_cast<void*>(sges[1][i].addr), sges[0][i].length),
                0);
    } else {
      ASSERT_EQ(sges[0][i].addr, sges[1][i].addr);
    }
  }
}

// Chains of 0 to 5 WRs of each shape, for many laps of the ring.
TEST(JournalChain, LeavesWhatSingleWrsLeave) {
  for (const bool all_signaled : {false, true}) {
    SCOPED_TRACE(all_signaled);
    SendJournal single, chained;
    RecvJournal single_recv, chained_recv;
    for (SendJournal* journal : {&single, &chained}) {
      journal->init(8, kMaxSge, kMaxInline, all_signaled);
      journal->start_counts_at(UINT32_MAX - 20, UINT32_MAX - 10);
    }
    for (RecvJournal* journal : {&single_recv, &chained_recv}) journal->init(8, kMaxSge);
    Random random;
    uint64_t id = 0;
    for (int round = 0; round < 2000; round++) {
      std::vector<Slot> slots(random.below(6));
      for (Slot& slot : slots) fill(&slot, random, ++id);
      for (Slot& slot : slots) {
        single.append(slot.wr);
        single_recv.append(slot.recv);
      }
      for (size_t i = 0; i + 1 < slots.size(); i++) {
        slots[i].wr.next = &slots[i + 1].wr;
        slots[i].recv.next = &slots[i + 1].recv;
      }
      const uint64_t first = chained.head();
      chained.append_chain(slots.empty() ? nullptr : &slots[0].wr);
      chained_recv.append_chain(slots.empty() ? nullptr : &slots[0].recv);
      ASSERT_EQ(single.head(), chained.head());
      ASSERT_EQ(single_recv.head(), chained_recv.head());
      ASSERT_EQ(single.notifications_posted(), chained.notifications_posted());
      for (uint64_t position = first; position < chained.head(); position++) {
        expect_same(single, chained, position);
        ibv_recv_wr wr[2];
        ibv_sge sges[2][kMaxSge];
        single_recv.rebuild(position, &wr[0], sges[0]);
        chained_recv.rebuild(position, &wr[1], sges[1]);
        ASSERT_EQ(wr[0].wr_id, wr[1].wr_id);
        ASSERT_EQ(wr[0].num_sge, wr[1].num_sge);
        ASSERT_EQ(std::memcmp(sges[0], sges[1], sizeof(ibv_sge) * wr[0].num_sge), 0);
      }
      if (HasFatalFailure()) return;
    }
    EXPECT_GT(id, 4000u);
  }
}

}  // namespace
}  // namespace shift::group
