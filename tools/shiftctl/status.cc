#include "status.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "problems.h"
#include "standing.h"
#include "text.h"

namespace shift::ctl {

namespace {

constexpr size_t kLastFaults = 10;
constexpr size_t kNameMax = 24;
const std::vector<state::GroupRecord> kNoGroups;

using Rows = std::vector<std::vector<std::string>>;
using Counts = std::array<unsigned, static_cast<size_t>(Standing::kCount)>;

unsigned at(const Counts& counts, Standing standing) {
  return counts[static_cast<size_t>(standing)];
}

std::string number(uint64_t count) {
  return count == 0 ? "-" : std::to_string(count);
}

std::string life_of(const Process& process) {
  if (process.is_live) return "runs";
  return process.record.is_closed != 0 ? "ended" : "ended without closing";
}

// A row for each device of the process, and one for a process without any.
void process_rows(const Host& host, const Process& process, Rows& rows) {
  std::map<std::string, Counts> qps;
  // What a process had when it ended is of no use any more.
  for (const state::GroupRecord& group : process.is_live ? process.groups : kNoGroups)
    qps[text_safe(state::text_of(group.device))][static_cast<size_t>(standing_of(group))]++;
  std::map<std::string, std::pair<std::string, uint64_t>> devices;  // their NICs and stock QPs
  for (const auto& [name, counts] : qps) devices[name].first = name;
  for (const state::DeviceRecord& device : process.devices) {
    const auto names = nics_of(device);
    auto& [nics, stock] = devices[names.front()];
    nics = list_of(names, names.size());
    stock += device.stock_qps;
  }
  if (devices.empty()) devices["-"].first = "-";
  bool is_first = true;
  for (const auto& [name, device] : devices) {
    const Counts& counts = qps[name];
    unsigned all = 0;
    for (const unsigned count : counts) all += count;
    std::vector<std::string> row;
    if (is_first)
      row = {std::to_string(process.pid), text_short(host.user_of(process.uid), kNameMax),
             text_short(text_safe(state::text_of(process.record.program)), kNameMax),
             life_of(process)};
    else
      row = {"", "", "", ""};
    is_first = false;
    for (std::string& text : std::vector{
             device.first, number(all), number(at(counts, Standing::kProtected)),
             number(at(counts, Standing::kOnePath)), number(at(counts, Standing::kUnprotected)),
             number(at(counts, Standing::kMoving) + at(counts, Standing::kSearching)),
             number(at(counts, Standing::kFailed)), number(device.second)})
      row.push_back(std::move(text));
    rows.push_back(std::move(row));
  }
}

std::string some(unsigned part, unsigned of, const char* yes, const char* no) {
  if (part == 0) return no;
  return part == of ? yes : std::string(yes) + " (for " + std::to_string(part) + ")";
}

std::string nic_table(const Host& host) {
  Rows rows{{"NIC", "LINK", "DRAINED", "ANSWERS", "PROCESSES", "QPS", "STOCK QPS"}};
  for (const Nic& nic : nics_of(host))
    rows.push_back(
        {nic.name, nic.processes == 0 ? "?" : some(nic.down, nic.processes, "down", "up"),
         nic.is_ordered && nic.drained == 0 ? "ordered"
                                            : some(nic.drained, nic.processes, "drained", "no"),
         nic.processes == 0 ? "?" : some(nic.late, nic.processes, "late", "yes"),
         number(nic.processes), number(nic.qps), number(nic.stock_qps)});
  return rows.size() == 1 ? "" : "\n" + table(rows);
}

std::string qp_table(const Host& host) {
  Rows rows{{"PID", "QP", "PEER", "PATH", "READY", "STATE", "SINCE", "WHY"}};
  for (const Process& process : host.processes) {
    if (!process.is_live) continue;
    for (const state::GroupRecord& group : process.groups)
      rows.push_back(
          {std::to_string(process.pid), hex(group.qpn), peer_of(group), path_of(process, group),
           list_of(ready_nics_of(process, group), state::kMembers), to_string(standing_of(group)),
           time_local(group.since_ns), problem_of(process, group)});
  }
  return rows.size() == 1 ? "" : "\n" + table(rows);
}

std::string last_faults(const Host& host) {
  std::vector<std::pair<const Process*, const state::FaultRecord*>> faults;
  for (const Process& process : host.processes)
    for (const state::FaultRecord& fault : process.faults) faults.emplace_back(&process, &fault);
  const size_t count = std::min(faults.size(), kLastFaults);
  std::partial_sort(
      faults.begin(), faults.begin() + static_cast<ptrdiff_t>(count), faults.end(),
      [](const auto& a, const auto& b) { return a.second->time_ns > b.second->time_ns; });
  if (count == 0) return "";
  std::string text = "\nLast changes of path:\n";
  for (size_t i = count; i-- > 0;)
    text += "  " + fault_text(*faults[i].first, *faults[i].second) + "\n";
  return text;
}

std::string summary(const Host& host) {
  const auto counts = standings_of(host);
  unsigned all = 0;
  std::string parts;
  for (size_t i = 0; i < counts.size(); i++) {
    all += counts[i];
    if (counts[i] > 0)
      parts += (parts.empty() ? ": " : ", ") + std::to_string(counts[i]) + " " +
               to_string(static_cast<Standing>(i));
  }
  const auto live = std::count_if(host.processes.begin(), host.processes.end(),
                                  [](const Process& process) { return process.is_live; });
  return count_of(static_cast<uint64_t>(live), "process") + " with SHIFT, " + count_of(all, "QP") +
         parts + "\n";
}

}  // namespace

std::string incident_text(const state::FaultRecord& fault) {
  const std::string peer = text_safe(state::text_of(fault.to));
  const bool is_certain = fault.place != state::FaultRecord::kIncident;
  return text_safe(state::text_of(fault.from)) + (peer.empty() ? "" : " to " + peer) +
         ": the fault is " + place_name(fault) + (is_certain ? " (certain, " : " (not certain, ") +
         "after " + std::to_string(fault.pause_us / 1000) + " ms; " + count_of(fault.epoch, "QP") +
         "): " + text_safe(state::text_of(fault.cause));
}

std::string fault_text(const Process& process, const state::FaultRecord& fault) {
  const auto name = [](const state::DeviceName& device) {
    const std::string text = text_safe(state::text_of(device));
    return text.empty() ? std::string("no NIC") : text;
  };
  std::string text = time_local(fault.time_ns) + "  " + name_of(process) + ": QP " + hex(fault.qpn);
  const std::string cause = text_safe(state::text_of(fault.cause));
  if (is_incident(fault))
    return time_local(fault.time_ns) + "  " + name_of(process) + ": " + incident_text(fault);
  if (fault.failed != 0)
    return text + " failed on " + name(fault.from) + " (" + detector_name(fault.detector) + ", " +
           refusal_name(fault.refusal) + "): " + (cause.empty() ? "no cause was given" : cause);
  text += " went from " + name(fault.from) + " to " + name(fault.to) + " in " +
          std::to_string(fault.pause_us) + " us (" + detector_name(fault.detector);
  if (!cause.empty()) text += ", " + cause;
  return text + "; " + std::to_string(fault.completed) + " completed by the peer's word, " +
         std::to_string(fault.replayed) + " posted again)";
}

std::string status_text(const Host& host, bool all) {
  std::string text = summary(host);
  Rows rows{{"PID", "USER", "PROGRAM", "STATE", "NICS", "QPS", "PROTECTED", "ONE PATH",
             "UNPROTECTED", "ON ITS WAY", "FAILED", "STOCK"}};
  for (const Process& process : host.processes) process_rows(host, process, rows);
  if (rows.size() > 1) text += "\n" + table(rows);
  text += nic_table(host);
  if (all) text += qp_table(host);
  const auto problems = problems_of(host);
  if (!problems.empty()) text += "\nProblems:\n";
  for (const Problem& problem : problems) text += "  " + problem.text + "\n";
  return text + last_faults(host);
}

}  // namespace shift::ctl
