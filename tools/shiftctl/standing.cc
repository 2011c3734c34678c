#include "standing.h"

#include <array>
#include <iterator>
#include <map>

#include "control/locate.h"
#include "drained_file.h"
#include "fsm/fsm.h"
#include "group/cause.h"
#include "text.h"
#include "wire/messages.h"

namespace shift::ctl {

namespace {

// Those of fsm.cc, which a test compares: the tool has no need of the state machine itself.
constexpr const char* kStateNames[] = {"unbound",  "active",           "draining", "held",
                                       "fencing",  "fencing-targeted", "seeking",  "exchanging",
                                       "resuming", "failed",           "closed"};
static_assert(std::size(kStateNames) == static_cast<size_t>(fsm::State::kCount));

std::string text(const state::DeviceName& name) {
  return text_safe(state::text_of(name));
}

template <typename Take>
void nics_each(const Process& process, Take take) {
  for (const state::DeviceRecord& device : process.devices)
    for (unsigned i = 0; i < device.members; i++)
      if (is_device_name(device.name(i))) take(device, i);
}

}  // namespace

const char* to_string(Standing standing) {
  constexpr const char* kNames[] = {"protected",   "one-path", "searching", "moving",
                                    "unprotected", "failed",   "closed"};
  static_assert(std::size(kNames) == static_cast<size_t>(Standing::kCount));
  return kNames[static_cast<size_t>(standing)];
}

std::string in_words(Standing standing) {
  constexpr const char* kWords[] = {
      "is protected",     "has one path only", "is looking for its peer",  "is between two paths",
      "is not protected", "has failed",        "was closed by its program"};
  static_assert(std::size(kWords) == static_cast<size_t>(Standing::kCount));
  return kWords[static_cast<size_t>(standing)];
}

Standing standing_of(const state::GroupRecord& group) {
  const auto state = static_cast<fsm::State>(group.state);
  if (state == fsm::State::kUnbound) return Standing::kUnprotected;
  if (state == fsm::State::kFailed) return Standing::kFailed;
  if (state == fsm::State::kClosed) return Standing::kClosed;
  if (fsm::kLeaving.has(state) || group.member == state::GroupRecord::kNoPath)
    return Standing::kMoving;
  if (group.peer_members == 0 && group.is_self == 0) return Standing::kSearching;
  return group.ready_members != 0 ? Standing::kProtected : Standing::kOnePath;
}

const char* state_name(const state::GroupRecord& group) {
  return group.state < std::size(kStateNames) ? kStateNames[group.state] : "unknown";
}

const char* detector_name(uint8_t detector) {
  return detector <= static_cast<uint8_t>(group::Detector::kOrder)
             ? group::to_string(static_cast<group::Detector>(detector))
             : "other";
}

bool is_incident(const state::FaultRecord& fault) {
  return (fault.place & state::FaultRecord::kIncident) != 0;
}

const char* place_name(const state::FaultRecord& fault) {
  const auto place =
      static_cast<control::Place>(fault.place & ~unsigned{state::FaultRecord::kIncident});
  return control::to_string(place);  // one that is not known is unknown
}

const char* refusal_name(uint8_t refusal) {
  constexpr const char* kNames[] = {"unknown",   "gone",         "in-error",   "not-protected",
                                    "no-backup", "fence-failed", "key-missing"};
  static_assert(std::size(kNames) == static_cast<size_t>(wire::RefuseReason::kKeyMissing) + 1);
  return refusal < std::size(kNames) ? kNames[refusal] : "other";
}

std::vector<std::string> nics_of(const state::DeviceRecord& device) {
  std::vector<std::string> names;
  for (unsigned i = 0; i < device.members; i++) names.push_back(text_safe(device.name(i)));
  return names;
}

std::vector<std::string> nics_of(const Process& process, const state::GroupRecord& group) {
  const state::DeviceRecord* device = process.device_of(group);
  return device != nullptr ? nics_of(*device) : std::vector{text(group.device)};
}

std::string nic_of(const Process& process, const state::GroupRecord& group) {
  if (group.member == state::GroupRecord::kNoPath) return "";
  const auto names = nics_of(process, group);
  return group.member < names.size() ? names[group.member] : "?";
}

std::vector<std::string> ready_nics_of(const Process& process, const state::GroupRecord& group) {
  std::vector<std::string> names = nics_of(process, group), ready;
  for (size_t i = 0; i < names.size(); i++)
    if ((group.ready_members >> i & 1) != 0) ready.push_back(names[i]);
  return ready;
}

std::string path_of(const Process& process, const state::GroupRecord& group) {
  const std::string nic = nic_of(process, group);
  if (nic.empty()) return "between two paths";
  if (group.peer_member == state::GroupRecord::kNoPath || group.state == 0) return nic;
  return nic + " to the peer's NIC " + std::to_string(group.peer_member);
}

std::string problem_of(const Process& process, const state::GroupRecord& group) {
  std::string problem = text_safe(state::text_of(group.problem));
  if (!problem.empty()) return problem;
  switch (standing_of(group)) {
    case Standing::kUnprotected:
    case Standing::kOnePath: {
      const state::DeviceRecord* device = process.device_of(group);
      if (device != nullptr) problem = text_safe(state::text_of(device->problem));
      if (problem.empty()) problem = text_safe(state::text_of(process.record.problem));
      break;
    }
    case Standing::kFailed:
      for (const state::FaultRecord& fault : process.faults)
        if (fault.qpn == group.qpn && fault.failed != 0)
          problem = text_safe(state::text_of(fault.cause));
      break;
    default:
      return "";
  }
  return problem.empty() ? "its process gives no reason" : problem;
}

std::string peer_of(const state::GroupRecord& group) {
  if (group.is_self != 0) return "itself";
  return "QP " + hex(group.peer_qpn) + " of " + gid_text(group.peer_gid);
}

bool is_drained(const Process& process, const std::string& nic) {
  bool is = false;
  nics_each(process, [&](const state::DeviceRecord& device, unsigned i) {
    is |= (device.drained >> i & 1) != 0 && text_safe(device.name(i)) == nic;
  });
  return is;
}

std::vector<Nic> nics_of(const Host& host) {
  std::map<std::string, Nic> nics;
  for (const Process& process : host.processes) {
    if (!process.is_live) continue;
    std::map<std::string, unsigned> seen;  // 1, and flags: down, drained, late
    nics_each(process, [&](const state::DeviceRecord& device, unsigned i) {
      unsigned& flags = seen[text_safe(device.name(i))];
      flags |= 1u | ((device.up >> i & 1) == 0 ? 2u : 0) |
               ((device.drained >> i & 1) != 0 ? 4u : 0) | ((device.late >> i & 1) != 0 ? 8u : 0);
      if (i == 0) {
        Nic& nic = nics[text_safe(device.name(0))];
        nic.stock_qps += device.stock_qps;
      }
    });
    for (const auto& [name, flags] : seen) {
      Nic& nic = nics[name];
      nic.processes++;
      nic.down += (flags & 2) != 0;
      nic.drained += (flags & 4) != 0;
      nic.late += (flags & 8) != 0;
    }
    for (const state::GroupRecord& group : process.groups) {
      const Standing standing = standing_of(group);
      if (standing == Standing::kFailed || standing == Standing::kClosed) continue;
      const auto nic = nics.find(nic_of(process, group));
      if (nic != nics.end()) nic->second.qps++;
    }
  }
  for (const auto& name : host.drained) nics[name].is_ordered = true;
  for (const User& user : host.users)
    for (const auto& name : user.drained) nics[name].is_ordered = true;
  std::vector<Nic> all;
  for (auto& [name, nic] : nics) {
    nic.name = name;
    all.push_back(nic);
  }
  return all;
}

}  // namespace shift::ctl
