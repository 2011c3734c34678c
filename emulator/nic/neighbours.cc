#include "nic/neighbours.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "nic/planted.h"

namespace cxemu {
namespace {

constexpr uint64_t kLookNs = 1'000'000;
// As long as somebody is starved, all engines ask the kernel about him. That must not be what the
// processors are busy with.
constexpr uint64_t kStarvedLookNs = 10'000'000;

// A process that was killed but not yet waited for still has a PID, but never runs again.
bool can_run(int32_t pid) {
  char path[32], line[512];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path, "re"), fclose);
  if (!file || fgets(line, sizeof line, file.get()) == nullptr) return false;
  // The name, in parentheses, may contain any character.
  const char* name_end = strrchr(line, ')');
  return name_end != nullptr && name_end[1] == ' ' && strchr("ZXx", name_end[2]) == nullptr;
}

// Those that this process may use.
uint64_t processors() {
  static const uint64_t count = [] {
    cpu_set_t may_use;
    const bool is_told = sched_getaffinity(0, sizeof may_use, &may_use) == 0;
    return static_cast<uint64_t>(std::max(is_told ? CPU_COUNT(&may_use) : 1, 1));
  }();
  return count;
}

}  // namespace

bool Neighbours::is_starved(const FabricProcess& process, uint64_t now_ns) const {
  const uint64_t passed_ns = process.passed_ns.load(std::memory_order_relaxed);
  // The stamp was made after `now_ns` was read, so the process runs.
  if (passed_ns == 0 || now_ns < passed_ns + kLateNs) return false;
  const int32_t pid = process.pid.load(std::memory_order_relaxed);
  if (CXEMU_PLANT(starved_not_waited_for)) return false;
  if (now_ns - passed_ns >= kExcusedNs && !CXEMU_PLANT(starved_waited_for_ever)) return false;
  return pid != 0 && (can_run(pid) || CXEMU_PLANT(dead_waited_for));
}

bool Neighbours::any_starved(uint64_t now_ns) {
  if (now_ns - looked_ns_ < (starved_ ? kStarvedLookNs : kLookNs) * crowding_) return starved_;
  looked_ns_ = now_ns;
  starved_ = false;
  uint64_t watching = 0;
  for (int slot = 1; slot <= kMaxProcesses; slot++) {
    const FabricProcess& process = fabric_.process[slot];
    const uint64_t passed_ns = process.passed_ns.load(std::memory_order_relaxed);
    if (passed_ns != 0 && now_ns < passed_ns + kExcusedNs) watching++;
    if (!starved_) starved_ = slot != slot_ && is_starved(process, now_ns);
  }
  crowding_ = std::clamp<uint64_t>(watching / (kUncrowded * processors()), 1, kCrowdingMax);
  return starved_;
}

}  // namespace cxemu
