#include "control/fences.h"

#include <gtest/gtest.h>

#include <vector>

#include "control/test/lone_session.h"
#include "group/test/batch.h"
#include "util/config.h"

namespace shift::control {
namespace {

using fsm::State;
using group::Fence;
using group::kDefault;
using std::chrono::milliseconds;

class FencesTest : public SessionTest {
 protected:
  Session& leave(State state = State::kFencing) {
    Session& session = make();
    session.control.state = state;
    fences_.start(session);
    return session;
  }
  group::FakeQp& qp(Session& session) { return group::World::fake(&session.group, kDefault); }
  struct Told {
    Session* session;
    Fence::Result result;
    bool operator==(const Told&) const = default;
  };

  std::vector<Told> told_;
  Fences fences_{loop_, sessions_, late_, [this](Session& session, const Fence::Entry& entry) {
                   told_.push_back({&session, entry.result});
                 }};
};

TEST_F(FencesTest, AllThatIsKnownByNowIsParkedTogether) {
  Session& one = leave();
  Session& two = leave(State::kFencingTargeted);
  EXPECT_FALSE(qp(one).in_error());
  run_for(milliseconds(1));
  EXPECT_EQ(told_,
            (std::vector<Told>{{&one, Fence::Result::kProven}, {&two, Fence::Result::kProven}}));
  EXPECT_TRUE(qp(one).in_error() && qp(two).in_error());
  EXPECT_EQ(one.group.send.route, group::Route::kParked);
}

// C7
TEST_F(FencesTest, OneThatTakesItsTimeHoldsUpNoOther) {
  Session& slow = leave();
  qp(slow).flushes = false;
  Session& fast = leave();
  run_for(milliseconds(10));
  EXPECT_EQ(told_, (std::vector<Told>{{&fast, Fence::Result::kProven}}));
  run_for(milliseconds(2 * config().fence_ms));
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_EQ(told_[1], (Told{&slow, Fence::Result::kNotProven}));
}

TEST_F(FencesTest, EachIsToldOnce) {
  Session& slow = leave();
  qp(slow).flushes = false;
  leave();
  run_for(milliseconds(3 * config().fence_ms));
  EXPECT_EQ(told_.size(), 2u);
  EXPECT_EQ(time_.next(), net::VirtualTime::Clock::time_point::max()) << "nothing is waited for";
}

TEST_F(FencesTest, ASessionThatHasMovedOnIsNotFenced) {
  Session& session = leave();
  session.control.state = State::kClosed;
  run_for(milliseconds(10));
  EXPECT_TRUE(told_.empty());
  EXPECT_FALSE(qp(session).in_error());
}

TEST_F(FencesTest, ASessionThatIsGoneIsNotTold) {
  Session& session = leave();
  qp(session).flushes = false;
  run_for(milliseconds(1));
  fences_.forget(&session.group);
  sessions_.remove(session);
  run_for(milliseconds(2 * config().fence_ms));
  EXPECT_TRUE(told_.empty());
}

TEST_F(FencesTest, ALaterOneIsABatchOfItsOwn) {
  Session& slow = leave();
  qp(slow).flushes = false;
  run_for(milliseconds(5));
  Session& later = leave();
  run_for(milliseconds(5));
  EXPECT_EQ(told_, (std::vector<Told>{{&later, Fence::Result::kProven}}));
  qp(slow).flushes = true;
  qp(slow).flush();
  run_for(milliseconds(5));
  EXPECT_EQ(told_.back(), (Told{&slow, Fence::Result::kProven}));
}

// The NIC's commands hang.
class LateFences : public FencesTest {
 protected:
  LateFences() { commands_.late.insert(0); }
  void post(Session& session, uint64_t wr_id) {
    group::post_send(session.group, wr_id, IBV_WR_SEND);
  }
};

// C6: the round's deadline bounds the wait, and not the fence, whose NIC may answer yet.
TEST_F(LateFences, ANicThatDoesNotAnswerIsWaitedFor) {
  Session& session = leave();
  run_for(milliseconds(3 * config().fence_ms));
  EXPECT_TRUE(told_.empty());
  commands_.answer(0);
  run_for(milliseconds(5));
  EXPECT_EQ(told_, (std::vector<Told>{{&session, Fence::Result::kProven}}));
}

// A NIC whose requests are not acknowledged breaks the QP by itself.
TEST_F(LateFences, TheNicsOwnErrorProvesAsMuchAsItsAnswer) {
  Session& session = make();
  post(session, 1);
  session.control.state = State::kFencing;
  fences_.start(session);
  run_for(milliseconds(50));
  EXPECT_TRUE(told_.empty());
  ASSERT_EQ(qp(session).pending_sends.size(), 2u) << "a marker is behind the request";
  EXPECT_TRUE(qp(session).recvs.empty()) << "a message of the peer could take a marker there";
  qp(session).break_with(IBV_WC_RETRY_EXC_ERR);
  run_for(milliseconds(5));
  EXPECT_EQ(told_, (std::vector<Told>{{&session, Fence::Result::kProven}}));
  commands_.answer(0);
}

// C2, C3: the QP still works, and takes what the peer sends.
TEST_F(LateFences, AMarkerThatArrivesProvesNothing) {
  Session& session = leave();
  for (int turn = 0; turn < 3; turn++) {
    run_for(milliseconds(20));
    ASSERT_TRUE(qp(session).complete_send()) << turn;
  }
  run_for(milliseconds(20));
  EXPECT_TRUE(told_.empty());
  commands_.answer(0);
  run_for(milliseconds(5));
  EXPECT_EQ(told_, (std::vector<Told>{{&session, Fence::Result::kProven}}));
}

// A NIC that refuses ERR has answered.
TEST_F(FencesTest, AnAnswerOfNoEndsTheWait) {
  Session& session = make();
  qp(session).modify_error = EINVAL;
  session.control.state = State::kFencing;
  fences_.start(session);
  run_for(milliseconds(2 * config().fence_ms));
  EXPECT_EQ(told_, (std::vector<Told>{{&session, Fence::Result::kNotProven}}));
}

// C7: a thread of the program builds a batch, and may wait for another QP or for this loop.
TEST_F(FencesTest, ABatchHoldsUpOnlyItsOwnFence) {
  Session& building = leave();
  Session& other = leave();
  group::OpenBatch batch(building.group);
  if (!batch.is_hot) GTEST_SKIP() << "no membarrier(2) here";
  ASSERT_TRUE(batch.lets_return([&] { run_for(milliseconds(10)); }));
  EXPECT_EQ(told_, (std::vector<Told>{{&other, Fence::Result::kProven}}));
  EXPECT_FALSE(qp(building).in_error());
  batch.end();
  run_for(milliseconds(10));
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_EQ(told_[1], (Told{&building, Fence::Result::kProven}));
}

TEST_F(FencesTest, ASessionThatFailsInABatchIsNotFenced) {
  Session& session = leave();
  group::OpenBatch batch(session.group);
  if (!batch.is_hot) GTEST_SKIP() << "no membarrier(2) here";
  ASSERT_TRUE(batch.lets_return([&] {
    run_for(milliseconds(10));
    session.control.state = State::kFailed;
    session.failing.begin();
    run_for(milliseconds(10));
  }));
  EXPECT_FALSE(session.group.send.bias.is_quiet());
  batch.end();
  run_for(milliseconds(500));  // LateNics looks at the NICs for a while
  EXPECT_TRUE(session.group.send.bias.is_quiet());
  EXPECT_TRUE(told_.empty());
  EXPECT_EQ(time_.next(), net::VirtualTime::Clock::time_point::max()) << "nothing is waited for";
}

}  // namespace
}  // namespace shift::control
