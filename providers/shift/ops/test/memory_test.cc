// A region that is deregistered goes from all NICs, however far the worker has come.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "group/keys.h"
#include "group/test/fake.h"
#include "group/twins.h"
#include "ops/entry.h"
#include "ops/fresh_key.h"
#include "ops/test/runtime.h"

namespace shift::ops {
namespace {

using group::kDefault;
using group::World;

// The regions that the NICs hold now, and the PD of each registration that was made.
std::set<ibv_mr*> live;
std::vector<ibv_pd*> registrations;
int failure = 0;                 // the errno of a refused registration
std::deque<uint32_t> next_keys;  // of the next registrations

ibv_mr* make(ibv_pd* pd) {
  registrations.push_back(pd);
  auto* mr = new ibv_mr{};
  mr->context = pd->context;
  mr->pd = pd;
  mr->lkey = mr->rkey = 0x100 + static_cast<uint32_t>(registrations.size());
  if (!next_keys.empty()) {
    mr->lkey = mr->rkey = next_keys.front();
    next_keys.pop_front();
  }
  live.insert(mr);
  return mr;
}

class Memory : public ::testing::Test {
 protected:
  Memory() {
    in_use = &runtime_;
    live.clear();
    registrations.clear();
    next_keys.clear();
    table_ = *stock;
    table_.reg_mr = [](ibv_pd* pd, void*, size_t, int) { return make(pd); };
    table_.reg_mr_iova2 = [](ibv_pd* pd, void*, size_t, uint64_t, unsigned) { return make(pd); };
    table_.dereg_mr = [](ibv_mr* mr) {
      EXPECT_EQ(live.erase(mr), 1u);
      delete mr;
      return 0;
    };
    before_ = std::exchange(stock, &table_);
  }
  ~Memory() override {
    worker_.run();  // what is still to be deregistered
    stock = before_;
    in_use = nullptr;
  }
  ibv_mr* add() { return reg_mr(&world_.pd.pd, bytes_, sizeof bytes_, IBV_ACCESS_LOCAL_WRITE); }

