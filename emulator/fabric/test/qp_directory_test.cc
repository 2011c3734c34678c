// The table of queue pairs: entries are unique and can be reused, and a dead process's entries are
// reclaimed when room is short.
#include "fabric/qp_directory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <set>

#include "fabric/fabric.h"

namespace cxemu {
namespace {

TEST(QpDirectoryTest, EntriesAreUniqueAndComeBack) {
  const auto fabric = std::make_unique<FabricFile>();
  std::set<FabricQp*> taken;
  for (uint32_t i = 0; i < kMaxListedQps; i++) {
    FabricQp* entry = qp_entry_take(*fabric, (i % 3 + 1) << 16 | i);
    ASSERT_NE(entry, nullptr);
    EXPECT_TRUE(taken.insert(entry).second);
    EXPECT_EQ(entry->pid, getpid());
    EXPECT_EQ(entry->number, (i % 3 + 1) << 16 | i);
  }
  EXPECT_EQ(qp_entry_take(*fabric, 1 << 16), nullptr);
  (*taken.begin())->syndrome = 5;
  qp_entry_release(*taken.begin());
  FabricQp* again = qp_entry_take(*fabric, 7 << 16);
  EXPECT_EQ(again, *taken.begin());
  EXPECT_EQ(again->syndrome, 0u) << "nothing of its predecessor is left";
  qp_entry_release(nullptr);
}

pid_t dead_process() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return child;
}

TEST(QpDirectoryTest, DeadProcessesMakeRoom) {
  const auto fabric = std::make_unique<FabricFile>();
  const pid_t dead = dead_process();
  for (FabricQp& entry : fabric->qp) entry.pid = dead;
  EXPECT_NE(qp_entry_take(*fabric, 1 << 16), nullptr);
}

TEST(QpDirectoryTest, TheDeadAreFoundAmongTheLiving) {
  const auto fabric = std::make_unique<FabricFile>();
  for (FabricQp& entry : fabric->qp) entry.pid = getpid();
  FabricQp& left = fabric->qp[kMaxListedQps / 3];
  left.pid = dead_process();
  EXPECT_EQ(qp_entry_take(*fabric, 1 << 16), &left);
  EXPECT_EQ(qp_entry_take(*fabric, 1 << 16), nullptr);
}

}  // namespace
}  // namespace cxemu
