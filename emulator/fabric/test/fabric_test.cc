// The shared file: creation, hosts, addresses, process slots, change notification.
#include "fabric/fabric.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "fabric/gid.h"
#include "fabric/net.h"
#include "fabric/paths.h"
#include "fabric/reclaim.h"

namespace cxemu {
namespace {

class FabricTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string dir = ::testing::TempDir() + "cxemu-fabric-XXXXXX";
    ASSERT_NE(mkdtemp(dir.data()), nullptr);
    dir_ = dir;
    path_ = dir + "/f/fabric";
  }
  void TearDown() override {
    if (fabric_) net_release("/tmp", fabric_->net, path_);
    std::filesystem::remove_all(dir_);
  }
  void create() {
    fabric_ = Fabric::open_or_create(path_, &error_);
    ASSERT_TRUE(fabric_) << error_;
  }
  std::string dir_, path_, error_;
  Fabric fabric_;
};

TEST_F(FabricTest, OpenRefusesWhatIsNotThere) {
  EXPECT_FALSE(Fabric::open(path_, &error_));
  EXPECT_NE(error_.find("No such file"), std::string::npos) << error_;
}

TEST_F(FabricTest, OpenRefusesAForeignFile) {
  std::filesystem::create_directories(dir_ + "/f");
  std::ofstream(path_) << "not a fabric";
  EXPECT_FALSE(Fabric::open(path_, &error_));
  EXPECT_NE(error_.find("not a fabric"), std::string::npos) << error_;
}

TEST_F(FabricTest, CreateRefusesAFolderOpenToOthers) {
  ASSERT_EQ(mkdir((dir_ + "/f").c_str(), 0700), 0);
  ASSERT_EQ(chmod((dir_ + "/f").c_str(), 0755), 0);
  EXPECT_FALSE(Fabric::open_or_create(path_, &error_));
  EXPECT_NE(error_.find("0700"), std::string::npos) << error_;
}

TEST_F(FabricTest, SecondOpenSeesTheSameHosts) {
  create();
  EXPECT_EQ(fabric_.host_ensure("a", 2), 0);
  EXPECT_EQ(fabric_.host_ensure("b", 1), 1);
  EXPECT_EQ(fabric_.host_ensure("a", 2), 0);
  Fabric other = Fabric::open(path_, &error_);
  ASSERT_TRUE(other) << error_;
  EXPECT_EQ(other.host_find("b"), 1);
  EXPECT_EQ(other.host_find("c"), -1);
  EXPECT_EQ(other.host_nics(0), 2);
  EXPECT_EQ(other.host_nics(1), 1);
}

TEST_F(FabricTest, AHostCanGetMoreNicsLater) {
  create();
  fabric_.host_ensure("a", 1);
  fabric_.nic(0, 0)->faults = kLinkDown;
  EXPECT_EQ(fabric_.host_ensure("a", 3), 0);
  EXPECT_EQ(fabric_.host_nics(0), 3);
  EXPECT_EQ(fabric_.nic(0, 0)->faults, kLinkDown);  // the NICs that existed stay as they were
  EXPECT_EQ(fabric_.host_ensure("a", 1), 0);
  EXPECT_EQ(fabric_.host_nics(0), 3);
}

TEST_F(FabricTest, HostLimits) {
  create();
  EXPECT_EQ(fabric_.host_ensure("", 1), -1);
  EXPECT_EQ(fabric_.host_ensure("../x", 1), -1);
  EXPECT_EQ(fabric_.host_ensure("a", 0), -1);
  EXPECT_EQ(fabric_.host_ensure("a", kMaxNicsPerHost + 1), -1);
  for (int i = 0; i < kMaxHosts; ++i) EXPECT_EQ(fabric_.host_ensure("h" + std::to_string(i), 1), i);
  EXPECT_EQ(fabric_.host_ensure("onemore", 1), -1);
}