  World world_;
  LazyLoop control_, worker_;
  group::FakeCommands commands_{worker_};
  control::Coordinator coordinator_{control_, commands_};
  control::Runtime runtime_{control_, coordinator_};
  StockVerbs table_;
  const StockVerbs* before_ = nullptr;
  char bytes_[64];
};

TEST_F(Memory, IsRegisteredOnAllNicsAndGoesFromAll) {
  ibv_mr* mr = add();
  ASSERT_NE(mr, nullptr);
  worker_.run();
  EXPECT_EQ(live.size(), 3u);
  bool other = false;
  commands_.run(0, [&] { other = true; }, {});
  EXPECT_EQ(dereg_mr(mr), 0);
  EXPECT_FALSE(other) << "it has waited for the command thread";
  worker_.run();
  EXPECT_TRUE(live.empty());
  EXPECT_EQ(world_.pd.users, 0);
}

// The registrations on the further NICs count against the same limit.
TEST_F(Memory, ThatIsRefusedForWantOfMemoryNamesTheLimit) {
  static int error;
  table_.reg_mr = [](ibv_pd*, void*, size_t, int) -> ibv_mr* {
    errno = error;
    return nullptr;
  };
  world_.pd.registers_on = 1 << group::kBackup;
  for (const int reason : {EINVAL, ENOMEM}) {
    error = reason;
    testing::internal::CaptureStderr();
    EXPECT_EQ(add(), nullptr);
    EXPECT_EQ(errno, reason);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("registered on 2 NICs, and RLIMIT_MEMLOCK") != std::string::npos,
              reason == ENOMEM)
        << said;
  }
}

// NCCL asks in this way whether the NIC can register dma-bufs: EBADF means that it can.
TEST_F(Memory, AskedForWithoutABufferIsAnsweredByTheDefault) {
  static int asked_fd;
  for (const int answer : {EBADF, EOPNOTSUPP, EPROTONOSUPPORT}) {
    failure = answer;
    asked_fd = 0;
    table_.reg_dmabuf_mr = [](ibv_pd*, uint64_t, size_t, uint64_t, int fd, int) -> ibv_mr* {
      asked_fd = fd;
      errno = failure;
      return nullptr;
    };
    EXPECT_EQ(reg_dmabuf_mr(&world_.pd.pd, 0, 0, 0, -1, 0), nullptr);
    EXPECT_EQ(errno, answer);
    EXPECT_EQ(asked_fd, -1);
  }
}

TEST_F(Memory, OfABufferIsRegisteredOnAllNicsThoughTheProgramClosesItsDescriptor) {
  static std::vector<int> fds;
  fds.clear();
  table_.reg_dmabuf_mr = [](ibv_pd* pd, uint64_t, size_t, uint64_t, int fd, int) {
    EXPECT_NE(fcntl(fd, F_GETFD), -1) << fd;
    fds.push_back(fd);
    return make(pd);
  };
  const int own = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ibv_mr* mr = reg_dmabuf_mr(&world_.pd.pd, 0, 4096, 0, own, IBV_ACCESS_LOCAL_WRITE);
  close(own);
  ASSERT_NE(mr, nullptr);
  worker_.run();
  ASSERT_EQ(fds.size(), 3u);
  EXPECT_EQ(fds[kDefault], own);
  EXPECT_EQ(dereg_mr(mr), 0);
}

TEST_F(Memory, WithPagingIsRefusedByTheLayerOnlyWhereTheDefaultCouldDoIt) {
  table_.reg_mr = [](ibv_pd*, void*, size_t, int) -> ibv_mr* {
    errno = EINVAL;
    return nullptr;
  };
  for (const bool default_can : {false, true}) {
    world_.context.device_attr.odp_caps.general_caps = default_can ? IBV_ODP_SUPPORT : 0;
    EXPECT_EQ(reg_mr(&world_.pd.pd, bytes_, sizeof bytes_, IBV_ACCESS_ON_DEMAND), nullptr);
    EXPECT_EQ(errno, default_can ? EOPNOTSUPP : EINVAL);
  }
  world_.context.common_attr.odp_caps.general_caps = IBV_ODP_SUPPORT;
  EXPECT_EQ(reg_mr(&world_.pd.pd, bytes_, sizeof bytes_, IBV_ACCESS_ON_DEMAND), nullptr);
  EXPECT_EQ(errno, EINVAL) << "all NICs can, so the NIC's own answer counts";
}

TEST_F(Memory, ThatIsGoneBeforeTheWorkerComesToItIsNotRegistered) {
  ibv_mr* mr = add();
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(dereg_mr(mr), 0);
  worker_.run();
  EXPECT_TRUE(live.empty());
  worker_.run();
  EXPECT_TRUE(live.empty());
  EXPECT_EQ(registrations.size(), 1u);
}

TEST_F(Memory, StaysOnAllNicsWhenTheDefaultKeepsIt) {
  ibv_mr* mr = add();
  ASSERT_NE(mr, nullptr);
  const auto dereg = table_.dereg_mr;
  table_.dereg_mr = [](ibv_mr*) { return EBUSY; };
  EXPECT_EQ(dereg_mr(mr), EBUSY);
  worker_.run();
  EXPECT_EQ(live.size(), 3u);
  table_.dereg_mr = dereg;
  EXPECT_EQ(dereg_mr(mr), 0);
  worker_.run();
  EXPECT_TRUE(live.empty());
}

// C9: the driver has let go of the default NIC, and the event that says so is on the way.
TEST_F(Memory, IsRegisteredOnTheOthersWhileTheDefaultGoes) {
  for (int error : {EIO, ENODEV}) {
    failure = error;
    table_.reg_mr = [](ibv_pd*, void*, size_t, int) -> ibv_mr* {
      errno = failure;
      return nullptr;
    };
    world_.nic(kDefault).port_up = false;
    ibv_mr* mr = add();
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(live.size(), 2u);
    ibv_sge sge{reinterpret_cast<uintptr_t>(bytes_), 8, mr->lkey};
    EXPECT_EQ(group::translate_local(world_.context, group::kBackup, &sge, 1),
              group::KeyState::kReady);
    EXPECT_EQ(dereg_mr(mr), 0);
    worker_.run();
    EXPECT_TRUE(live.empty());
    EXPECT_FALSE(world_.context.members[kDefault].dead)
        << "a fence would not wait for its completions";
  }
}

TEST_F(Memory, IsNotRegisteredWhenTheDefaultIsThereAndRefuses) {
  for (bool is_there : {true, false}) {
    world_.nic(kDefault).port_up = is_there;
    failure = is_there ? EIO : EINVAL;
    table_.reg_mr = [](ibv_pd*, void*, size_t, int) -> ibv_mr* {
      errno = failure;
      return nullptr;
    };
    EXPECT_EQ(add(), nullptr);
    EXPECT_EQ(errno, failure);
    EXPECT_TRUE(registrations.empty());
  }
}

// No request waits for the keys of a region that is gone.
TEST_F(Memory, ThatIsGoneHasNoKeys) {
  ibv_mr* mr = add();
  ASSERT_NE(mr, nullptr);
  ibv_sge sge{reinterpret_cast<uintptr_t>(bytes_), 8, mr->lkey};
  const auto state = [&] {
    return group::translate_local(world_.context, group::kBackup, &sge, 1);
  };
  EXPECT_EQ(state(), group::KeyState::kPending);
  EXPECT_EQ(dereg_mr(mr), 0);
  EXPECT_EQ(state(), group::KeyState::kMissing);
}

// The program registers the region again before the worker has come to the first registration. In
// the end each NIC holds the region once, as it is now.
TEST_F(Memory, ThatIsChangedIsRegisteredAnew) {
  table_.rereg_mr = [](ibv_mr*, int, ibv_pd*, void*, size_t, int) { return 0; };
  ibv_mr* mr = add();
  ASSERT_NE(mr, nullptr);
  ASSERT_EQ(rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), 0);
  // The command threads have not done the second registration yet.
  ibv_sge sge{reinterpret_cast<uintptr_t>(bytes_), 8, mr->lkey};
  EXPECT_EQ(group::translate_local(world_.context, group::kBackup, &sge, 1),
            group::KeyState::kPending);
  worker_.run();
  EXPECT_EQ(group::translate_local(world_.context, group::kBackup, &sge, 1),
            group::KeyState::kReady);
  EXPECT_EQ(live.size(), 3u);
  EXPECT_EQ(dereg_mr(mr), 0);
  worker_.run();
  EXPECT_TRUE(live.empty());
}

