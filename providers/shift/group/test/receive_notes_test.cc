// A journal of receives that made notes, and took in what the NIC's queue holds, tells what one
// tells that copied each receive.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "group/test/fake_rings.h"
#include "util/test/random.h"

namespace shift::group {
namespace {

class ReceiveNotes : public ::testing::Test {
 protected:
  static constexpr uint32_t kDepth = 12, kSges = 4;

  ReceiveNotes() {
    noted_.init(kDepth, kSges, true);
    copied_.init(kDepth, kSges);
  }
  void post() {
    const uint32_t count = 1 + random_.below(4);
    if (copied_.head() - consumed_ + count > kDepth) consumed_ = copied_.head() + count - kDepth;
    consumed_ += random_.below(static_cast<uint32_t>(copied_.head() - consumed_ + 1)) / 3;
    std::vector<std::vector<ibv_sge>> sges(count);
    std::vector<ibv_recv_wr> chain(count);
    for (uint32_t i = 0; i < count; i++) {
      sges[i].resize(random_.below(kSges + 1));
      for (ibv_sge& sge : sges[i]) {
        sge = {random_.number(), random_.chance(25) ? 0 : random_.below(1000),
               static_cast<uint32_t>(random_.number())};
      }
      chain[i] = {random_.number(), i + 1 < count ? &chain[i + 1] : nullptr, sges[i].data(),
                  static_cast<int>(sges[i].size())};
      copied_.append(chain[i]);
      rings_.post(chain[i]);
    }
    if (noted_.is_noting() && random_.chance(50)) {
      noted_.note_chain(&chain[0]);
    } else {
      for (const ibv_recv_wr& wr : chain) noted_.append(wr);
    }
  }
  void take_in() { noted_.take_in(rings_.reader(), consumed_); }
  void expect_same_ids() {
    ASSERT_EQ(noted_.head(), copied_.head());
    for (uint64_t i = consumed_; i < copied_.head(); i++) {
      ASSERT_EQ(noted_.wr_id(i), copied_.wr_id(i));
    }
  }
  void expect_same(uint64_t from) {
    ASSERT_NO_FATAL_FAILURE(expect_same_ids());
    for (uint64_t i = std::max(from, consumed_); i < copied_.head(); i++) {
      SCOPED_TRACE(::testing::Message() << "receive " << i);
      ibv_recv_wr wr[2];
      ibv_sge sges[2][kSges];
      noted_.rebuild(i, &wr[0], sges[0]);
      copied_.rebuild(i, &wr[1], sges[1]);
      ASSERT_EQ(wr[0].wr_id, wr[1].wr_id);
      ASSERT_EQ(wr[0].next, nullptr);
      std::vector<ibv_sge> full[2];
      for (int j : {0, 1}) {
        std::copy_if(wr[j].sg_list, wr[j].sg_list + wr[j].num_sge, std::back_inserter(full[j]),
                     [](const ibv_sge& sge) { return sge.length != 0; });
      }
      ASSERT_EQ(full[0].size(), full[1].size());
      for (size_t n = 0; n < full[0].size(); n++) {
        ASSERT_EQ(full[0][n].addr, full[1][n].addr);
        ASSERT_EQ(full[0][n].length, full[1][n].length);
        ASSERT_EQ(full[0][n].lkey, full[1][n].lkey);
      }
    }
  }

  Random random_;
  FakeRings rings_{kDepth, false};
  RecvJournal noted_, copied_;
  uint64_t consumed_ = 0;
};

TEST_F(ReceiveNotes, TellWhatCopiesTell) {
  for (int round = 0; round < 200; round++) {
    for (uint32_t n = random_.below(20); n > 0; n--) {
      post();
      ASSERT_NO_FATAL_FAILURE(expect_same_ids());
    }
    take_in();
    ASSERT_FALSE(noted_.is_noting());
    ASSERT_LE(noted_.known_from(), consumed_);
    ASSERT_NO_FATAL_FAILURE(expect_same(0));
    for (uint32_t n = random_.below(4); n > 0; n--) post();
    ASSERT_NO_FATAL_FAILURE(expect_same(0));
    noted_.note_again();
    ASSERT_TRUE(noted_.is_noting());
  }
}

TEST_F(ReceiveNotes, ThoseBeforeAnUnreadableReceiveAreNotKnown) {
  for (int round = 0; round < 200; round++) {
    const uint64_t from = noted_.head();
    for (int n = 0; n < 4; n++) post();
    const uint64_t first = std::max(from, consumed_);
    const uint64_t k = first + random_.below(static_cast<uint32_t>(noted_.head() - first));
    rings_.unreadable = {k};
    take_in();
    ASSERT_EQ(noted_.known_from(), k + 1);
    ASSERT_NO_FATAL_FAILURE(expect_same(k + 1));
    noted_.note_again();
  }
}

TEST_F(ReceiveNotes, AreNoMoreMade) {
  for (int n = 0; n < 10; n++) post();
  noted_.note_no_more();
  EXPECT_FALSE(noted_.is_noting());
  EXPECT_EQ(noted_.known_from(), noted_.head());
  ASSERT_NO_FATAL_FAILURE(expect_same_ids());
  noted_.note_again();
  EXPECT_FALSE(noted_.is_noting());
  for (int n = 0; n < 10; n++) post();
  ASSERT_NO_FATAL_FAILURE(expect_same(noted_.known_from()));
}

}  // namespace
}  // namespace shift::group
