// The table in which the hot path finds the group of a completion.
#include "group/qp_table.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "util/test/random.h"

namespace shift::group {
namespace {

TEST(QpTable, AgreesWithAMap) {
  Random random;
  QpTable table;
  std::map<uint32_t, Counters*> map;
  std::vector<Counters> counters(400);
  for (int turn = 0; turn < 20000; turn++) {
    const uint32_t index = random.below(static_cast<uint32_t>(counters.size()));
    // Neighbouring numbers share chains, and so do numbers that differ only in their high bits.
    const uint32_t qpn = index % 2 ? index : index << 12;
    if (random.chance(turn < 10000 ? 60 : 30)) {
      table.insert(qpn, &counters[index]);
      map[qpn] = &counters[index];
    } else {
      table.erase(qpn, &counters[index]);
      map.erase(qpn);
    }
    const uint32_t other = random.below(static_cast<uint32_t>(counters.size()));
    for (uint32_t asked : {qpn, other, other << 12}) {
      auto it = map.find(asked);
      ASSERT_EQ(table.find(asked), it == map.end() ? nullptr : it->second) << turn;
    }
  }
}

// The NIC may give the number out again as soon as the QP is destroyed. The new QP may be in the
// table before the old one is taken out.
TEST(QpTable, ErasingAnOldQpLeavesTheNewOwnerOfItsNumber) {
  QpTable table;
  Counters old_qp, new_qp;
  table.insert(7, &old_qp);
  table.insert(7, &new_qp);
  table.erase(7, &old_qp);
  EXPECT_EQ(table.find(7), &new_qp);
  table.erase(7, &new_qp);
  EXPECT_EQ(table.find(7), nullptr);
  table.erase(7, &new_qp);
  table.erase(8, &new_qp);
}

TEST(QpTable, ReadersFindWhatStaysWhileOthersComeAndGo) {
  QpTable table;
  std::vector<Counters> fixed(50), moving(2000);
  for (uint32_t i = 0; i < fixed.size(); i++) table.insert(i * 4096, &fixed[i]);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> wrong{0}, found{0};
  std::thread reader([&] {
    do {
      for (uint32_t i = 0; i < fixed.size(); i++) {
        if (table.find(i * 4096) != &fixed[i]) wrong++;
        found++;
      }
      for (uint32_t i = 0; i < moving.size(); i++) {
        Counters* counters = table.find(i * 2 + 1);
        if (counters != nullptr && counters != &moving[i]) wrong++;
      }
    } while (!stop.load(std::memory_order_relaxed));
  });
  while (found == 0) std::this_thread::yield();
  for (int round = 0; round < 5; round++) {
    for (uint32_t i = 0; i < moving.size(); i++) table.insert(i * 2 + 1, &moving[i]);
    for (uint32_t i = 0; i < moving.size(); i++) table.erase(i * 2 + 1, &moving[i]);
  }
  stop = true;
  reader.join();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace shift::group
