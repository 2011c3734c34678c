// C5: which atomics without a signal a path has completed, as the flushes tell in which it was
// shut.
#include "group/flushed.h"

#include <gtest/gtest.h>

#include "group/test/fake.h"

namespace shift::group {
namespace {

using Ids = std::vector<uint64_t>;
constexpr auto kAtomic = IBV_WR_ATOMIC_FETCH_AND_ADD;
constexpr auto kWrite = IBV_WR_RDMA_WRITE;

class Flushed : public ::testing::Test {
 protected:
  explicit Flushed(bool one_cq = true) : recv_cq_(one_cq ? cq_ : world_.make_cq()) {}

  FakeQp& on(int member) { return World::fake(group_, member); }
  // A request without a signal that the NIC completes at once.
  void done(uint64_t id, ibv_wr_opcode opcode) {
    post_send(*group_, id, opcode, false);
    on(kDefault).pending_sends.pop_back();
  }
  void open(uint64_t id, ibv_wr_opcode opcode, bool signaled = false) {
    post_send(*group_, id, opcode, signaled);
  }
  const char* go(int member, uint64_t peer_received = 0) {
    leave_for(*group_, member, member);
    group_->life.remote_keys[member][kRkey] = rkey_on(member, kRkey);
    return replay(*group_, peer_received).refusal;
  }
  Ids posted(int member) { return posted_ids(on(member), *group_); }
  // The path breaks, and the NIC withholds one of the error completions.
  void break_without(size_t which) {
    on(kDefault).break_with(IBV_WC_RETRY_EXC_ERR);
    auto& waiting = World::fake(cq_, kDefault).waiting;
    waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(which));
  }

