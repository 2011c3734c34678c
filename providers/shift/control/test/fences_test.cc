#include "control/fences.h"

#include <gtest/gtest.h>

#include <vector>

#include "control/test/lone_session.h"
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
  Fences fences_{loop_, sessions_, [this](Session& session, const Fence::Entry& entry) {
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

}  // namespace
}  // namespace shift::control
