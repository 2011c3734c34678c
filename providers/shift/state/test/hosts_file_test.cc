// Tests the file of hosts that processes of one user share: what is believed of it.
#include "state/hosts_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "state/directory.h"

namespace shift::state {
namespace {

const HostLine kOne{{0, 1, 2, 0xff}, 1234567890123, {0x0100000a, 0x0200000a}};
const HostLine kTwo{{9}, 5, {}};

class HostsFileTest : public ::testing::Test {
 protected:
  HostsFileTest() {
    char name[] = "/tmp/shift-hosts-XXXXXX";
    base_ = ::mkdtemp(name);
  }
  ~HostsFileTest() override { std::filesystem::remove_all(base_); }
  HostsFile file() const { return {base_, geteuid()}; }
  std::string path() const { return user_directory(base_, geteuid()) + "/" + kHostsName; }
  void set(const std::string& text) const {
    std::filesystem::create_directories(user_directory(base_, geteuid()));
    ASSERT_EQ(::chmod(user_directory(base_, geteuid()).c_str(), 0700), 0);
    std::ofstream(path()) << text;
  }

  std::string base_;
};

using Lines = std::vector<HostLine>;

TEST_F(HostsFileTest, IsReadAsItWasWritten) {
  EXPECT_EQ(file().read(), Lines{});
  file().write({kOne, kTwo});
  EXPECT_EQ(file().read(), (Lines{kOne, kTwo}));
  struct stat status {};
  ASSERT_EQ(::stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
}

TEST_F(HostsFileTest, AChangeIsSeen) {
  HostsFile reader = file();
  file().write({kOne});
  EXPECT_EQ(reader.read(), Lines{kOne});
  file().write({kOne, kTwo});
  EXPECT_EQ(reader.read(), (Lines{kOne, kTwo}));
  ::unlink(path().c_str());
  EXPECT_EQ(reader.read(), Lines{});
}

TEST_F(HostsFileTest, LinesThatAreNotUnderstoodAreLeftOut) {
  const std::string gid(32, '0');
  set("\nnonsense\n" + gid + "\n" + gid + " x 10.0.0.1\n" + gid + " 7 10.0.0.1 10.0.0.400\n" + gid +
      "0 7 10.0.0.1\n" + std::string(31, '0') + "g 7 10.0.0.1\n" + gid + " 7 10.0.0.1\n" + gid +
      " 8 10.0.0.1");  // the last one is cut off
  EXPECT_EQ(file().read(), (Lines{HostLine{{}, 7, {0x0100000a}}}));
  std::string many = gid + " 7";
  for (int i = 0; i < 17; i++) many += " 10.0.0.1";
  set(many + "\n");
  EXPECT_EQ(file().read(), Lines{});
}

TEST_F(HostsFileTest, WhatOthersCouldHaveWrittenIsNotBelieved) {
  file().write({kOne});
  ASSERT_EQ(::chmod(path().c_str(), 0622), 0);
  EXPECT_EQ(file().read(), Lines{});
  ASSERT_EQ(::chmod(path().c_str(), 0600), 0);
  EXPECT_EQ(file().read(), Lines{kOne});
  ASSERT_EQ(::chmod(user_directory(base_, geteuid()).c_str(), 0770), 0);
  EXPECT_EQ(file().read(), Lines{});
}

TEST_F(HostsFileTest, ALinkIsNotFollowed) {
  file().write({kOne});
  ASSERT_EQ(::rename(path().c_str(), (base_ + "/elsewhere").c_str()), 0);
  ASSERT_EQ(::symlink((base_ + "/elsewhere").c_str(), path().c_str()), 0);
  EXPECT_EQ(file().read(), Lines{});
  file().write({kTwo});  // takes the link's place
  EXPECT_EQ(file().read(), Lines{kTwo});
}

TEST_F(HostsFileTest, AFolderOfAnothersIsLeftAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives folders away";
  file().write({kOne});
  ASSERT_EQ(::chown(user_directory(base_, geteuid()).c_str(), 12345, 0), 0);
  file().write({kTwo});
  EXPECT_EQ(file().read(), Lines{});
}

}  // namespace
}  // namespace shift::state
