// `cxemu doctor`: says beforehand what would not work on this machine.
#include "host/cli/doctor.h"

#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "host/cli/commands.h"

namespace cxemu {
namespace {

const char* health_name(Health health) {
  switch (health) {
    case Health::kOk:
      return "ok";
    case Health::kWarn:
      return "warn";
    case Health::kFail:
      return "fail";
  }
  return "?";
}

void findings_print(const std::vector<Finding>& all) {
  for (const Finding& finding : all) {
    printf("%-4s  %-16s %s\n", health_name(finding.health), finding.check.c_str(),
           finding.detail.c_str());
    if (!finding.advice.empty()) printf("      %-16s %s\n", "", finding.advice.c_str());
  }
}

}  // namespace

std::string command_output(const std::string& command, int* status) {
  std::string output;
  *status = -1;
  FILE* pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return output;
  char piece[4096];
  for (size_t n; (n = fread(piece, 1, sizeof piece, pipe)) > 0;) output.append(piece, n);
  const int ended = pclose(pipe);
  if (WIFEXITED(ended)) *status = WEXITSTATUS(ended);
  while (!output.empty() && output.back() == '\n') output.pop_back();
  return output;
}

int doctor_run(const std::string& program, bool as_json) {
  std::vector<Finding> all;
  const auto add = [&all](const std::vector<Finding>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  add(system_findings());
  add(network_findings());
  add(package_findings());
  if (!program.empty()) add(program_findings(program));

  int fails = 0, warnings = 0;
  for (const Finding& finding : all) {
    fails += finding.health == Health::kFail ? 1 : 0;
    warnings += finding.health == Health::kWarn ? 1 : 0;
  }
  if (as_json) {
    nlohmann::json checks = nlohmann::json::array();
    for (const Finding& finding : all)
      checks.push_back({{"check", finding.check},
                        {"status", health_name(finding.health)},
                        {"detail", finding.detail},
                        {"advice", finding.advice}});
    const nlohmann::json shown = {
        {"ok", fails == 0}, {"fails", fails}, {"warnings", warnings}, {"checks", checks}};
    printf("%s\n", shown.dump(2).c_str());
  } else {
    findings_print(all);
    printf("%zu checks, %d warning(s), %d failure(s)\n", all.size(), warnings, fails);
  }
  return fails == 0 ? 0 : 1;
}

}  // namespace cxemu
