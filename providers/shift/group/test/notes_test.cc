// A journal that made notes, and took in what the NIC's queue holds, tells what one tells that
// copied each request.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "group/test/fake_rings.h"
#include "util/test/random.h"

namespace shift::group {
namespace {

constexpr uint32_t kDepth = 40, kSges = 3, kInline = 48, kMtu = 256;
constexpr ibv_wr_opcode kOpcodes[] = {
    IBV_WR_RDMA_WRITE,           IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM,        IBV_WR_RDMA_READ,           IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_INV};

struct NotedRequest {
  ibv_send_wr wr{};
  std::array<ibv_sge, kSges> sges{};
  std::array<uint8_t, kInline> payload{};
};

void fill(NotedRequest& r, Random& random, uint64_t id) {
  ibv_send_wr& wr = r.wr;
  wr.wr_id = id;
  wr.opcode = kOpcodes[random.below(std::size(kOpcodes))];
  wr.send_flags = (random.chance(40) ? IBV_SEND_SIGNALED : 0) |
                  (random.chance(20) ? IBV_SEND_FENCE : 0) |
                  (random.chance(20) ? IBV_SEND_SOLICITED : 0);
  wr.imm_data = static_cast<uint32_t>(random.number());
  wr.sg_list = r.sges.data();
  wr.num_sge = static_cast<int>(is_atomic(wr.opcode) ? 1 : random.below(kSges + 1));
  const bool may_be_inline = !is_atomic(wr.opcode) && wr.opcode != IBV_WR_RDMA_READ;
  const bool is_inline = may_be_inline && random.chance(30);
  for (uint8_t& byte : r.payload) byte = static_cast<uint8_t>(random.number());
  for (ibv_sge& sge : r.sges) {
    const uint32_t longest = is_inline ? kInline / kSges : 5 * kMtu;
    const uint32_t length = random.chance(20) ? 0 : 1 + random.below(longest);
    sge = {reinterpret_cast<uintptr_t>(r.payload.data()), is_atomic(wr.opcode) ? 8 : length,
           static_cast<uint32_t>(random.number())};
  }
  if (is_atomic(wr.opcode)) {
    wr.wr.atomic = {random.number(), random.number(), random.number(),
                    static_cast<uint32_t>(random.number())};
    return;
  }
  wr.wr.rdma = {random.number(), static_cast<uint32_t>(random.number())};
  if (is_inline) wr.send_flags |= IBV_SEND_INLINE;
}

// One journal with notes, and another that copies, are given the same requests.
class TwoJournals {
 public:
  TwoJournals(Random& random, bool all_signaled)
      : random_(random), all_signaled_(all_signaled), rings(kDepth, all_signaled) {
    noted.init(kDepth, kSges, kInline, all_signaled, true);
    copied.init(kDepth, kSges, kInline, all_signaled);
    batch_.init(kDepth, kSges, kInline, all_signaled);
    for (SendJournal* journal : {&noted, &copied}) {
      journal->count_packets(kMtu);
      journal->start_counts_at(kSignaledAtFirst, UINT32_MAX - 20, UINT32_MAX - 100);
    }
  }

  void post(bool in_chain = true) {
    std::vector<NotedRequest> requests(1 + random_.below(5));
    for (NotedRequest& r : requests) {
      fill(r, random_, next_id_++);
      if (r.wr.wr_id % 8 == 0) r.wr.send_flags |= IBV_SEND_SIGNALED;  // one is always outstanding
    }
    for (size_t i = 0; i + 1 < requests.size(); i++) requests[i].wr.next = &requests[i + 1].wr;
    complete(requests.size());
    for (const NotedRequest& r : requests) {
      rings.post(r.wr);
      copied.add(r.wr);
    }
    switch (in_chain && noted.is_noting() ? random_.below(4) : 1) {
      case 0:
        noted.note_chain<true>(&requests[0].wr);
        break;
      case 1:
        for (const NotedRequest& r : requests) noted.add(r.wr);
        break;
      case 2:
        build(requests);
        break;
      default:
        for (const NotedRequest& r : requests) {
          batch_.append(r.wr);
          batch_.take_back(batch_.head() - 1);
          noted.append_from(batch_, 0);
        }
    }
    if (random_.chance(10)) take_back(1 + random_.below(static_cast<uint32_t>(requests.size())));
  }
  void take_in() { noted.take_in(rings.reader(), done()); }

