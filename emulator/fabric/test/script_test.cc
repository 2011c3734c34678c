// Scripts: order, repetitions, and that every line is checked.
#include "fabric/script.h"

#include <gtest/gtest.h>

#include <memory>

namespace cxemu {
namespace {

class ScriptTest : public ::testing::Test {
 protected:
  ScriptTest() : fabric_(std::make_unique<FabricFile>()) {
    for (uint32_t host = 0; host < 2; host++) {
      fabric_->host_name[host][0] = static_cast<char>('a' + host);
      FabricNic& nic = fabric_->nic[host * kMaxNicsPerHost];
      nic.host = host;
      nic.used = 1;
    }
    fabric_->host_count = 2;
  }
  // Returns "MS LINE TEXT" for every event.
  std::vector<std::string> events(const std::string& text) {
    std::vector<ScriptEvent> all;
    std::string error;
    EXPECT_TRUE(script_parse(*fabric_, text, "x", 1, &all, &error)) << error;
    std::vector<std::string> shown;
    for (const ScriptEvent& event : all)
      shown.push_back(std::to_string(event.time_ns / 1'000'000) + " " + event.name + " " +
                      event.text);
    return shown;
  }
  std::string refusal(const std::string& text) {
    std::vector<ScriptEvent> all;
    std::string error;
    EXPECT_FALSE(script_parse(*fabric_, text, "x", 1, &all, &error)) << text;
    return error;
  }
  std::unique_ptr<FabricFile> fabric_;
};

TEST_F(ScriptTest, EventsComeInTheOrderOfTime) {
  EXPECT_EQ(events("# a script\n"
                   "2 a/mlx5_0 heal\n"
                   "\n"
                   "500ms a/mlx5_0 loss=1 dir=in  drop-acks # both\n"
                   "0 b/mlx5_0 link-down\n"
                   "0.5 b/mlx5_0 link-up\n"
                   "1m b/mlx5_0 kill\n"),
            (std::vector<std::string>{
                "0 b/mlx5_0 link-down", "500 a/mlx5_0 loss=1 dir=in drop-acks",
                "500 b/mlx5_0 link-up", "2000 a/mlx5_0 heal", "60000 b/mlx5_0 kill"}));
}

TEST_F(ScriptTest, Repetitions) {
  EXPECT_EQ(events("100ms+1sx3 a/mlx5_0 link-down\n600ms+1sx3 a/mlx5_0 link-up"),
            (std::vector<std::string>{"100 a/mlx5_0 link-down", "600 a/mlx5_0 link-up",
                                      "1100 a/mlx5_0 link-down", "1600 a/mlx5_0 link-up",
                                      "2100 a/mlx5_0 link-down", "2600 a/mlx5_0 link-up"}));
}

TEST_F(ScriptTest, Refusals) {
  for (const char* text :
       {"", "# nothing", "soon a/mlx5_0 heal", "1h a/mlx5_0 heal", "-1 a/mlx5_0 heal",
        "1..5 a/mlx5_0 heal", "1+1s a/mlx5_0 heal", "1+1sx0 a/mlx5_0 heal",
        "1+1sx9999999 a/mlx5_0 heal", "1+1sx100001 a/mlx5_0 heal", "1", "1 c/mlx5_0 heal",
        "1 a/mlx5_1 heal", "1 a/mlx5_0", "1 a/mlx5_0 fire"})
    EXPECT_FALSE(refusal(text).empty()) << text;
  EXPECT_EQ(refusal("0 a/mlx5_0 heal\n1 a/mlx5_0 fire\n").substr(0, 10), "x:2: fire:");
}

}  // namespace
}  // namespace cxemu
