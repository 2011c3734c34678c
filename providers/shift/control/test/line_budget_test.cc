// Tests how the lines of one incident are bounded, and that those left out are counted.
#include "control/line_budget.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "net/test/virtual_loop.h"
#include "util/log.h"

namespace shift::control {
namespace {

using std::chrono::milliseconds;

std::vector<unsigned long long> told_rests;

class LineBudgetTest : public ::testing::Test {
 protected:
  LineBudgetTest() { told_rests.clear(); }
  uint32_t allowed(int lines) {
    uint32_t count = 0;
    for (int i = 0; i < lines; i++) count += budget_->allow();
    return count;
  }

  net::VirtualTime time_;
  net::VirtualLoop loop_{time_};
  std::optional<LineBudget> budget_{std::in_place, loop_,
                                    [](unsigned long long count) { told_rests.push_back(count); }};
};

TEST_F(LineBudgetTest, AFewLinesASecondAreWritten) {
  EXPECT_EQ(allowed(kFewLines), kFewLines);
  time_.run_for(milliseconds(2000));
  EXPECT_TRUE(told_rests.empty()) << "nothing was left out";
  EXPECT_EQ(allowed(kFewLines), kFewLines);
}

// A port with 2000 QPs goes down.
TEST_F(LineBudgetTest, TheOthersAreCountedWhenTheSecondIsOver) {
  EXPECT_EQ(allowed(2000), kFewLines);
  time_.run_for(milliseconds(500));
  EXPECT_EQ(allowed(10), 0u);
  EXPECT_TRUE(told_rests.empty());
  time_.run_for(milliseconds(501));
  EXPECT_EQ(told_rests, std::vector<unsigned long long>{2010 - kFewLines});
  EXPECT_EQ(allowed(20), kFewLines);
  time_.run_for(milliseconds(2000));
  EXPECT_EQ(told_rests.size(), 2u);
  EXPECT_EQ(told_rests.back(), 20u - kFewLines);
}

TEST_F(LineBudgetTest, TheEndTellsWhatIsLeft) {
  allowed(9);
  budget_.reset();
  EXPECT_EQ(told_rests, std::vector<unsigned long long>{9 - kFewLines});
  time_.run_for(milliseconds(2000));
  EXPECT_EQ(told_rests.size(), 1u);
}

}  // namespace
}  // namespace shift::control