// ---- memory that is registered where it is wanted (SHIFT_REGISTER)

class WantedMemory : public Memory {
 protected:
  WantedMemory() { world_.pd.registers_on = 0; }
  ibv_mr* add_registered() {
    ibv_mr* mr = add();
    EXPECT_NE(mr, nullptr);
    worker_.run();
    return mr;
  }
  group::KeyState local_key(const ibv_mr* mr, int member) {
    ibv_sge sge{reinterpret_cast<uintptr_t>(bytes_), 8, mr->lkey};
    return group::translate_local(world_.context, member, &sge, 1);
  }
  group::KeyState told_key(const ibv_mr* mr, int member) {
    uint32_t key;
    return group::exported_key(world_.context, member, &world_.pd, mr->rkey, &key);
  }
  void is_gone(const std::vector<ibv_mr*>& regions) {
    for (ibv_mr* mr : regions) EXPECT_EQ(dereg_mr(mr), 0);
    worker_.run();
    EXPECT_TRUE(live.empty());
    EXPECT_EQ(world_.pd.users, 0);
  }
};

TEST_F(WantedMemory, IsRegisteredOnMembersThatAreWanted) {
  ibv_mr* one = add_registered();
  EXPECT_EQ(live.size(), 1u);
  EXPECT_EQ(told_key(one, group::kBackup), group::KeyState::kMissing);
  group::twin_regions_want(world_.pd, group::kBackup);
  EXPECT_EQ(told_key(one, group::kBackup), group::KeyState::kPending);
  worker_.run();
  EXPECT_EQ(live.size(), 2u);
  EXPECT_EQ(told_key(one, group::kBackup), group::KeyState::kReady);
  ibv_mr* other = add_registered();
  EXPECT_EQ(live.size(), 4u) << "and so are regions that are made later";
  group::twin_regions_want(world_.pd, group::kBackup);
  group::twin_regions_want(world_.pd, kDefault);
  group::twin_regions_want(world_.pd, world_.context.member_count);
  worker_.run();
  EXPECT_EQ(live.size(), 4u);
  is_gone({one, other});
}