  World world_;
  CompletionQueue* cq_ = world_.make_cq();
  CompletionQueue* recv_cq_;
  Group* group_ = world_.make_group(cq_, recv_cq_, {});
};

class FlushedOnTwoCqs : public Flushed {
 protected:
  FlushedOnTwoCqs() : Flushed(false) {}
};

TEST_F(Flushed, AnAtomicThatCompletedLongAgoIsNoObstacle) {
  done(1, kWrite);
  done(2, kAtomic);
  open(3, kWrite, true);
  post_recv(*group_, 11);
  EXPECT_EQ(go(kBackup), nullptr);
  EXPECT_EQ(posted(kBackup), Ids{3}) << "neither the atomic nor what came before it runs again";
}

TEST_F(Flushed, ItIsNoObstacleIfNothingIsUnderWay) {
  done(1, kAtomic);
  EXPECT_EQ(go(kBackup), nullptr);
  EXPECT_TRUE(posted(kBackup).empty());
}

TEST_F(Flushed, AnAtomicUnderWayIs) {
  done(1, kAtomic);
  open(2, kAtomic);
  open(3, kWrite);
  EXPECT_NE(go(kBackup), nullptr);
  EXPECT_TRUE(posted(kBackup).empty());
}

// As before, a silent request after the atomic runs again, completed or not.
TEST_F(Flushed, WritesAfterTheAtomicRunAgain) {
  done(1, kAtomic);
  done(2, kWrite);
  open(3, kWrite);
  EXPECT_EQ(go(kBackup), nullptr);
  EXPECT_EQ(posted(kBackup), (Ids{2, 3}));
}

TEST_F(Flushed, ErrorsThatWerePolledBeforeTheFenceCount) {
  done(1, kAtomic);
  open(2, kWrite);
  on(kDefault).break_with(IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(poll_all(cq_).empty());
  open(3, kWrite);
  EXPECT_EQ(go(kBackup), nullptr);
  EXPECT_EQ(posted(kBackup), (Ids{2, 3}));
}

TEST_F(Flushed, TheJournalMayHaveWrappedAround) {
  group_->send.journal.start_counts_at(UINT32_MAX - 20, UINT32_MAX - 20);
  group_->counters.done[0] = UINT32_MAX - 20;
  for (uint64_t id = 1; id <= 45; id++) {
    open(id, kWrite, true);
    on(kDefault).complete_send();
  }
  EXPECT_EQ(poll_all(cq_).size(), 45u);
  done(46, kAtomic);
  open(47, kWrite);
  EXPECT_EQ(go(kBackup, UINT32_MAX - 20), nullptr);
  EXPECT_EQ(posted(kBackup), Ids{47});
}

// ---- the count decides when all requests have one number

TEST_F(Flushed, EqualNumbersAreCounted) {
  done(7, kAtomic);
  done(7, kWrite);
  open(7, kWrite);
  post_recv(*group_, 11);
  EXPECT_EQ(go(kBackup), nullptr);
  EXPECT_EQ(posted(kBackup), (Ids{7, 7}));
}

TEST_F(Flushed, EqualNumbersHideNoAtomic) {
  done(7, kWrite);
  open(7, kAtomic);
  open(7, kWrite);
  EXPECT_NE(go(kBackup), nullptr);
}

// An error completion does not say of which queue it is.
TEST_F(Flushed, ARequestWithTheNumberOfAReceiveIsNotTold) {
  done(1, kAtomic);
  open(11, kWrite);
  post_recv(*group_, 11);
  EXPECT_NE(go(kBackup), nullptr);
}

TEST_F(FlushedOnTwoCqs, TheNumbersOfReceivesDoNotMatter) {
  done(1, kAtomic);
  open(11, kWrite);
  post_recv(*group_, 11);
  EXPECT_EQ(go(kBackup), nullptr);
}

class FlushedOfASharedQueue : public Flushed {
 protected:
  FlushedOfASharedQueue() {
    World::Options options;
    options.srq = queue_;
    group_ = world_.make_group(cq_, cq_, options);
    group_->life.members[kDefault].last_taken = true;  // the fence has nothing else to wait for
  }
  SharedQueue* queue_ = world_.make_srq(4);
};

// The NIC has not completed this atomic, and its completion looks like that of a receive.
TEST_F(FlushedOfASharedQueue, AnAtomicWithTheNumberOfAReceiveIsInDoubt) {
  open(queue_->first_wr_id, kAtomic);
  open(2, kWrite);
  EXPECT_NE(go(kBackup), nullptr);
}

TEST_F(FlushedOfASharedQueue, OtherAtomicsAreTold) {
  done(1, kAtomic);
  open(2, kWrite);
  EXPECT_EQ(go(kBackup), nullptr);
}

// ---- in doubt, the atomic counts as under way

TEST_F(Flushed, FlushesThatDoNotFitTheJournalProveNothing) {
  done(1, kAtomic);
  for (uint64_t id = 2; id <= 4; id++) open(id, kWrite);
  break_without(1);
  EXPECT_NE(go(kBackup), nullptr);
}

TEST_F(Flushed, AReceiveWithoutAFlushMakesThemProveNothing) {
  done(1, kAtomic);
  open(2, kWrite);
  for (uint64_t id = 11; id <= 12; id++) post_recv(*group_, id);
  break_without(2);
  EXPECT_NE(go(kBackup), nullptr);
}

// The NIC cannot have completed a signaled request without saying so.
TEST_F(Flushed, ASignaledRequestThatIsMissingMakesThemProveNothing) {
  done(1, kAtomic);
  open(2, kWrite, true);
  on(kDefault).pending_sends.pop_back();
  open(3, kWrite);
  EXPECT_NE(go(kBackup), nullptr);
}

TEST_F(Flushed, ADeadDeviceTellsNothing) {
  done(1, kAtomic);
  open(2, kWrite);
  on(kDefault).flushes = false;
  world_.context.members[kDefault].dead = true;
  EXPECT_NE(go(kBackup), nullptr);
}

// Such a QP has sent nothing, and its NIC may not flush what it was given.
TEST_F(Flushed, AQpThatMayNotSendTellsNothing) {
  group_->life.members[kDefault].can_send = false;
  done(1, kAtomic);
  EXPECT_NE(go(kBackup), nullptr);
}

TEST_F(Flushed, WithoutKnowledgeOfWhatTheNicHasTheyProveNothing) {
  done(1, kAtomic);
  open(2, kWrite);
  group_->send.given_from = UINT64_MAX;  // a doorbell has failed
  EXPECT_NE(go(kBackup), nullptr);
}

// C2: the peer's NIC has acknowledged the SEND, and died before it told of it. The SEND runs again,
// and the atomic after it must not.
TEST_F(Flushed, AnAtomicAfterANotificationThatIsNotCountedIsInDoubt) {
  done(1, IBV_WR_SEND);
  done(2, kAtomic);
  open(3, kWrite);
  EXPECT_NE(go(kBackup, 0), nullptr);
}

TEST_F(Flushed, AnAtomicAfterACountedNotificationIsNot) {
  done(1, IBV_WR_SEND);
  done(2, kAtomic);
  open(3, kWrite);
  EXPECT_EQ(go(kBackup, 1), nullptr);
  EXPECT_EQ(posted(kBackup), Ids{3});
}

// ---- further rounds

TEST_F(Flushed, APathThatWasGivenNothingTellsNothing) {
  open(1, kAtomic);
  leave_for(*group_, kBackup, kBackup);
  EXPECT_NE(go(kThird), nullptr);
}

TEST_F(Flushed, ALaterPathTellsOfWhatItWasGiven) {
  done(1, kAtomic);
  open(2, kWrite);
  ASSERT_EQ(go(kBackup), nullptr);
  path_send(*group_, 3, kAtomic, false);
  on(kBackup).pending_sends.clear();
  path_send(*group_, 4, kWrite, false);
  EXPECT_EQ(go(kThird), nullptr);
  EXPECT_EQ(posted(kThird), Ids{4});
}

TEST_F(Flushed, WhatAnEarlierPathToldIsNotForgotten) {
  done(1, kAtomic);
  open(2, kWrite);
  ASSERT_EQ(go(kBackup), nullptr);
  on(kBackup).flushes = false;
  world_.context.members[kBackup].dead = true;
  EXPECT_EQ(go(kThird), nullptr);
  EXPECT_EQ(posted(kThird), Ids{2});
}

// ---- the mode exact

class FlushedExact : public Flushed {
 protected:
  FlushedExact() {
    group_->mode = Mode::kExact;
    group_->send.journal.count_packets(1024);
    group_->send.sent = {.known = true, .begin = 100, .psn = 100};
    done(1, kAtomic);
    open(2, kWrite);
  }
};

TEST_F(FlushedExact, TheResultOfSuchAnAtomicIsNotLost) {
  group_->life.control.peer_responder = 101;
  EXPECT_EQ(go(kBackup), nullptr);
  EXPECT_EQ(posted(kBackup), Ids{2});
}

TEST_F(FlushedExact, ANumberThatContradictsIsRefused) {
  group_->life.control.peer_responder = 100;
  EXPECT_NE(go(kBackup), nullptr);
}

}  // namespace
}  // namespace shift::group
