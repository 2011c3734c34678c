#include "ops/device_log.h"

#include <algorithm>
#include <new>
#include <set>

#include "util/log.h"

namespace shift::ops {
namespace {

bool is_first(const std::string& what) {
  // The set is never destroyed, because programs ask for the device list in exit handlers, too.
  static auto* const told = new std::set<std::string>;
  return told->insert(what).second;
}

}  // namespace

void log_missing_names(const std::vector<Names>& groups,
                       std::span<ibv_device* const> devices) noexcept try {
  if (devices.empty()) return;
  for (const Names& names : groups) {
    for (const std::string& name : names) {
      const auto has_name = [&](const ibv_device* device) { return name == device->name; };
      if (std::ranges::any_of(devices, has_name) || !is_first("missing " + name)) continue;
      std::string present;
      for (const ibv_device* device : devices) {
        present += (present.empty() ? "" : ", ") + std::string(device->name);
      }
      SHIFT_WARN("SHIFT_PAIRS names \"%s\", which is no device here and backs none; there are %s",
                 name.c_str(), present.c_str());
    }
  }
} catch (const std::bad_alloc&) {
  // The line is dropped: the device list is more important than its log.
}

void log_group(std::span<ibv_device* const> devices, const std::vector<int>& members) noexcept try {
  if (!log_enabled(LogLevel::kInfo)) return;
  std::string line = devices[static_cast<size_t>(members.front())]->name;
  if (members.size() < 2) line += " has no partner and is not protected";
  for (size_t i = 1; i < members.size(); i++) {
    line += i == 1 ? " is backed by " : ", then by ";
    line += devices[static_cast<size_t>(members[i])]->name;
  }
  if (is_first(line)) SHIFT_INFO("%s", line.c_str());
} catch (const std::bad_alloc&) {
  // The line is dropped, as in log_missing_names().
}

}  // namespace shift::ops
