// What the arguments of commands name: a process, a NIC, or a QP.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host.h"

namespace shift::ctl {

struct QpName {
  std::optional<uint32_t> pid;  // without it, QPs of all processes are meant
  uint32_t qpn = 0;
};
// "0x1f" or "4711:0x1f".
std::optional<QpName> qp_name_of(const std::string& text);

struct Qp {
  const Process* process;
  const state::GroupRecord* group;
};
// The QPs of live processes that the name fits. Numbers of QPs are unique for one device only.
std::vector<Qp> qps_of(const Host& host, const QpName& name);

// The processes with this number: the live one, or those that have ended.
std::vector<const Process*> processes_of(const Host& host, uint32_t pid);

}  // namespace shift::ctl
