// The fixture of end-to-end tests: each test has its own fabric, which is removed afterwards.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "host/test/process.h"

namespace cxemu {

class EmulatedTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // The command line that runs `command` on a host.
  static std::vector<std::string> on(const std::string& host,
                                     const std::vector<std::string>& command);
  void fault(const std::string& nic, const std::string& what);
  std::string address(int host, int nic) const;

  Fabric fabric_;  // hosts a (0) and b (1), two NICs each

 private:
  std::string dir_;
};

}  // namespace cxemu