// A QP may name memory of a domain that no path has asked for.
TEST_F(WantedMemory, IsWantedWhereARequestNamesIt) {
  ibv_mr* mr = add_registered();
  EXPECT_EQ(local_key(mr, group::kBackup), group::KeyState::kPending);
  worker_.run();
  EXPECT_EQ(local_key(mr, group::kBackup), group::KeyState::kReady);
  EXPECT_EQ(live.size(), 2u);
  is_gone({mr});
}

TEST_F(WantedMemory, OfOtherDomainsIsLeftAlone) {
  group::ProtectionDomain other;
  other.pd = world_.pd.pd;
  other.real = world_.pd.real;
  other.registers_on = 0;
  ibv_mr* mr = reg_mr(&other.pd, bytes_, sizeof bytes_, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  group::twin_regions_want(world_.pd, group::kBackup);
  worker_.run();
  EXPECT_EQ(live.size(), 1u);
  is_gone({mr});
}

// C1: the round posts receives, and tells the peer that they stand.
TEST_F(WantedMemory, IsAwaitedByTheRound) {
  group::Group* group = world_.make_group(world_.make_cq());
  ibv_mr* mr = add_registered();
  EXPECT_FALSE(group::round_awaits_registration(*group));
  group::twin_regions_want(*group, group::kBackup);
  EXPECT_TRUE(group::round_awaits_registration(*group));
  commands_.late.insert(world_.context.members[group::kBackup].nic);
  EXPECT_FALSE(group::round_awaits_registration(*group)) << "no path goes over a NIC that is late";
  commands_.late.clear();
  worker_.run();
  EXPECT_FALSE(group::round_awaits_registration(*group));
  is_gone({mr});
}

// C6: the system has refused a thread, so nobody will ever register it there.
TEST_F(WantedMemory, ThatNobodyCanRegisterIsNotAwaited) {
  group::Group* group = world_.make_group(world_.make_cq());
  ibv_mr* mr = add_registered();
  commands_.has_threads = false;
  group::twin_regions_want(*group, group::kBackup);
  commands_.has_threads = true;
  EXPECT_EQ(local_key(mr, group::kBackup), group::KeyState::kMissing);
  EXPECT_EQ(told_key(mr, group::kBackup), group::KeyState::kMissing);
  EXPECT_FALSE(group::round_awaits_registration(*group));
  is_gone({mr});
}

// The registrations that nobody has begun are not begun, and nothing is left to wait for.
TEST_F(WantedMemory, ThatGoesMeanwhileIsNotRegistered) {
  group::Group* group = world_.make_group(world_.make_cq());
  ibv_mr* mr = add_registered();
  group::twin_regions_want(world_.pd, group::kBackup);
  EXPECT_EQ(dereg_mr(mr), 0);
  worker_.run();
  EXPECT_TRUE(live.empty());
  EXPECT_EQ(registrations.size(), 1u);
  EXPECT_FALSE(group::round_awaits_registration(*group));
}

TEST_F(WantedMemory, ThatIsChangedStaysWhereItIs) {
  table_.rereg_mr = [](ibv_mr*, int, ibv_pd*, void*, size_t, int) { return 0; };
  ibv_mr* mr = add_registered();
  ASSERT_EQ(rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), 0);
  worker_.run();
  EXPECT_EQ(live.size(), 1u);
  group::twin_regions_want(world_.pd, group::kBackup);
  ASSERT_EQ(rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), 0);
  worker_.run();
  EXPECT_EQ(live.size(), 2u);
  EXPECT_EQ(told_key(mr, group::kBackup), group::KeyState::kReady);
  EXPECT_EQ(told_key(mr, 2), group::KeyState::kMissing);
  is_gone({mr});
}

