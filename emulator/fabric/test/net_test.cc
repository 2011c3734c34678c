// Address blocks: no two live fabrics share one, and those of dead fabrics are reused.
#include "fabric/net.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace cxemu {
namespace {

class NetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string dir = ::testing::TempDir() + "cxemu-net-XXXXXX";
    ASSERT_NE(mkdtemp(dir.data()), nullptr);
    dir_ = dir;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string fabric(int i) {
    const std::string path = dir_ + "/fabric" + std::to_string(i);
    std::ofstream(path) << "x";
    return path;
  }
  std::string dir_, error_;
};

TEST_F(NetTest, AllDifferentUntilNoneIsLeft) {
  std::set<uint32_t> seen;
  const int count = kNetMax - kNetMin + 1;
  for (int i = 0; i < count; ++i) {
    const uint32_t net = net_claim(dir_, fabric(i), &error_);
    EXPECT_GE(net, kNetMin);
    EXPECT_LE(net, kNetMax);
    EXPECT_TRUE(seen.insert(net).second) << net;
  }
  EXPECT_EQ(net_claim(dir_, fabric(count), &error_), 0u);
  EXPECT_FALSE(error_.empty());
  // A fabric that is gone frees its block even if it was not released.
  std::filesystem::remove(dir_ + "/fabric3");
  EXPECT_NE(net_claim(dir_, fabric(count), &error_), 0u);
}

TEST_F(NetTest, OnlyTheOwnerReleases) {
  const uint32_t net = net_claim(dir_, fabric(1), &error_);
  const std::string claim = dir_ + "/.cxemu-net-" + std::to_string(net);
  net_release(dir_, net, fabric(2));
  EXPECT_TRUE(std::filesystem::exists(claim));
  net_release(dir_, net, fabric(1));
  EXPECT_FALSE(std::filesystem::exists(claim));
}

}  // namespace
}  // namespace cxemu
