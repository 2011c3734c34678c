#include "net/timer.h"

#include <gtest/gtest.h>

#include <memory>

#include "net/test/virtual_loop.h"

namespace shift::net {
namespace {

using std::chrono::milliseconds;

class TimerTest : public ::testing::Test {
 protected:
  VirtualTime time_;
  VirtualLoop loop_{time_};
  int fired_ = 0;
};

TEST_F(TimerTest, RunsOnceInItsTime) {
  Timer timer(loop_);
  timer.start(milliseconds(5), [&] { fired_++; });
  EXPECT_TRUE(timer.is_running());
  time_.run_for(milliseconds(4));
  EXPECT_EQ(fired_, 0);
  time_.run_for(milliseconds(20));
  EXPECT_EQ(fired_, 1);
  EXPECT_FALSE(timer.is_running());
}

TEST_F(TimerTest, ASecondStartTakesThePlaceOfTheFirst) {
  Timer timer(loop_);
  timer.start(milliseconds(5), [&] { fired_ += 100; });
  timer.start(milliseconds(10), [&] { fired_++; });
  time_.run_for(milliseconds(20));
  EXPECT_EQ(fired_, 1);
}

TEST_F(TimerTest, ACancelledOneDoesNotRun) {
  Timer timer(loop_);
  timer.cancel();  // it has no effect
  timer.start(milliseconds(5), [&] { fired_++; });
  timer.cancel();
  EXPECT_FALSE(timer.is_running());
  time_.run_for(milliseconds(20));
  EXPECT_EQ(fired_, 0);
}

TEST_F(TimerTest, EndsWithItsOwner) {
  auto timer = std::make_unique<Timer>(loop_);
  timer->start(milliseconds(5), [&] { fired_++; });
  timer.reset();
  time_.run_for(milliseconds(20));
  EXPECT_EQ(fired_, 0);
}

TEST_F(TimerTest, MayBeStartedAgainFromItsOwnTask) {
  Timer timer(loop_);
  const auto again = [&](auto self) -> void {
    EXPECT_FALSE(timer.is_running());
    if (++fired_ < 3) timer.start(milliseconds(5), [self] { self(self); });
  };
  timer.start(milliseconds(5), [again] { again(again); });
  time_.run_for(milliseconds(20));
  EXPECT_EQ(fired_, 3);
}

TEST_F(TimerTest, MayBeDestroyedFromItsOwnTask) {
  auto timer = std::make_unique<Timer>(loop_);
  timer->start(milliseconds(5), [&] {
    fired_++;
    timer.reset();
  });
  time_.run_for(milliseconds(20));
  EXPECT_EQ(fired_, 1);
}

}  // namespace
}  // namespace shift::net
