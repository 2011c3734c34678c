// The choice of a fabric's wire.
#include <gtest/gtest.h>

#include "fabric/paths.h"
#include "host/test/emulated_test.h"

namespace cxemu {
namespace {

class WireTest : public EmulatedTest {
 protected:
  void TearDown() override {
    run({CXEMU_PROGRAM, "clean", "--fabric", "wired"});
    EmulatedTest::TearDown();
  }
  // Runs nothing on a host of the fabric "wired".
  static int exec(const std::vector<std::string>& options, std::string* output) {
    std::vector<std::string> all = {CXEMU_PROGRAM, "exec", "--fabric", "wired", "--host", "a"};
    all.insert(all.end(), options.begin(), options.end());
    all.insert(all.end(), {"--", "true"});
    return run(all, output);
  }
};

TEST_F(WireTest, IsChosenOnceAndThenKept) {
  std::string output, error;
  ASSERT_EQ(exec({"--wire", "udp"}, &output), 0) << output;
  const Fabric fabric = Fabric::open(fabric_file("wired"), &error);
  ASSERT_TRUE(fabric) << error;
  EXPECT_EQ(fabric->wire, kWireUdp);
  EXPECT_EQ(exec({}, &output), 0) << output;
  EXPECT_EQ(exec({"--wire", "udp"}, &output), 0) << output;
  EXPECT_EQ(exec({"--wire", "unix"}, &output), 1);
  EXPECT_NE(output.find("another wire"), std::string::npos) << output;
  EXPECT_EQ(fabric->wire, kWireUdp);
}

TEST_F(WireTest, UnknownIsRefused) {
  std::string output;
  EXPECT_EQ(exec({"--wire", "tcp"}, &output), 1);
  EXPECT_NE(output.find("unix or udp"), std::string::npos) << output;
}

}  // namespace
}  // namespace cxemu
