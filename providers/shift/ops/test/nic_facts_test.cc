#include "ops/nic_facts.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace shift::ops {
namespace {

namespace fs = std::filesystem;

class NicFactsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/shift-facts-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
    const fs::path base = root_ / "class/infiniband/mlx5_7";
    fs::create_directories(base / "ports/1");
    std::snprintf(device_.ibdev_path, sizeof device_.ibdev_path, "%s", base.c_str());
    std::snprintf(device_.name, sizeof device_.name, "mlx5_7");
    device_.node_type = IBV_NODE_CA;
  }
  void TearDown() override { fs::remove_all(root_); }
  fs::path base() const { return device_.ibdev_path; }
  static void write(const fs::path& path, const std::string& text) {
    std::ofstream(path) << text << '\n';
  }
  fs::path function_make(const std::string& path) {
    const fs::path made = root_ / "devices/pci0000:b0/0000:b0:01.0" / path;
    fs::create_directories(made);
    return made;
  }

  NicFacts facts_with_speed(std::chrono::milliseconds patience = std::chrono::minutes(1)) {
    std::vector<NicFacts> facts{nic_facts(device_)};
    ibv_device* const device = &device_;
    port_speeds_read({&device, 1}, facts, patience);
    return facts.front();
  }

  fs::path root_;
  ibv_device device_{};
};

TEST_F(NicFactsTest, AreReadFromSysfs) {
  const fs::path function = function_make("0000:b1:00.1");
  write(function / "numa_node", "1");
  fs::create_directories(root_ / "bus/pci/drivers/mlx5_core");
  fs::create_directory_symlink(root_ / "bus/pci/drivers/mlx5_core", function / "driver");
  fs::create_directory_symlink(function, base() / "device");
  write(base() / "ports/1/link_layer", "InfiniBand");
  write(base() / "ports/1/state", "4: ACTIVE");
  write(base() / "ports/1/rate", "400 Gb/sec (4X NDR)");
  const NicFacts facts = facts_with_speed();
  EXPECT_EQ(facts.kind, "1 mlx5_core");
  EXPECT_EQ(facts.link_layer, "InfiniBand");
  EXPECT_EQ(facts.gigabits, 400);
  EXPECT_EQ(facts.place, (std::vector<std::string>{"0000:b0:01.0", "0000:b1:00.1"}));
  EXPECT_EQ(facts.numa_node, 1);
}

TEST_F(NicFactsTest, AreUnknownWithoutSysfs) {
  const NicFacts facts = facts_with_speed();
  EXPECT_EQ(facts.kind, "1 mlx");
  EXPECT_EQ(facts.link_layer, "");
  EXPECT_FALSE(facts.gigabits || facts.numa_node);
  EXPECT_TRUE(facts.place.empty());
}

TEST_F(NicFactsTest, APortThatIsDownHasNoSpeedAndNoNumaNodeIsNotOne) {
  const fs::path function = function_make("0000:b1:00.0");
  write(function / "numa_node", "-1");
  fs::create_directory_symlink(function, base() / "device");
  write(base() / "ports/1/state", "1: DOWN");
  write(base() / "ports/1/rate", "40 Gb/sec (4X QDR)");
  const NicFacts facts = facts_with_speed();
  EXPECT_FALSE(facts.gigabits || facts.numa_node);
  EXPECT_EQ(facts.place.size(), 2u);
}

// The kernel asks the card for the state of its port, and the firmware hangs.
TEST_F(NicFactsTest, ACardThatHangsIsNotWaitedForLong) {
  write(base() / "ports/1/link_layer", "Ethernet");
  const fs::path state = base() / "ports/1/state";
  ASSERT_EQ(mkfifo(state.c_str(), 0600), 0);  // nobody writes to it
  const NicFacts facts = facts_with_speed(std::chrono::milliseconds(20));
  EXPECT_FALSE(facts.gigabits);
  EXPECT_EQ(facts.link_layer, "Ethernet");
  std::ofstream(state) << "4: ACTIVE";  // lets the thread end
}

TEST_F(NicFactsTest, AVirtualFunctionIsOnTheCardOfItsPhysicalOne) {
  const fs::path physical = function_make("0000:b1:00.0"),
                 virtual_one = function_make("0000:b1:01.2");
  fs::create_directory_symlink(physical, virtual_one / "physfn");
  fs::create_directory_symlink(virtual_one, base() / "device");
  EXPECT_EQ(nic_facts(device_).place.back(), "0000:b1:00.0");
}

// Soft-RoCE's devices are no PCI functions.
TEST_F(NicFactsTest, ADeviceWithoutACardHasNoPlace) {
  const fs::path device = root_ / "devices/virtual/net/veth0";
  fs::create_directories(device);
  fs::create_directory_symlink(device, base() / "device");
  EXPECT_TRUE(nic_facts(device_).place.empty());
}

}  // namespace
}  // namespace shift::ops
