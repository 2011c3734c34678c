// The choice of a fabric's wire.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

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
  // Runs `true` on a host of the fabric "wired".
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

// For example, the kernel's RoCE receives for all addresses of the machine.
TEST_F(WireTest, PortOfAStrangerIsTold) {
  std::string output, error;
  ASSERT_EQ(exec({"--wire", "udp"}, &output), 0) << output;
  const Fabric fabric = Fabric::open(fabric_file("wired"), &error);
  ASSERT_TRUE(fabric) << error;
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in taken = {};
  taken.sin_family = AF_INET;
  taken.sin_addr.s_addr = fabric.nic(0, 1)->ipv4_be;
  taken.sin_port = htons(4791);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&taken), sizeof taken), 0);
  EXPECT_EQ(exec({}, &output), 1);
  EXPECT_NE(output.find("port 4791"), std::string::npos) << output;
  close(fd);
  EXPECT_EQ(exec({}, &output), 0) << output;
}

}  // namespace
}  // namespace cxemu
