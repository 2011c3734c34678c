#include "control/reaper.h"

#include <gtest/gtest.h>

#include "net/test/virtual_loop.h"

namespace shift::control {
namespace {

using std::chrono::milliseconds;

// A loop that counts how often it is woken, and refuses tasks when the test says so.
class CountingLoop final : public net::VirtualLoop {
 public:
  using VirtualLoop::VirtualLoop;
  bool call_soon(Task task) noexcept override {
    if (refuses) return false;
    wakes++;
    return VirtualLoop::call_soon(std::move(task));
  }
  int wakes = 0;
  bool refuses = false;
};

class ReaperTest : public ::testing::Test {
 protected:
  bool add(int number) {
    net::Loop::Task task = [this, number] { done_.push_back(number); };
    const bool is_added = reaper_.add(task);
    EXPECT_EQ(task == nullptr, is_added) << "who keeps the task can run it";
    return is_added;
  }

  net::VirtualTime time_;
  CountingLoop loop_{time_};
  Reaper reaper_{loop_};
  std::vector<int> done_;
};

TEST_F(ReaperTest, DoesAllTogetherInTheirOrder) {
  for (int i = 0; i < 5; i++) EXPECT_TRUE(add(i));
  EXPECT_EQ(loop_.wakes, 1);
  time_.run_for(milliseconds(1));
  EXPECT_TRUE(done_.empty());
  EXPECT_TRUE(add(5));
  time_.run_for(milliseconds(2));
  EXPECT_EQ(done_, (std::vector{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(loop_.wakes, 1);
  EXPECT_TRUE(add(6));
  time_.run_for(milliseconds(3));
  EXPECT_EQ(done_.size(), 7u);
  EXPECT_EQ(loop_.wakes, 2);
}

TEST_F(ReaperTest, DoesAllAtOnceWhenItIsTold) {
  EXPECT_TRUE(add(1));
  reaper_.run();
  EXPECT_EQ(done_, (std::vector{1}));
  EXPECT_TRUE(add(2));
  time_.run_for(milliseconds(10));
  EXPECT_EQ(done_, (std::vector{1, 2}));
}

TEST_F(ReaperTest, OneThatFailsDoesNotStopTheOthers) {
  net::Loop::Task fails = [] { throw std::bad_alloc(); };
  EXPECT_TRUE(reaper_.add(fails));
  EXPECT_TRUE(add(1));
  time_.run_for(milliseconds(10));
  EXPECT_EQ(done_, (std::vector{1}));
}

TEST_F(ReaperTest, SaysWhenThereIsNoLoop) {
  loop_.refuses = true;
  EXPECT_FALSE(add(1));
  loop_.refuses = false;
  EXPECT_TRUE(add(2));
  time_.run_for(milliseconds(10));
  EXPECT_EQ(done_, (std::vector{2}));
}

}  // namespace
}  // namespace shift::control
