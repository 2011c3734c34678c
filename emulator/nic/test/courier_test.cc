// A few campaigns of every service. For many more, run cxemu_nic_campaign --seeds N.
#include "courier.h"

#include <gtest/gtest.h>

namespace cxemu::test {
namespace {

class Couriers : public ::testing::TestWithParam<CourierService> {
 protected:
  void all_right(uint64_t seed) {
    SCOPED_TRACE(std::string(courier_name(GetParam())) + ", seed " + std::to_string(seed));
    const CourierReport report = courier_run(GetParam(), seed, 3000);
    EXPECT_EQ(report.problem, "");
    EXPECT_EQ(report.sent, 3000u);
    EXPECT_GT(report.received, 1000u);
    EXPECT_GT(report.spoiled, 10u) << "the wire was not bad enough to show anything";
  }
};

TEST_P(Couriers, LossesCostWhatTheyMust) {
  all_right(1);
}
TEST_P(Couriers, DisorderSpoilsNothing) {
  all_right(2);
}

INSTANTIATE_TEST_SUITE_P(Services, Couriers, ::testing::ValuesIn(kCourierServices));

}  // namespace
}  // namespace cxemu::test