TEST_F(FabricTest, AddressesLeadBackToTheirNic) {
  create();
  fabric_.host_ensure("a", 2);
  fabric_.host_ensure("b", 2);
  FabricNic* nic = fabric_.nic(1, 1);
  EXPECT_EQ(ntohl(nic->ipv4_be), 127u << 24 | fabric_->net << 16 | 2 << 8 | 2);
  EXPECT_EQ(fabric_.nic_by_address(nic->ipv4_be), nic);
  EXPECT_EQ(fabric_.nic_by_address(htonl(127u << 24 | 1)), nullptr);
  EXPECT_EQ(fabric_.nic_by_address(htonl(ntohl(nic->ipv4_be) + 1)), nullptr);  // no such NIC
  EXPECT_EQ(fabric_.nic_by_address(htonl(ntohl(nic->ipv4_be) | 0xff)), nullptr);
  for (int index = 0; index < kGidCount; ++index) {
    uint8_t gid[16];
    nic_gid(*nic, index, gid);
    EXPECT_EQ(nic_by_gid(fabric_, gid), gid_is_empty(*nic, index) ? nullptr : nic) << index;
    gid[15] ^= 0x40;
    EXPECT_EQ(nic_by_gid(fabric_, gid), nullptr) << index;
  }
}

TEST_F(FabricTest, ProcessSlotsAreReclaimedFromTheDead) {
  create();
  fabric_.host_ensure("a", 1);
  const pid_t child = fork();
  if (child == 0) _exit(fabric_.process_join(0) == 1 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(fabric_->process[1].pid, child);  // died without leaving
  EXPECT_EQ(fabric_.process_count(-1), 0);
  // Slots are taken in turn, so that numbers are reused late; in the end the dead process's slot is
  // free again.
  for (int i = 2; i <= kMaxProcesses; ++i) EXPECT_EQ(fabric_.process_join(0), i);
  EXPECT_EQ(fabric_.process_join(0), 1);
  EXPECT_EQ(fabric_.process_join(0), -1);
  EXPECT_EQ(fabric_.process_count(0), kMaxProcesses);
  EXPECT_EQ(fabric_.process_count(1), 0);
  fabric_.process_leave(7);
  EXPECT_EQ(fabric_.process_join(0), 7);
}

TEST_F(FabricTest, OnlyIdleFabricsWithoutProcessesAreRemoved) {
  create();
  fabric_.host_ensure("a", 1);
  std::ofstream(dir_ + "/.cxemu-net-9") << path_;  // the claims of this test alone
  EXPECT_EQ(idle_fabrics_remove(dir_, 60), 0);     // it was used just now
  const int slot = fabric_.process_join(0);
  EXPECT_EQ(idle_fabrics_remove(dir_, 0), 0);  // this process is in it
  fabric_.process_leave(slot);
  const timespec ahead[2] = {{time(nullptr) + 3600, 0}, {time(nullptr) + 3600, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, path_.c_str(), ahead, 0), 0);  // stamped by a clock that is ahead
  EXPECT_EQ(idle_fabrics_remove(dir_, 1), 0);
  EXPECT_EQ(idle_fabrics_remove(dir_, 0), 1);
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(idle_fabrics_remove(dir_, 0), 0);
}

TEST_F(FabricTest, ChangeNotifyEndsTheWait) {
  create();
  fabric_.host_ensure("a", 1);
  const uint32_t seen = fabric_->change_count.load();
  std::thread waiter([&] {
    while (fabric_->change_count.load() == seen) fabric_.change_wait(seen);
  });
  nic_changed(*fabric_, *fabric_.nic(0, 0));
  waiter.join();
  EXPECT_EQ(fabric_.nic(0, 0)->generation.load(), 1u);
}

TEST(PathsTest, Names) {
  EXPECT_TRUE(name_valid("a"));
  EXPECT_TRUE(name_valid("node-1_X"));
  EXPECT_FALSE(name_valid(""));
  EXPECT_FALSE(name_valid("a/b"));
  EXPECT_FALSE(name_valid(".."));
  EXPECT_FALSE(name_valid(std::string(25, 'a')));
}

}  // namespace
}  // namespace cxemu
