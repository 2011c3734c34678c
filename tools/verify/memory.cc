// Checks of registered memory: each region is registered on each NIC of its group.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>

#include "rig.h"
#include "topics.h"
#include "trouble.h"
#include "util/config.h"

namespace shift::verify {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;
constexpr size_t kRegion = 64 * 1024 * 1024;
constexpr int kCapIpcLock = 14;  // linux/capability.h

bool may_lock_all() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("CapEff:", 0) == 0)
      return (std::stoull(line.substr(7), nullptr, 16) >> kCapIpcLock & 1) != 0;
  }
  return false;
}

std::string size_text(double bytes) {
  return bytes < kGib ? text("%.3g MiB", bytes / (kGib / 1024)) : text("%.4g GiB", bytes / kGib);
}

}  // namespace

Outcome check_locked_memory(const Subject& subject) {
  const auto nics = static_cast<double>(std::max<size_t>(subject.nics.size(), 1));
  const double machine =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  rlimit limit{};
  require(getrlimit(RLIMIT_MEMLOCK, &limit) == 0, "getrlimit", errno);
  if (limit.rlim_cur == RLIM_INFINITY) return ok("RLIMIT_MEMLOCK is unlimited");
  const double bytes = static_cast<double>(limit.rlim_cur);
  const double each = bytes / nics;
  const std::string seen = text("RLIMIT_MEMLOCK is %s, so with %.0f NICs a program can register %s",
                                size_text(bytes).c_str(), nics, size_text(each).c_str());
  if (may_lock_all())
    return ok(seen + "; it does not hold for this user (CAP_IPC_LOCK), but may hold for others");
  const double wanted = subject.wishes.memory_gib * kGib;
  if (wanted > 0) {
    return each < wanted ? failure(seen + ", not " + size_text(wanted)) : ok(seen);
  }
  if (each < static_cast<double>(kRegion)) return failure(seen);
  return each < machine ? warning(seen + "; this machine has " + size_text(machine)) : ok(seen);
}

Outcome check_registration(const Subject& subject) {
  Device device(subject.nic);
  std::vector<double> took;
  for (int round = 0; round < 3; round++) {
    // New pages in each round, as for a program that registers what it has just allocated. They are
    // touched before, so that the kernel's work for them is not counted.
    Memory memory(device, kRegion);
    took.push_back(memory.registration_ms());
    memory.release();
  }
  std::ranges::sort(took);
  const double most = took.back();
  const double per_gib = took[1] / 1000 * kGib / static_cast<double>(kRegion);
  const double allowed = config().command_ms;  // and more for large regions
  Outcome out = ok(text("%.2f s per GiB", per_gib));
  if (most > allowed) {
    out =
        failure(text("64 MiB took %.0f ms, so the layer takes this NIC for one that hangs", most));
  } else if (per_gib > 2) {
    out =
        warning(text("%.2f s per GiB: a program may have no second path until its memory is "
                     "registered",
                     per_gib));
  }
  out.figures = {{"s_per_gib", per_gib}};
  return out;
}

}  // namespace shift::verify
