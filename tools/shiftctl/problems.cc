#include "problems.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "standing.h"
#include "text.h"

namespace shift::ctl {

namespace {

constexpr size_t kNamesMax = 8;  // QPs that one line names

void device_problems(const Process& process, std::vector<Problem>& problems) {
  std::map<std::string, std::string> unprotected;  // by name: a device can be open several times
  for (const state::DeviceRecord& device : process.devices) {
    std::string why = text_safe(state::text_of(device.problem));
    if (why.empty() && device.members < 2) why = "it has no partner";
    if (!why.empty()) unprotected.emplace(nics_of(device).front(), why);
  }
  for (const auto& [name, why] : unprotected)
    problems.push_back(
        {Severity::kDegraded, name_of(process) + ": " + name + " is not protected: " + why});
}

void qp_problems(const Process& process, std::vector<Problem>& problems) {
  std::map<std::tuple<Standing, std::string, std::string>, std::vector<std::string>> qps;
  for (const state::GroupRecord& group : process.groups) {
    const Standing standing = standing_of(group);
    if (standing == Standing::kUnprotected || standing == Standing::kOnePath ||
        standing == Standing::kFailed)
      qps[{standing, text_safe(state::text_of(group.device)), problem_of(process, group)}]
          .push_back(hex(group.qpn));
  }
  for (const auto& [key, names] : qps) {
    const auto& [standing, device, why] = key;
    const bool is_one = names.size() == 1;
    constexpr const char* kWords[][2] = {{"has one path only", "have one path only"},
                                         {"is not protected", "are not protected"},
                                         {"has failed", "have failed"}};
    const size_t row = standing == Standing::kOnePath ? 0 : standing == Standing::kFailed ? 2 : 1;
    problems.push_back({standing == Standing::kFailed ? Severity::kFailed : Severity::kDegraded,
                        name_of(process) + ": " +
                            (is_one ? "QP " + names[0] : count_of(names.size(), "QP")) + " on " +
                            device + " " + kWords[row][is_one ? 0 : 1] + ": " + why +
                            (is_one ? "" : " (" + list_of(names, kNamesMax) + ")")});
  }
}

void process_problems(const Process& process, std::vector<Problem>& problems) {
  const auto degraded = [&](const std::string& text) {
    problems.push_back({Severity::kDegraded, name_of(process) + ": " + text});
  };
  const std::string all = text_safe(state::text_of(process.record.problem));
  if (!all.empty()) degraded("nothing is protected: " + all);
  device_problems(process, problems);
  qp_problems(process, problems);
  if (process.record.lost_groups > 0)
    degraded("nothing is known of " + count_of(process.record.lost_groups, "further QP"));
  if (process.record.lost_devices > 0)
    degraded("nothing is known of " + count_of(process.record.lost_devices, "further device"));
}

void nic_problems(const Nic& nic, std::vector<Problem>& problems) {
  const auto degraded = [&](const std::string& what, unsigned processes) {
    problems.push_back(
        {Severity::kDegraded, nic.name + " " + what + " (" + count_of(processes, "process") + ")"});
  };
  if (nic.down > 0)
    degraded("carries no traffic: its port is down, or it has no address", nic.down);
  if (nic.late > 0) degraded("does not answer commands in time", nic.late);
  if (nic.drained > 0)
    degraded("is drained", nic.drained);
  else if (nic.is_ordered)
    problems.push_back({Severity::kDegraded, nic.name + " is drained"});
}

}  // namespace

std::string name_of(const Process& process) {
  const std::string program = text_safe(state::text_of(process.record.program));
  return "process " + std::to_string(process.pid) + (program.empty() ? "" : " (" + program + ")");
}

std::vector<unsigned> standings_of(const Host& host) {
  std::vector<unsigned> counts(static_cast<size_t>(Standing::kCount));
  for (const Process& process : host.processes) {
    if (!process.is_live) continue;
    for (const state::GroupRecord& group : process.groups)
      counts[static_cast<size_t>(standing_of(group))]++;
  }
  return counts;
}

std::vector<Problem> problems_of(const Host& host) {
  std::vector<Problem> problems;
  for (const auto& line : host.unreadable)
    problems.push_back({Severity::kFailed, "cannot be read: " + line});
  for (const Nic& nic : nics_of(host)) nic_problems(nic, problems);
  for (const Process& process : host.processes)
    if (process.is_live) process_problems(process, problems);
  std::stable_sort(problems.begin(), problems.end(),
                   [](const Problem& a, const Problem& b) { return a.severity > b.severity; });
  return problems;
}

}  // namespace shift::ctl
