// `cxemu doctor`: the checks, grouped by subject. Each check answers one question about the
// machine.
#pragma once

#include <string>
#include <vector>

namespace cxemu {

enum class Health { kOk, kWarn, kFail };

struct Finding {
  std::string check;  // a stable name
  Health health;
  std::string detail;
  std::string advice;  // what to do about it; empty when all is well
};

std::vector<Finding> system_findings();   // kernel, files, limits, processors
std::vector<Finding> network_findings();  // addresses and ports
std::vector<Finding> package_findings();  // the RDMA libraries and programs
// Whether this program can run on an emulated host.
std::vector<Finding> program_findings(const std::string& program);

// Runs a shell command; returns its output without the last line end, and its exit status.
std::string command_output(const std::string& command, int* status);

}  // namespace cxemu
