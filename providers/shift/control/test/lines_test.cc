// Tests that an incident that meets many QPs does not fill the log.
#include <gtest/gtest.h>

#include <string>

#include "control/test/two_hosts.h"
#include "util/log.h"

namespace shift::control {
namespace {

using std::chrono::seconds;

constexpr int kPairs = 20;

class LinesTest : public TwoHosts {
 protected:
  LinesTest() : TwoHosts(kPairs) {}

  std::string said_in(seconds time) {
    ::testing::internal::CaptureStderr();
    run(time);
    return ::testing::internal::GetCapturedStderr();
  }
  static uint32_t lines_with(const std::string& text, const std::string& part) {
    uint32_t found = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at++) found++;
    return found;
  }
};

TEST_F(LinesTest, APortThatGoesDownNamesAFewQps) {
  run(seconds(1));
  log_set_level(LogLevel::kInfo);
  a_.port(group::kDefault, false);
  const std::string text = said_in(seconds(2));
  log_set_level(LogLevel::kWarn);
  EXPECT_EQ(lines_with(text, " goes on over "), 2 * kFewLines) << text;
  const std::string rest = std::to_string(kPairs - kFewLines);
  EXPECT_EQ(lines_with(text, "info: " + rest + " more QPs go on over another NIC\n"), 2u) << text;
}

// At the default level nothing is counted that would not be written.
TEST_F(LinesTest, WhatIsNotWrittenIsNotLeftOut) {
  run(seconds(1));
  a_.port(group::kDefault, false);
  EXPECT_EQ(lines_with(said_in(seconds(2)), "more QPs"), 0u);
}

}  // namespace
}  // namespace shift::control
