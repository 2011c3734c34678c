// Which processes are starved, and which are only idle, stopped or dead.
#include "nic/neighbours.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

namespace cxemu {
namespace {

constexpr uint64_t kNow = 50'000'000'000, kMs = 1'000'000;
constexpr int kOwn = 1, kOther = 2;

class NeighboursTest : public ::testing::Test {
 protected:
  NeighboursTest() {
    child_ = fork();
    if (child_ == 0) {
      for (;;) pause();
    }
    fabric_->process[kOwn].pid = getpid();
    other().pid = child_;
  }
  ~NeighboursTest() override {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }

  FabricProcess& other() { return fabric_->process[kOther]; }
  bool starved(uint64_t since_ns) {
    other().passed_ns = kNow - since_ns;
    return Neighbours(*fabric_, kOwn).any_starved(kNow);
  }

  const std::unique_ptr<FabricFile> fabric_ = std::make_unique<FabricFile>();
  pid_t child_;
};

TEST_F(NeighboursTest, WhoRanAMomentAgoIsNot) {
  EXPECT_FALSE(starved(kMs));
  EXPECT_FALSE(starved(Neighbours::kLateNs - 1));
  other().passed_ns = kNow + kMs;
  EXPECT_FALSE(Neighbours(*fabric_, kOwn).any_starved(kNow)) << "stamped since";
}

TEST_F(NeighboursTest, WhoLivesAndDoesNotRunIs) {
  EXPECT_TRUE(starved(Neighbours::kLateNs));
  EXPECT_TRUE(starved(Neighbours::kExcusedNs - 1));
}

TEST_F(NeighboursTest, NotForEver) {
  EXPECT_FALSE(starved(Neighbours::kExcusedNs));
}

TEST_F(NeighboursTest, WhoSleepsAsLongAsItLikesIsNot) {
  Neighbours(*fabric_, kOther).stamp(kNow - Neighbours::kLateNs, false);
  EXPECT_FALSE(Neighbours(*fabric_, kOwn).any_starved(kNow));
  Neighbours(*fabric_, kOther).stamp(kNow - Neighbours::kLateNs, true);
  EXPECT_TRUE(Neighbours(*fabric_, kOwn).any_starved(kNow));
}

TEST_F(NeighboursTest, TheDeadAreNot) {
  kill(child_, SIGKILL);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(starved(Neighbours::kLateNs)) << "a zombie";
  other().pid = 0;
  EXPECT_FALSE(starved(Neighbours::kLateNs)) << "a free place";
}

TEST_F(NeighboursTest, OnesOwnPlaceDoesNotCount) {
  fabric_->process[kOwn].passed_ns = kNow - Neighbours::kLateNs;
  EXPECT_FALSE(Neighbours(*fabric_, kOwn).any_starved(kNow));
}

TEST_F(NeighboursTest, LooksOnceInAMillisecond) {
  Neighbours neighbours(*fabric_, kOwn);
  EXPECT_FALSE(neighbours.any_starved(kNow));
  other().passed_ns = kNow - Neighbours::kLateNs;
  EXPECT_FALSE(neighbours.any_starved(kNow + kMs - 1));
  EXPECT_TRUE(neighbours.any_starved(kNow + kMs));
}

TEST_F(NeighboursTest, OnlyThoseThatWatchAreACrowd) {
  cpu_set_t may_use;
  ASSERT_EQ(sched_getaffinity(0, sizeof may_use, &may_use), 0);
  const auto processors = static_cast<uint64_t>(CPU_COUNT(&may_use));
  const uint64_t wanted = 3 * Neighbours::kUncrowded * processors;
  if (wanted > kMaxProcesses) GTEST_SKIP() << "too many processors for a crowd";
  const auto crowding = [&](uint64_t ago_ns) {
    for (uint64_t slot = 1; slot <= wanted; slot++) {
      fabric_->process[slot].passed_ns = kNow - ago_ns;
    }
    Neighbours neighbours(*fabric_, kOwn);
    neighbours.any_starved(kNow);
    return neighbours.crowding();
  };
  EXPECT_EQ(crowding(kMs), 3u);
  EXPECT_EQ(crowding(Neighbours::kExcusedNs), 1u) << "they have ended without a word";
  EXPECT_EQ(crowding(kNow), 1u) << "they watch nothing";
}

TEST_F(NeighboursTest, ACrowdLooksLessOftenWithinABound) {
  for (int slot = 1; slot <= kMaxProcesses; slot++) {
    fabric_->process[slot].passed_ns = kNow;
  }
  Neighbours neighbours(*fabric_, kOwn);
  EXPECT_EQ(neighbours.crowding(), 1u) << "nothing is known yet";
  EXPECT_FALSE(neighbours.any_starved(kNow));
  const uint64_t crowding = neighbours.crowding();
  EXPECT_LE(crowding, Neighbours::kCrowdingMax);
  other().passed_ns = kNow - Neighbours::kLateNs;
  EXPECT_FALSE(neighbours.any_starved(kNow + crowding * kMs - 1));
  EXPECT_TRUE(neighbours.any_starved(kNow + crowding * kMs));
}

}  // namespace
}  // namespace cxemu
