// Tests the operator's map of hosts: what it says, and what is wrong with one that is refused.
#include "util/host_map.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace shift {
namespace {

uint32_t ip(const char* text) {
  uint32_t ip_be = 0;
  EXPECT_EQ(inet_pton(AF_INET, text, &ip_be), 1);
  return ip_be;
}

HostMap::RawGid gid(const char* text) {
  HostMap::RawGid gid{};
  EXPECT_EQ(inet_pton(AF_INET6, text, gid.data()), 1);
  return gid;
}

using Addresses = std::vector<uint32_t>;

TEST(HostMap, LinesAreHosts) {
  HostMap map;
  std::string why;
  ASSERT_TRUE(
      map.parse("# two hosts\n\n 10.0.0.1\t10.0.1.1 # a\n"
                "fe80::1 2001:db8::7 10.0.0.2\n"
                "fe80::9\n",
                why))
      << why;
  EXPECT_EQ(map.hosts(), 3u);
  EXPECT_EQ(map.addresses_of(gid("::ffff:10.0.0.1")), (Addresses{ip("10.0.0.1"), ip("10.0.1.1")}));
  EXPECT_EQ(map.addresses_of(gid("::ffff:10.0.1.1")), (Addresses{ip("10.0.0.1"), ip("10.0.1.1")}));
  EXPECT_EQ(map.addresses_of(gid("2001:db8::7")), Addresses{ip("10.0.0.2")});
  EXPECT_EQ(map.addresses_of(gid("fe80::9")), Addresses{});
  EXPECT_EQ(map.addresses_of(gid("fe80::2")), Addresses{});
}

TEST(HostMap, WrongLinesAreNamed) {
  const struct {
    const char* text;
    const char* why;
  } kCases[] = {
      {"10.0.0.1\nnode7 10.0.0.2\n", "line 2 has a word that is neither"},
      {"10.0.0.1 10.0.0.256\n", "line 1 has a word that is neither"},
      {"10.0.0.1 10.0.0.1\n", "line 1 names an address or a GID that stands there before"},
      {"10.0.0.1 a.b\n", "line 1"},
      {"10.0.0.1\n10.0.0.2\n::ffff:10.0.0.1\n", "line 3 names"},
  };
  for (const auto& one : kCases) {
    HostMap map;
    std::string why;
    EXPECT_FALSE(map.parse(one.text, why)) << one.text;
    EXPECT_NE(why.find(one.why), std::string::npos) << why;
  }
  std::string many;
  for (int i = 0; i < 33; i++) many += "10.0.0." + std::to_string(i + 1) + " ";
  HostMap map;
  std::string why;
  EXPECT_FALSE(map.parse(many, why));
}

class HostMapFile : public ::testing::Test {
 protected:
  HostMapFile() : path_(::testing::TempDir() + "hosts-" + std::to_string(getpid())) {
    std::ofstream(path_) << "10.0.0.1 10.0.0.2\n";
    EXPECT_EQ(chmod(path_.c_str(), 0644), 0);
  }
  ~HostMapFile() override { unlink(path_.c_str()); }
  std::string problem() const {
    std::string problem;
    const HostMap map = HostMap::read(path_, problem);
    EXPECT_EQ(map.hosts(), problem.empty() ? 1u : 0u);
    return problem;
  }

  const std::string path_;
};

TEST_F(HostMapFile, IsRead) {
  EXPECT_EQ(problem(), "");
}

TEST_F(HostMapFile, OthersMayNotWriteToIt) {
  ASSERT_EQ(chmod(path_.c_str(), 0664), 0);
  EXPECT_NE(problem().find("others than its owner may write"), std::string::npos) << problem();
}

TEST_F(HostMapFile, IsNotTakenFromAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  ASSERT_EQ(chown(path_.c_str(), 12345, 0), 0);
  // Root's processes would believe whom they should not.
  EXPECT_NE(problem().find("belongs to another user"), std::string::npos) << problem();
}

TEST_F(HostMapFile, IsBounded) {
  ASSERT_EQ(truncate(path_.c_str(), HostMap::kFileMax + 1), 0);
  EXPECT_NE(problem().find("larger than 4 MiB"), std::string::npos) << problem();
}

TEST_F(HostMapFile, MustBeAFile) {
  unlink(path_.c_str());
  EXPECT_NE(problem().find("No such file"), std::string::npos) << problem();
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_NE(problem().find("not a regular file"), std::string::npos) << problem();
}

}  // namespace
}  // namespace shift
