#include "target.h"

#include <algorithm>

#include "text.h"

namespace shift::ctl {

std::optional<QpName> qp_name_of(const std::string& text) {
  QpName name;
  const size_t colon = text.find(':');
  if (colon != std::string::npos) {
    uint32_t pid = 0;
    if (!number_read(std::string_view(text).substr(0, colon), 10, pid)) return {};
    name.pid = pid;
  }
  std::string_view number =
      std::string_view(text).substr(colon == std::string::npos ? 0 : colon + 1);
  if (!number.starts_with("0x")) return {};
  number.remove_prefix(2);
  if (!number_read(number, 16, name.qpn)) return {};
  return name;
}

std::vector<Qp> qps_of(const Host& host, const QpName& name) {
  std::vector<Qp> found;
  for (const Process& process : host.processes) {
    if (!process.is_live || (name.pid && *name.pid != process.pid)) continue;
    for (const state::GroupRecord& group : process.groups)
      if (group.qpn == name.qpn) found.push_back({&process, &group});
  }
  return found;
}

std::vector<const Process*> processes_of(const Host& host, uint32_t pid) {
  std::vector<const Process*> found;
  for (const Process& process : host.processes)
    if (process.pid == pid) found.push_back(&process);
  // The number may have been that of another process before.
  if (std::any_of(found.begin(), found.end(), [](const Process* one) { return one->is_live; }))
    std::erase_if(found, [](const Process* one) { return !one->is_live; });
  return found;
}

}  // namespace shift::ctl
