// Set-up of end-to-end tests.
#include "host/test/emulated_test.h"

#include <arpa/inet.h>

#include <cstdlib>
#include <filesystem>

#include "fabric/paths.h"

namespace cxemu {

void EmulatedTest::SetUp() {
  unsetenv("XDG_RUNTIME_DIR");  // next to other fabrics, on the same kind of file system
  std::string dir = std::filesystem::path(fabrics_dir()).parent_path() / "cxemu-e2e-XXXXXX";
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  dir_ = dir;
  setenv("XDG_RUNTIME_DIR", dir_.c_str(), 1);
  setenv("CXEMU_FABRIC", "e2e", 1);
  for (const char* host : {"a", "b"}) ASSERT_EQ(run(on(host, {"true"})), 0);
  std::string error;
  fabric_ = Fabric::open(fabric_file("e2e"), &error);
  ASSERT_TRUE(fabric_) << error;
}

void EmulatedTest::TearDown() {
  std::string output;
  EXPECT_EQ(run({CXEMU_PROGRAM, "clean"}, &output), 0) << output;
  std::filesystem::remove_all(dir_);
}

std::vector<std::string> EmulatedTest::on(const std::string& host,
                                          const std::vector<std::string>& command) {
  std::vector<std::string> all = {CXEMU_PROGRAM, "exec", "--host", host, "--"};
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

void EmulatedTest::fault(const std::string& nic, const std::string& what) {
  std::string output;
  ASSERT_EQ(run({CXEMU_PROGRAM, "fault", nic, what}, &output), 0) << output;
}

std::string EmulatedTest::address(int host, int nic) const {
  char text[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &fabric_.nic(host, nic)->ipv4_be, text, sizeof text);
  return text;
}

}  // namespace cxemu