  uint64_t completed() const { return completed_; }
  // The count of signaled completions that a program has polled.
  uint32_t done() const {
    uint32_t count = kSignaledAtFirst;
    for (uint64_t i = 0; i < completed_; i++) count += is_signaled(i);
    return count;
  }
  bool is_signaled(uint64_t position) const {
    return all_signaled_ || rings.send(position).wr.send_flags & IBV_SEND_SIGNALED;
  }

  void expect_same_counts() const {
    ASSERT_EQ(noted.head(), copied.head());
    ASSERT_EQ(noted.notifications_posted(), copied.notifications_posted());
    ASSERT_EQ(noted.packets(), copied.packets());
    const uint32_t seen = done();
    for (uint64_t end = noted.head(), most = 4; most > 0 && end > completed_; end--, most--) {
      ASSERT_EQ(noted.first_incomplete(seen, end), copied.first_incomplete(seen, end));
    }
  }
  void expect_same_ids() const {
    for (uint64_t i = completed_; i < noted.head(); i++) {
      ASSERT_EQ(noted.wr_id(i), copied.wr_id(i));
    }
  }
  // After take_in(): the entries are the same, from that position on.
  void expect_same_entries(uint64_t from) const {
    const uint64_t oldest = noted.head() > kDepth ? noted.head() - kDepth : 0;
    for (uint64_t i = std::max(from, oldest); i < noted.head(); i++) {
      SCOPED_TRACE(::testing::Message() << "request " << i);
      ASSERT_NO_FATAL_FAILURE(expect_same_entry(i));
    }
  }

  static constexpr uint32_t kSignaledAtFirst = UINT32_MAX - 30;
  SendJournal noted, copied;

 private:
  void expect_same_entry(uint64_t i) const {
    const SendEntry &a = noted.at(i), &b = copied.at(i);
    ASSERT_EQ(a.signaled_total, b.signaled_total);
    ASSERT_EQ(a.notification_total, b.notification_total);
    ASSERT_EQ(noted.is_signaled(a), copied.is_signaled(b));
    ASSERT_EQ(noted.packets_at(i), copied.packets_at(i));
    ibv_send_wr wr[2];
    ibv_sge sges[2][kMaxSge];
    noted.rebuild(i, &wr[0], sges[0]);
    copied.rebuild(i, &wr[1], sges[1]);
    ASSERT_EQ(wr[0].wr_id, wr[1].wr_id);
    ASSERT_EQ(wr[0].opcode, wr[1].opcode);
    ASSERT_EQ(wr[0].next, nullptr);
    ASSERT_EQ(wr[0].imm_data, wr[1].imm_data);
    ASSERT_EQ(std::memcmp(&wr[0].wr, &wr[1].wr, sizeof wr[0].wr), 0);
    const Posted read(wr[0]), kept(wr[1]);
    ASSERT_EQ(read.bytes, kept.bytes);
    // Where there are no bytes, the queue does not say that they were inline.
    const unsigned flags = kept.bytes.empty() ? ~unsigned{IBV_SEND_INLINE} : ~0u;
    ASSERT_EQ(wr[0].send_flags & flags, wr[1].send_flags & flags);
    const auto a_full = read.full_sges(), b_full = kept.full_sges();
    ASSERT_EQ(a_full.size(), b_full.size());
    for (size_t n = 0; n < a_full.size(); n++) {
      ASSERT_EQ(a_full[n].addr, b_full[n].addr);
      ASSERT_EQ(a_full[n].length, b_full[n].length);
      ASSERT_EQ(a_full[n].lkey, b_full[n].lkey);
    }
  }
  // Completes so many requests that there is room for more. A provider learns of requests without a
  // signal by a later one with a signal.
  void complete(size_t more) {
    const uint64_t head = noted.head();
    const auto is_end = [this](uint64_t position) {
      return position == 0 || is_signaled(position - 1);
    };
    uint64_t wanted = std::max(completed_, head + more > kDepth ? head + more - kDepth : 0);
    while (!is_end(wanted)) wanted++;
    ASSERT_LE(wanted, head);
    completed_ = wanted;
    if (random_.chance(70)) return;
    wanted += random_.below(static_cast<uint32_t>(head - wanted + 1));
    while (!is_end(wanted)) wanted--;
    completed_ = wanted;
  }
  void build(const std::vector<NotedRequest>& requests) {
    uint32_t pending = 0, signaled = 0, notifications = 0;
    for (const NotedRequest& r : requests) {
      // The flag for inline data has no meaning here.
      const unsigned flags = r.wr.send_flags ^ random_.below(2) * IBV_SEND_INLINE;
      noted.note_slot(pending++) = {r.wr.wr_id, r.wr.opcode, flags};
      signaled += (r.wr.send_flags & IBV_SEND_SIGNALED) != 0;
      notifications += is_notification(r.wr.opcode);
    }
    for (uint32_t i = 0; i < pending; i++) noted.take_packets(copied.packets_at(noted.head() + i));
    noted.take_notes(pending, signaled, notifications);
  }
  void take_back(uint32_t count) {
    const uint64_t position = noted.head() - count;
    if (position < completed_ || noted.is_noting()) return;
    noted.take_back(position);
    copied.take_back(position);
    rings.take_back(count);
  }

