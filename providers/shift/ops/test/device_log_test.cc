// What the log says of the device list, and how often.
#include "ops/device_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "util/log.h"

namespace shift::ops {
namespace {

class DeviceLog : public ::testing::Test {
 protected:
  DeviceLog() {
    for (size_t i = 0; i < list_.size(); i++) {
      std::snprintf(device_[i].name, sizeof device_[i].name, "%s", name(i).c_str());
      list_[i] = &device_[i];
    }
  }
  // The name of one of the three devices. Each test has other names, since the log says each thing
  // only once in a process.
  std::string name(size_t i) const { return letter_ + ("_" + std::to_string(i)); }
  template <typename Act>
  static std::string said(Act act) {
    testing::internal::CaptureStderr();
    act();
    return testing::internal::GetCapturedStderr();
  }

  std::array<ibv_device, 3> device_{};
  std::array<ibv_device*, 3> list_{};

 private:
  static inline char next_letter_ = 'a';
  const char letter_ = next_letter_++;
};

size_t lines(const std::string& text) {
  return static_cast<size_t>(std::ranges::count(text, '\n'));
}

TEST_F(DeviceLog, ANameThatNoDeviceHasIsNamedOnceWithThoseThatThereAre) {
  const std::vector<Names> groups{{name(0), name(7)}, {name(2), name(8)}};
  for (const bool first : {true, false}) {
    const std::string text = said([&] { log_missing_names(groups, list_); });
    EXPECT_EQ(lines(text), first ? 2u : 0u) << text;
    if (!first) break;
    EXPECT_NE(text.find("warn: SHIFT_PAIRS names "), std::string::npos) << text;
    EXPECT_NE(text.find('"' + name(7) + '"'), std::string::npos) << text;
    EXPECT_NE(text.find('"' + name(8) + '"'), std::string::npos) << text;
    EXPECT_NE(text.find(name(0) + ", " + name(1) + ", " + name(2)), std::string::npos) << text;
  }
}

TEST_F(DeviceLog, NothingIsSaidOfNamesThatFitNorOfAHostWithoutDevices) {
  EXPECT_EQ(said([&] { log_missing_names({{name(0), name(1), name(2)}}, list_); }), "");
  EXPECT_EQ(said([&] { log_missing_names({{name(0), name(7)}}, {}); }), "");
}

TEST_F(DeviceLog, AGroupIsToldOnceAndSoIsWhoHasNone) {
  log_set_level(LogLevel::kInfo);
  for (const bool first : {true, false}) {
    const std::string text = said([&] {
      log_group(list_, {0, 2, 1});
      log_group(list_, {1});
    });
    EXPECT_EQ(lines(text), first ? 2u : 0u) << text;
    if (!first) break;
    EXPECT_NE(text.find(name(0) + " is backed by " + name(2) + ", then by " + name(1) + "\n"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find(name(1) + " has no partner"), std::string::npos) << text;
  }
  log_set_level(LogLevel::kWarn);
  EXPECT_EQ(said([&] { log_group(list_, {0, 1}); }), "");
}

}  // namespace
}  // namespace shift::ops