// It has to be somewhere.
TEST_F(WantedMemory, IsOnAllOthersWhenTheDefaultIsDead) {
  world_.context.members[kDefault].dead = true;
  ibv_mr* mr = add_registered();
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(live.size(), 2u);
  EXPECT_EQ(local_key(mr, group::kBackup), group::KeyState::kReady);
  is_gone({mr});
}

// ---- keys that peers were told

constexpr uint64_t kPeer = 7;

class ToldMemory : public Memory {
 protected:
  // A region that a peer was told of is deregistered. Returns its key.
  uint32_t deregister_told() {
    ibv_mr* mr = add();
    EXPECT_NE(mr, nullptr);
    const uint32_t rkey = mr->rkey;
    told_.tell(kPeer, rkey);
    EXPECT_EQ(dereg_mr(mr), 0);
    EXPECT_TRUE(live.empty());
    EXPECT_TRUE(told_.withholds(rkey));
    registrations.clear();
    return rkey;
  }
  // What the control thread does when the peer has answered.
  void peer_forgets() {
    std::lock_guard lock(world_.context.mutex);
    told_.forget(kPeer);
  }

  group::ToldKeys& told_ = world_.context.told_keys;
};

TEST_F(ToldMemory, ThatGoesIsToldOfWithoutAWait) {
  deregister_told();
  EXPECT_EQ(told_.listeners(), std::vector{kPeer});
}

TEST_F(ToldMemory, WhoseNumberComesAgainIsRegisteredOnceMore) {
  const uint32_t old = deregister_told();
  next_keys = {old, old, 0x777};
  ibv_mr* mr = add();
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->rkey, 0x777u);
  EXPECT_EQ(mr->lkey, 0x777u);
  EXPECT_EQ(live.size(), 1u) << "the others are gone";
  EXPECT_EQ(registrations.size(), 3u);
  worker_.run();
  EXPECT_EQ(live.size(), 3u);
  EXPECT_EQ(dereg_mr(mr), 0);
  worker_.run();
  EXPECT_TRUE(live.empty());
}

TEST_F(ToldMemory, WhoseNumberNobodyTakesForAnotherIsRegisteredOnce) {
  const uint32_t old = deregister_told();
  peer_forgets();
  next_keys = {old};
  ibv_mr* mr = add();
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->rkey, old);
  EXPECT_EQ(registrations.size(), 1u);
  EXPECT_EQ(dereg_mr(mr), 0);
}

// The NIC gives out nothing else, so the program gets the number when the peer has answered.
TEST_F(ToldMemory, WhoseNumberComesAgainAndAgainWaitsForThePeer) {
  static std::atomic<size_t> tries;
  tries = 0;
  const uint32_t old = deregister_told();
  next_keys.assign(kFreshTries, old);
  table_.reg_mr = [](ibv_pd* pd, void*, size_t, int) {
    ibv_mr* mr = make(pd);
    tries++;
    return mr;
  };
  std::atomic<bool> done{false};
  std::thread peer([&] {
    while (tries < kFreshTries && !done) std::this_thread::yield();
    peer_forgets();
  });
  ibv_mr* mr = add();
  done = true;
  peer.join();
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->rkey, old);
  EXPECT_EQ(live.size(), 1u);
  EXPECT_EQ(registrations.size(), kFreshTries);
  EXPECT_EQ(dereg_mr(mr), 0);
}

