#include "explain.h"

#include <algorithm>
#include <map>

#include "advice.h"
#include "drain_plan.h"
#include "drained_file.h"
#include "problems.h"
#include "standing.h"
#include "status.h"
#include "target.h"
#include "text.h"

namespace shift::ctl {

namespace {

constexpr size_t kExplained = 20;  // QPs of one number, and reasons of one process

std::string advice_text(const std::string& why) {
  const Advice& advice = advice_for(why);
  return "What is missing: " + std::string(advice.missing) +
         "\nWhat to do: " + std::string(advice.to_do) + "\n";
}

std::string masked_text(const Process& process, const state::GroupRecord& group) {
  const std::string nic = nic_of(process, group);
  std::string text = "It is protected. Its traffic goes over " + path_of(process, group) + ". " +
                     "A path over " + list_of(ready_nics_of(process, group), state::kMembers) +
                     " is ready, so a fault of " + nic + " would be masked.\n";
  if (group.member != 0 && (group.avoided & 1) == 0)
    text += "It is not on its default NIC, " + nics_of(process, group).front() +
            ", and goes back there when that has been good for SHIFT_FAILBACK_MS.\n";
  return text;
}

std::string standing_text(const Process& process, const state::GroupRecord& group) {
  const std::string why = problem_of(process, group);
  switch (standing_of(group)) {
    case Standing::kProtected:
      return masked_text(process, group);
    case Standing::kOnePath:
      return "Its peer has proved itself, and its traffic goes over " + path_of(process, group) +
             ". No other path is ready, so a fault now would not be masked: " + why + ".\n" +
             advice_text(why);
    case Standing::kSearching:
      return "Its peer is being looked for, so a fault now would not be masked. Its traffic goes "
             "over " +
             nic_of(process, group) + ". The search ends after SHIFT_RENDEZVOUS_MS.\n";
    case Standing::kMoving:
      return std::string("It is between two paths (") + state_name(group) +
             "): what the program posts waits until the next path carries it.\n";
    case Standing::kUnprotected:
      return "It is not protected and behaves as on the stock library: " + why + ".\n" +
             advice_text(why);
    case Standing::kFailed:
      return "It has failed, and its program has the original error: " + why + ".\n" +
             advice_text(why);
    default:
      return "Its program has ended it, so nothing of it is masked any more.\n";
  }
}

std::string avoided_text(const Process& process, const state::GroupRecord& group) {
  std::vector<std::string> names;
  const auto nics = nics_of(process, group);
  for (size_t i = 0; i < nics.size(); i++)
    if ((group.avoided >> i & 1) != 0) names.push_back(nics[i]);
  std::string text;
  if (!names.empty())
    text = "It keeps away from " + list_of(names, names.size()) +
           ", by an order; shiftctl move --home or shiftctl undrain ends that.\n";
  if (group.peer_avoided != 0)
    text += "The peer keeps away from a NIC of its own, by an order there.\n";
  return text;
}

std::string qp_text(const Host& host, const Process& process, const state::GroupRecord& group) {
  std::string text =
      "QP " + hex(group.qpn) + " of " + name_of(process) + ", user " + host.user_of(process.uid) +
      ", was made on " + text_safe(state::text_of(group.device)) + " and is connected to " +
      peer_of(group) + ".\n" + standing_text(process, group) + avoided_text(process, group);
  if (group.epoch > 0)
    text += "It has left its path " + count_of(group.epoch, "time") + "; the last change took " +
            std::to_string(group.pause_us) + " us.\n";
  return text;
}

// What holds for the QPs of a process: a paragraph for each reason.
std::string reasons_text(const Process& process) {
  std::map<std::pair<Standing, std::string>, std::vector<std::string>> qps;
  for (const state::GroupRecord& group : process.groups)
    qps[{standing_of(group), problem_of(process, group)}].push_back(hex(group.qpn));
  std::string text;
  size_t left = kExplained;
  for (const auto& [key, names] : qps) {
    if (left-- == 0) return text + "\nThere are more reasons; shiftctl status --all has them.\n";
    const auto& [standing, why] = key;
    text += "\n" + count_of(names.size(), "QP") + " (" + list_of(names, 8) + "): each " +
            in_words(standing) + (why.empty() ? ".\n" : ": " + why + ".\n");
    if (!why.empty()) text += advice_text(why);
  }
  return text;
}

std::string process_text(const Host& host, const Process& process) {
  std::string text = name_of(process) + ", user " + host.user_of(process.uid) + ", ";
  text[0] = 'P';
  if (!process.is_live)
    return text + (process.record.is_closed != 0
                       ? "has ended.\n"
                       : "has ended without closing its state: it was killed, "
                         "or it has crashed.\n");
  text += "runs version " + text_safe(state::text_of(process.record.version)) +
          " of the layer since " + time_local(process.record.started_ns) + ".\n";
  const std::string all = text_safe(state::text_of(process.record.problem));
  if (!all.empty()) text += "Nothing of it is protected: " + all + ".\n" + advice_text(all);
  for (const state::DeviceRecord& device : process.devices) {
    auto names = nics_of(device);
    const std::string name = names.front();
    names.erase(names.begin());
    std::string why = text_safe(state::text_of(device.problem));
    if (why.empty() && names.empty()) why = "it has no partner";
    text += "\nIt has " + name + " open";
    if (why.empty())
      text += ", which is backed by " + list_of(names, names.size()) + ".\n";
    else
      text += ", which is not protected: " + why + ".\n" + advice_text(why);
    if (device.stock_qps > 0)
      text += count_of(device.stock_qps, "QP") +
              " made there cannot be protected, such as those of type UD.\n";
  }
  return text + reasons_text(process);
}

// The last faults of the NIC of which it was found out, or tried to, where they were.
std::string incidents_text(const Host& host, const std::string& name) {
  constexpr size_t kLast = 5;
  std::vector<const state::FaultRecord*> incidents;
  for (const Process& process : host.processes)
    for (const state::FaultRecord& fault : process.faults)
      if (is_incident(fault) && state::text_of(fault.from) == name) incidents.push_back(&fault);
  std::stable_sort(incidents.begin(), incidents.end(),
                   [](const auto* a, const auto* b) { return a->time_ns < b->time_ns; });
  std::string text = incidents.empty() ? "" : "Its last faults, as this end found them:\n";
  const size_t skipped = incidents.size() > kLast ? incidents.size() - kLast : 0;
  for (size_t i = skipped; i < incidents.size(); i++)
    text += "  " + time_local(incidents[i]->time_ns) + "  " + incident_text(*incidents[i]) + "\n";
  return text;
}

std::string nic_text(const Host& host, const std::string& name) {
  std::string text;
  for (const Nic& nic : nics_of(host)) {
    if (nic.name != name) continue;
    text =
        name + " is a NIC of " + count_of(nic.processes, "process") + " with SHIFT. It carries " +
        count_of(nic.qps, "QP") +
        (nic.stock_qps > 0 ? "; " + std::to_string(nic.stock_qps) +
                                 " that cannot be protected, such as those of type UD, were made "
                                 "there, and may still be"
                           : "") +
        ".\n";
    if (nic.down > 0)
      text +=
          "It carries no traffic for " + count_of(nic.down, "process") +
          ": its port is down, its network device has no IPv4 address, or its device has died.\n"
          "What to do: Look at ibv_devinfo -d " +
          name + " and ip -4 address.\n";
    if (nic.late > 0)
      text += "It has not answered commands of " + count_of(nic.late, "process") +
              " in time.\nWhat to do: Look at the kernel's log for its driver and firmware.\n";
  }
  if (text.empty()) return "";
  text += incidents_text(host, name);
  if (host.drained.contains(name))
    text += "It is drained by root's order; shiftctl undrain ends that.\n";
  for (const User& user : host.users)
    if (user.drained.contains(name))
      text += "It is drained for the processes of " + user.name + ", by that user's order.\n";
  const DrainPlan plan = drain_plan(host, name);
  if (plan.blocked.empty() && plan.on_it > 0)
    text += "It can be drained: each QP on it has another path ready.\n";
  if (!plan.blocked.empty()) text += "It cannot be drained without harm:\n";
  for (size_t i = 0; i < plan.blocked.size() && i < 10; i++) text += "  " + plan.blocked[i] + "\n";
  if (plan.blocked.size() > 10)
    text += "  and " + std::to_string(plan.blocked.size() - 10) + " more\n";
  return text;
}

}  // namespace

std::string explain_text(const Host& host, const std::string& target) {
  std::string text;
  if (const auto name = qp_name_of(target)) {
    const auto qps = qps_of(host, *name);
    for (size_t i = 0; i < qps.size() && i < kExplained; i++)
      text += (i == 0 ? "" : "\n") + qp_text(host, *qps[i].process, *qps[i].group);
    if (qps.size() > kExplained)
      text +=
          "\nThere are " + std::to_string(qps.size() - kExplained) + " more; name one as PID:QP.\n";
    return text;
  }
  uint32_t pid = 0;
  if (number_read(target, 10, pid)) {
    for (const Process* process : processes_of(host, pid))
      text += (text.empty() ? "" : "\n") + process_text(host, *process);
    return text;
  }
  return is_device_name(target) ? nic_text(host, target) : "";
}

}  // namespace shift::ctl
