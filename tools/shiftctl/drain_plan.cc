#include "drain_plan.h"

#include <algorithm>

#include "problems.h"
#include "standing.h"
#include "text.h"

namespace shift::ctl {

namespace {

// Why the QP could not leave its NIC; empty if it can.
std::string hindrance(const Process& process, const state::GroupRecord& group) {
  switch (standing_of(group)) {
    case Standing::kUnprotected:
      return "is not protected: " + problem_of(process, group);
    case Standing::kOnePath:
      return "has no other path ready: " + problem_of(process, group);
    case Standing::kSearching:
      return "has no other path ready: its peer is being looked for";
    default:
      return "";
  }
}

void group_plan(const Process& process, const state::GroupRecord& group, const std::string& nic,
                DrainPlan& plan) {
  const Standing standing = standing_of(group);
  if (standing == Standing::kFailed || standing == Standing::kClosed) return;
  const auto nics = nics_of(process, group);
  // A QP between two paths may come back, as long as it has not arrived elsewhere.
  const bool is_between = group.member == state::GroupRecord::kNoPath;
  const bool is_there = is_between ? std::find(nics.begin(), nics.end(), nic) != nics.end()
                                   : nic_of(process, group) == nic;
  if (!is_there) return;
  const std::string name = name_of(process) + ": QP " + hex(group.qpn);
  if (standing == Standing::kUnprotected)
    plan.staying++;
  else
    plan.on_it++;
  plan.remaining.push_back(name + " " + in_words(standing));
  const std::string why = hindrance(process, group);
  if (!why.empty()) plan.blocked.push_back(name + " " + why);
}

}  // namespace

DrainPlan drain_plan(const Host& host, const std::string& nic) {
  DrainPlan plan;
  for (const Process& process : host.processes) {
    if (!process.is_live) continue;
    bool has_nic = false;
    for (const state::DeviceRecord& device : process.devices) {
      const auto nics = nics_of(device);
      has_nic = has_nic || std::find(nics.begin(), nics.end(), nic) != nics.end();
      if (nics.front() != nic || device.stock_qps == 0) continue;
      plan.notes.push_back(name_of(process) + ": has made " + count_of(device.stock_qps, "QP") +
                           " there of a kind that is not protected, such as UD, and may use them");
    }
    plan.processes += has_nic;
    for (const state::GroupRecord& group : process.groups) group_plan(process, group, nic, plan);
  }
  return plan;
}

}  // namespace shift::ctl