// C6: the peer does not answer.
TEST_F(ToldMemory, WhoseNumberStaysWithheldIsRefusedInTheEnd) {
  const uint32_t old = deregister_told();
  const auto again = [&] { return make(&world_.pd.pd); };
  const auto drop = [](ibv_mr* mr) { (void)stock->dereg_mr(mr); };
  const std::chrono::steady_clock::time_point now{};
  for (const bool every : {false, true}) {
    for (uint32_t i = 0; every && i <= group::ToldKeys::kGoneMax; i++) {
      told_.tell(kPeer, 0x10000 + i);
      EXPECT_TRUE(told_.withdraw(0x10000 + i));
    }
    EXPECT_EQ(told_.withholds_every(), every);
    registrations.clear();
    next_keys.assign(kFreshTries, old);
    testing::internal::CaptureStderr();
    EXPECT_EQ(fresh_slow(world_.context, again(), again, drop, kFreshTries, now), nullptr);
    const int reason = errno;
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(reason, ENOMEM);
    EXPECT_NE(said.find(every ? "" : "has not said"), std::string::npos) << said;
    EXPECT_EQ(registrations.size(), every ? 1u : kFreshTries);
    EXPECT_TRUE(live.empty());
  }
}

TEST_F(ToldMemory, ThatTheNicRefusesMeanwhileHasTheNicsError) {
  const uint32_t old = deregister_told();
  next_keys = {old};
  const auto again = []() -> ibv_mr* {
    errno = EIO;
    return nullptr;
  };
  const auto drop = [](ibv_mr* mr) { (void)stock->dereg_mr(mr); };
  EXPECT_EQ(fresh(world_.context, make(&world_.pd.pd), again, drop), nullptr);
  EXPECT_EQ(errno, EIO);
  EXPECT_TRUE(live.empty());
}

// A peer that asks while the region stays is told anew.
TEST_F(ToldMemory, ThatTheDefaultKeepsIsWithdrawnAllTheSame) {
  ibv_mr* mr = add();
  ASSERT_NE(mr, nullptr);
  told_.tell(kPeer, mr->rkey);
  const auto dereg = table_.dereg_mr;
  table_.dereg_mr = [](ibv_mr*) { return EBUSY; };
  EXPECT_EQ(dereg_mr(mr), EBUSY);
  EXPECT_EQ(told_.listeners(), std::vector{kPeer});
  told_.tell(kPeer, mr->rkey);
  table_.dereg_mr = dereg;
  EXPECT_EQ(dereg_mr(mr), 0);
  peer_forgets();
  EXPECT_FALSE(told_.withholds_any());
}

// The region keeps its key, and has others on the further NICs. So the peer must have forgotten
// those before the program goes on.
TEST_F(ToldMemory, ThatIsChangedWaitsForThePeer) {
  static std::atomic<bool> changed;
  changed = false;
  table_.rereg_mr = [](ibv_mr*, int, ibv_pd*, void*, size_t, int) {
    changed = true;
    return 0;
  };
  ibv_mr* mr = add();
  ASSERT_NE(mr, nullptr);
  told_.tell(kPeer, mr->rkey);
  std::atomic<bool> forgot{false};
  std::thread peer([&] {
    while (!changed) std::this_thread::yield();
    forgot = true;
    peer_forgets();
  });
  EXPECT_EQ(rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), 0);
  EXPECT_TRUE(forgot);
  peer.join();
  worker_.run();
  EXPECT_EQ(live.size(), 3u);
  EXPECT_EQ(dereg_mr(mr), 0);
}

TEST_F(ToldMemory, IsNotTakenForOneThatWasMadeWithoutTheDefault) {
  world_.context.members[kDefault].dead = true;
  ibv_mr* first = add();
  ASSERT_NE(first, nullptr);
  told_.tell(kPeer, first->rkey);
  told_.tell(kPeer, first->rkey + 1);
  EXPECT_TRUE(told_.withdraw(first->rkey + 1));
  ibv_mr* second = add();
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->rkey, first->rkey + 2);
  EXPECT_EQ(dereg_mr(first), 0);
  EXPECT_EQ(dereg_mr(second), 0);
}

}  // namespace
}  // namespace shift::ops
