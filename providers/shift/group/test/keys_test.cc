// Which key of the backup stands for which key of the application.
#include "group/keys.h"

#include <gtest/gtest.h>
#include <time.h>

#include "group/commit.h"
#include "group/replay.h"
#include "group/test/fake.h"

namespace shift::group {
namespace {

using Twin = MemoryRegion::Twin;

class Keys : public ::testing::Test {
 protected:
  KeyState state_of(std::vector<ibv_sge>& sges) {
    return translate_local(world_.context, kBackup, sges.data(), static_cast<int>(sges.size()));
  }
  bool translate(std::vector<ibv_sge>& sges) { return state_of(sges) == KeyState::kReady; }
  World world_;
};

TEST_F(Keys, LocalKeysAreReplacedInPlace) {
  world_.make_region(0x30, 0x40);
  std::vector<ibv_sge> sges{{1, 10, kLkey}, {2, 20, 0x30}, {3, 1, kLkey}};
  ASSERT_TRUE(translate(sges));
  EXPECT_EQ(sges[0].lkey, kBackupLkey);
  EXPECT_EQ(sges[1].lkey, 0x1030u);
  EXPECT_EQ(sges[2].lkey, kBackupLkey);
  EXPECT_EQ(sges[1].addr, 2u);
  EXPECT_EQ(sges[1].length, 20u);
}

TEST_F(Keys, AnUnknownOrUnregistrableKeyIsMissing) {
  world_.make_region(0x30, 0x40, Twin::kFailed);
  for (uint32_t lkey : {0x30u, 0xbadu}) {
    std::vector<ibv_sge> sges{{1, 10, lkey}};
    EXPECT_EQ(state_of(sges), KeyState::kMissing) << lkey;
  }
}

TEST_F(Keys, AnEmptyElementNeedsNone) {
  std::vector<ibv_sge> sges{{0, 0, 0xbad}};
  EXPECT_TRUE(translate(sges));
}

TEST_F(Keys, NothingIsReplacedWhileARegistrationIsUnderWay) {
  MemoryRegion* region = world_.make_region(0x30, 0x40, Twin::kQueued);
  std::vector<ibv_sge> sges{{1, 10, kLkey}, {1, 10, 0x30}};
  EXPECT_EQ(state_of(sges), KeyState::kPending);
  EXPECT_EQ(sges[0].lkey, kLkey);
  region->twins_set(Twin::kReady);
  EXPECT_TRUE(translate(sges));
  EXPECT_EQ(sges[1].lkey, 0x1030u);
}

// A round posts receives and READs itself, so it must know this; SENDs wait on their own.
TEST_F(Keys, ARoundAwaitsTheRegionsOfReceivesAndReadsUnderWay) {
  Group* group = world_.make_group(world_.make_cq());
  MemoryRegion* late = world_.make_region(0x30, 0x40, Twin::kRunning);
  const auto send_from_late = [&](ibv_wr_opcode opcode) {
    ibv_sge sge{0x5000, 8, 0x30};
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    post_send(*group, wr);
  };
  send_from_late(IBV_WR_SEND);
  EXPECT_FALSE(round_awaits_registration(*group));
  post_recv(*group, 1);
  post_recv(*group, 2, 0x30);
  EXPECT_TRUE(round_awaits_registration(*group));
  EXPECT_FALSE(round_awaits_registration(*group, 1)) << "the first names another region";
  {
    CqLock lock(*group);
    group->counters.done[1] = 2;
  }
  EXPECT_FALSE(round_awaits_registration(*group)) << "both are consumed";
  send_from_late(IBV_WR_RDMA_READ);
  park({&group, 1});
  EXPECT_TRUE(round_awaits_registration(*group));
  late->twins_set(Twin::kFailed);
  EXPECT_FALSE(round_awaits_registration(*group)) << "the post says so";
}

// C11: the peer learns the backup keys only of regions that it can name, in this QP's domain.
TEST_F(Keys, ThePeerIsToldByRkeyWithinTheDomain) {
  uint32_t out = 0;
  EXPECT_EQ(exported_key(world_.context, kBackup, &world_.pd, kRkey, &out), KeyState::kReady);
  EXPECT_EQ(out, kBackupRkey);
  EXPECT_EQ(exported_key(world_.context, kBackup, &world_.pd, kLkey, &out), KeyState::kMissing);
  ProtectionDomain other;
  EXPECT_EQ(exported_key(world_.context, kBackup, &other, kRkey, &out), KeyState::kMissing);
}

// It exists on the other members only, and its key is a number that the layer has made up.
TEST_F(Keys, OfARegionMadeWhileTheDefaultWasDeadNoKeyIsToldThere) {
  MemoryRegion* region = world_.make_region(0x30, 0x40);
  region->members[kDefault].real = nullptr;
  uint32_t out = 0;
  EXPECT_EQ(exported_key(world_.context, kDefault, &world_.pd, 0x40, &out), KeyState::kMissing);
  EXPECT_EQ(exported_key(world_.context, kBackup, &world_.pd, 0x40, &out), KeyState::kReady);
  EXPECT_EQ(out, 0x2040u);
}

TEST_F(Keys, AParentDomainIsTheDomainItWasMadeOf) {
  ProtectionDomain parent;
  parent.base = &world_.pd;
  uint32_t out = 0;
  EXPECT_EQ(exported_key(world_.context, kBackup, &parent, kRkey, &out), KeyState::kReady);
  MemoryRegion* region = world_.make_region(0x30, 0x40);
  region->mr.pd = &parent.pd;
  EXPECT_EQ(exported_key(world_.context, kBackup, &world_.pd, 0x40, &out), KeyState::kReady);
  ProtectionDomain other;
  EXPECT_EQ(exported_key(world_.context, kBackup, &other, 0x40, &out), KeyState::kMissing);
}

TEST_F(Keys, OfRegionsWithTheSameRkeyEachDomainHasItsOwn) {
  ProtectionDomain other;
  world_.make_region(0x30, 0x40, Twin::kRunning)->mr.pd = &other.pd;
  MemoryRegion* second = world_.make_region(0x31, 0x40);
  uint32_t out = 0;
  EXPECT_EQ(exported_key(world_.context, kBackup, &world_.pd, 0x40, &out), KeyState::kReady);
  EXPECT_EQ(exported_key(world_.context, kBackup, &other, 0x40, &out), KeyState::kPending);
  world_.context.regions.remove(*second);
  EXPECT_EQ(exported_key(world_.context, kBackup, &world_.pd, 0x40, &out), KeyState::kMissing);
  EXPECT_EQ(exported_key(world_.context, kBackup, &other, 0x40, &out), KeyState::kPending);
}

TEST_F(Keys, ARegionThatIsGoneOrHasOtherKeysIsNotFoundByTheOldOnes) {
  MemoryRegion* region = world_.make_region(0x30, 0x40);
  MemoryRegion* shadowed = world_.make_region(0x30, 0x50);  // the first region keeps the lkey
  world_.context.regions.remove(*shadowed);
  EXPECT_EQ(world_.context.regions.by_lkey(0x30), region);
  world_.context.regions.remove(*region);
  region->mr.lkey = 0x31;
  region->mr.rkey = 0x41;
  world_.context.regions.add(*region);
  uint32_t out = 0;
  for (uint32_t gone : {0x40u, 0x50u}) {
    EXPECT_EQ(exported_key(world_.context, kBackup, &world_.pd, gone, &out), KeyState::kMissing);
  }
  EXPECT_EQ(exported_key(world_.context, kBackup, &world_.pd, 0x41, &out), KeyState::kReady);
  EXPECT_EQ(world_.context.regions.by_lkey(0x30), nullptr);
  EXPECT_EQ(world_.context.regions.by_lkey(0x31), region);
}

// One query may name as many keys as the peer likes, and the thread that answers it handles all
// faults.
TEST_F(Keys, AnswersToManyKeysOfManyRegionsTakeNoTime) {
  constexpr uint32_t kMany = 30000;
  for (uint32_t i = 0; i < kMany; i++) world_.make_region(0x10000 + i, 0x100000 + i);
  const auto used = [] {
    struct timespec t = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
  };
  const auto before = used();
  for (uint32_t i = 0; i < kMany; i++) {
    uint32_t out = 0;
    ASSERT_EQ(exported_key(world_.context, kBackup, &world_.pd, 0x100000 + i, &out),
              KeyState::kReady);
    ASSERT_EQ(out, rkey_on(kBackup, 0x100000 + i));
  }
  EXPECT_LT(used() - before, std::chrono::milliseconds(500)) << "a search through all takes more";
}

TEST_F(Keys, ThePeerLearnsHowARegistrationStands) {
  world_.make_region(0x30, 0x40, Twin::kRunning);
  world_.make_region(0x31, 0x41, Twin::kFailed);
  uint32_t out = 0;
  EXPECT_EQ(exported_key(world_.context, kBackup, &world_.pd, 0x40, &out), KeyState::kPending);
  EXPECT_EQ(exported_key(world_.context, kBackup, &world_.pd, 0x41, &out), KeyState::kMissing);
  EXPECT_EQ(out, 0u);
}

}  // namespace
}  // namespace shift::group
