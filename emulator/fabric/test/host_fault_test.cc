// Faults of whole hosts. The processes that they end are children of this test.
#include "fabric/host_fault.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "fabric/flap.h"

namespace cxemu {
namespace {

class HostFaultTest : public ::testing::Test {
 protected:
  HostFaultTest() {
    for (uint32_t host = 0; host < 2; host++) {
      fabric_->host_name[host][0] = static_cast<char>('a' + host);
      for (uint32_t i = 0; i < 2; i++) {
        nic(host, i).host = host;
        nic(host, i).index = i;
        nic(host, i).used = 1;
      }
    }
    fabric_->host_count = 2;
  }
  FabricNic& nic(uint32_t host, uint32_t index) {
    return fabric_->nic[host * kMaxNicsPerHost + index];
  }
  std::string state(uint32_t host, uint32_t index) {
    return fault_describe(*fabric_, nic(host, index), 0);
  }
  bool parse(const std::string& name, const std::vector<std::string>& words) {
    return target_faults_parse(*fabric_, name, words, 1, &target_, &faults_, &error_);
  }
  void apply(const std::string& name, const std::string& word) {
    ASSERT_TRUE(parse(name, {word})) << error_;
    if (target_.nic != nullptr) {
      ASSERT_TRUE(fault_apply(*fabric_, *target_.nic, faults_[0], 0, &error_)) << error_;
    } else {
      host_fault_apply(*fabric_, target_.host, faults_[0], path_, run_dir_, 0);
    }
  }
  // A sleeping program in this environment.
  static pid_t sleeper(const std::string& host, const std::string& path) {
    const pid_t pid = fork();
    if (pid == 0) {
      const std::string first = "CXEMU_HOST=" + host, second = "CXEMU_FABRIC_FILE=" + path;
      execl("/usr/bin/env", "env", first.c_str(), second.c_str(), "sleep", "600", nullptr);
      _exit(1);
    }
    // Wait until it is the sleeping program itself.
    for (std::string name; name.find("sleep") == std::string::npos;) {
      char buffer[256];
      FILE* file = fopen(("/proc/" + std::to_string(pid) + "/comm").c_str(), "r");
      if (file == nullptr) break;
      name = fgets(buffer, sizeof buffer, file) != nullptr ? buffer : "";
      fclose(file);
      usleep(1000);
    }
    return pid;
  }

  std::unique_ptr<FabricFile> fabric_ = std::make_unique<FabricFile>();
  const std::string path_ = ::testing::TempDir() + "host-fault-" + std::to_string(getpid());
  const std::string run_dir_ = path_ + "-run";
  FaultTarget target_;
  std::vector<FaultCommand> faults_;
  std::string error_;
};

TEST_F(HostFaultTest, HostsAndNicsHaveFaultsOfTheirOwn) {
  EXPECT_TRUE(parse("a", {"cut"}));
  EXPECT_EQ(target_.host, 0);
  EXPECT_EQ(target_.nic, nullptr);
  EXPECT_TRUE(parse("b/mlx5_1", {"kill", "loss=1", "dir=in"}));
  EXPECT_EQ(target_.nic, &nic(1, 1));
  EXPECT_FALSE(parse("a/mlx5_0", {"cut"}));
  EXPECT_FALSE(parse("a", {"kill"}));
  EXPECT_FALSE(parse("a", {"heal@packet=3"}));
  EXPECT_FALSE(parse("a", {"cut@packet=3"}));
  EXPECT_FALSE(parse("a", {"cut", "peer=b/mlx5_0"}));
  EXPECT_FALSE(parse("c", {"cut"}));
  EXPECT_EQ(error_, "no host 'c' in the fabric");
}

TEST_F(HostFaultTest, CutTakesAllLinksUntilHeal) {
  apply("b/mlx5_1", "link-down");
  apply("b", "cut");
  for (uint32_t i = 0; i < 2; i++) EXPECT_NE(faults_now(nic(1, i), 0) & kLinkDown, 0u);
  EXPECT_EQ(faults_now(nic(0, 0), 0), 0u) << "the other host has its links";
  EXPECT_EQ(state(1, 0), "cut");
  EXPECT_EQ(nic(1, 0).link_downed, 1u);
  EXPECT_EQ(nic(1, 1).link_downed, 1u) << "it was down already";
  apply("b/mlx5_1", "link-up");
  EXPECT_NE(faults_now(nic(1, 1), 0) & kLinkDown, 0u) << "the host is still cut";
  apply("b", "heal");
  for (uint32_t i = 0; i < 2; i++) EXPECT_EQ(state(1, i), "ok");
}

TEST_F(HostFaultTest, PowerOffEndsTheProcessesOfThisHostOnly) {
  std::filesystem::create_directories(run_dir_ + "/class");
  const pid_t own = sleeper("a", path_), other_host = sleeper("b", path_),
              other_fabric = sleeper("a", path_ + "2");
  apply("a", "power-off");
  int status = 0;
  EXPECT_EQ(waitpid(own, &status, WNOHANG), own);
  EXPECT_TRUE(WIFSIGNALED(status));
  for (const pid_t pid : {other_host, other_fabric}) {
    EXPECT_EQ(waitpid(pid, &status, WNOHANG), 0) << "it lives";
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
  }
  EXPECT_FALSE(std::filesystem::exists(run_dir_));
  EXPECT_EQ(state(0, 0), "power-off");
  EXPECT_EQ(state(1, 0), "ok");
  EXPECT_EQ(nic(0, 1).kills, 1u);
  // Nothing but power-on brings the NICs back.
  apply("a/mlx5_0", "revive");
  apply("a", "heal");
  EXPECT_NE(nic(0, 0).faults & kDead, 0u);
  apply("a", "power-on");
  EXPECT_EQ(state(0, 0), "ok");
  EXPECT_EQ(nic(0, 0).kills, 1u) << "who had it open keeps a dead device";
  apply("a/mlx5_0", "kill");
  apply("a", "power-on");
  EXPECT_EQ(state(0, 0), "kill") << "it was on";
}

}  // namespace
}  // namespace cxemu