  Random& random_;
  const bool all_signaled_;
  SendJournal batch_;
  uint64_t next_id_ = 1, completed_ = 0;

 public:
  FakeRings rings;
};

class Notes : public ::testing::TestWithParam<bool> {
 protected:
  Random random_;
  TwoJournals both_{random_, GetParam()};
};
INSTANTIATE_TEST_SUITE_P(, Notes, ::testing::Bool(), [](const auto& all_signaled) {
  return all_signaled.param ? "AllSignaled" : "SomeSignaled";
});

TEST_P(Notes, TellWhatCopiesTell) {
  for (int round = 0; round < 60; round++) {
    for (uint32_t n = random_.below(40); n > 0; n--) {
      both_.post();
      ASSERT_NO_FATAL_FAILURE(both_.expect_same_counts());
    }
    ASSERT_NO_FATAL_FAILURE(both_.expect_same_ids());
    both_.take_in();
    ASSERT_FALSE(both_.noted.is_noting());
    ASSERT_LE(both_.noted.known_from(), both_.noted.first_incomplete(both_.done()));
    ASSERT_NO_FATAL_FAILURE(both_.expect_same_entries(both_.noted.known_from()));
    // Off the path, the journal copies. The notes begin again with its last entry.
    for (uint32_t n = random_.below(6); n > 0; n--) {
      both_.post();
      ASSERT_NO_FATAL_FAILURE(both_.expect_same_counts());
    }
    ASSERT_NO_FATAL_FAILURE(both_.expect_same_entries(both_.noted.known_from()));
    both_.noted.note_again();
    ASSERT_TRUE(both_.noted.is_noting());
  }
}

TEST_P(Notes, ThoseBeforeAnUnreadableRequestAreNotKnown) {
  for (int round = 0; round < 40; round++) {
    const uint64_t from = both_.noted.head(), known = both_.noted.known_from();
    for (int n = 0; n < 5; n++) both_.post();
    const uint64_t head = both_.noted.head();
    const uint64_t k = head - 1 - random_.below(static_cast<uint32_t>(head - from));
    both_.rings.unreadable = {k};
    both_.take_in();
    const uint64_t first = both_.noted.first_incomplete(both_.done());
    // Only sixteen completed requests are read.
    ASSERT_EQ(both_.noted.known_from(), k >= first || first - k <= 16 ? k + 1 : first - 16);
    ASSERT_GE(both_.noted.known_from(), known);
    ASSERT_NO_FATAL_FAILURE(both_.expect_same_entries(both_.noted.known_from()));
    ASSERT_NO_FATAL_FAILURE(both_.expect_same_counts());
    ASSERT_NO_FATAL_FAILURE(both_.expect_same_ids());
    both_.noted.note_again();
  }
}

TEST_P(Notes, AreNoMoreMade) {
  for (int n = 0; n < 20; n++) both_.post();
  both_.noted.note_no_more();
  EXPECT_FALSE(both_.noted.is_noting());
  EXPECT_FALSE(both_.noted.may_note());
  EXPECT_EQ(both_.noted.known_from(), both_.noted.head());
  ASSERT_NO_FATAL_FAILURE(both_.expect_same_counts());
  ASSERT_NO_FATAL_FAILURE(both_.expect_same_ids());
  both_.noted.note_again();
  EXPECT_FALSE(both_.noted.is_noting());
  for (int n = 0; n < 20; n++) {
    both_.post();
    ASSERT_NO_FATAL_FAILURE(both_.expect_same_counts());
  }
  ASSERT_NO_FATAL_FAILURE(both_.expect_same_entries(both_.noted.known_from()));
}

}  // namespace
}  // namespace shift::group
