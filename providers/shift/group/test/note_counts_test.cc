// The counts of the notes: how they are added up without a branch, and what another thread sees of
// them while a batch is taken in.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "group/journal.h"
#include "util/add_bit.h"

namespace shift {
namespace {

TEST(AddBit, AddsTheBitOfTheLowSixBits) {
  uint64_t word = 0x9e3779b97f4a7c15;
  uint32_t total = UINT32_MAX - 20000, expected = total;
  for (int i = 0; i < 1000; i++, word = word * 6364136223846793005 + 1442695040888963407) {
    for (uint64_t index = 0; index < 64; index++) {
      add_bit(total, word, index);
      expected += word >> index & 1;
      add_bit(total, word, index | word << 6);
      expected += word >> index & 1;
      ASSERT_EQ(total, expected) << word << " at " << index;
    }
    add_bit(total, word, 33);  // a constant
    expected += word >> 33 & 1;
    ASSERT_EQ(total, expected);
  }
}

// Every third request has a signal. One thread takes in batches, and the other looks how far the
// queue has come, as drains and failures do while a batch is open.
TEST(NoteCounts, AreSeenWholeBesideABatch) {
  constexpr uint32_t kDepth = 64;
  constexpr uint64_t kRequests = 80'000;
  for (const bool all_signaled : {false, true}) {
    group::SendJournal journal;
    journal.init(kDepth, 1, 0, all_signaled, true);
    const uint32_t at_first = UINT32_MAX - 1000;
    journal.start_counts_at(at_first, 0);
    const uint64_t apart = all_signaled ? 1 : 3;
    std::atomic<uint64_t> completed{0};  // the poster keeps within the depth of it
    std::thread poster([&] {
      uint64_t posted = 0;
      for (uint32_t batch = 1; posted < kRequests; batch = batch % 7 + 1) {
        while (posted + batch - completed.load(std::memory_order_relaxed) > kDepth)
          std::this_thread::yield();
        uint32_t signaled = 0;
        for (uint32_t i = 0; i < batch; i++) {
          const bool has_signal = (posted + i + 1) % 3 == 0;
          journal.note_slot(i) = {posted + i, IBV_WR_SEND,
                                  has_signal * unsigned{IBV_SEND_SIGNALED}};
          signaled += has_signal;
        }
        journal.take_notes(batch, signaled, batch);
        posted += batch;
      }
    });
    uint64_t looks = 0, wrong = 0;
    for (uint64_t end = 0; end < kRequests;) {
      end = journal.head_seen();
      // Of the requests before `end`, more or fewer are known to be over.
      for (uint64_t back = 0; back < 4 && back * apart < end; back++) {
        const uint64_t done = end / apart - back;
        const uint64_t first =
            journal.first_incomplete(at_first + static_cast<uint32_t>(done), end);
        wrong += first != done * apart;
        looks++;
      }
      completed.store(end, std::memory_order_relaxed);
    }
    poster.join();
    EXPECT_EQ(wrong, 0u) << "of " << looks;
    EXPECT_EQ(journal.notifications_posted(), journal.head());
  }
}

}  // namespace
}  // namespace shift
