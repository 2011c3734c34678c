// Applies faults to hosts.
#include "fabric/host_fault.h"

#include <dirent.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fabric/fault_words.h"

namespace cxemu {
namespace {

using Kind = FaultCommand::Kind;

// Whether the process was started on the host: `cxemu exec` leaves these in its environment, and
// its children inherit them.
bool runs_on(const std::string& pid, const std::string& host, const std::string& fabric_path) {
  std::ifstream file("/proc/" + pid + "/environ", std::ios::binary);
  const std::string all =
      std::string(1, '\0') + std::string(std::istreambuf_iterator<char>(file), {});
  const auto has = [&](const std::string& entry) {
    return all.find('\0' + entry + '\0') != std::string::npos;
  };
  return has("CXEMU_HOST=" + host) && has("CXEMU_FABRIC_FILE=" + fabric_path);
}

// Those that have ended and that nobody has waited for do not count: their environment is gone.
std::vector<pid_t> processes_of(const std::string& host, const std::string& fabric_path) {
  std::vector<pid_t> all;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return all;
  while (const dirent* entry = readdir(proc)) {
    const std::string name = entry->d_name;
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const pid_t pid = atoi(name.c_str());
    if (pid != getpid() && runs_on(name, host, fabric_path)) all.push_back(pid);
  }
  closedir(proc);
  return all;
}

// Ends all, also those that are started meanwhile. A process that this user may not end, or that
// the kernel holds, is given up after a while.
void processes_end(const std::string& host, const std::string& fabric_path) {
  constexpr int kRounds = 500;
  constexpr timespec kPause = {0, 10'000'000};
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<pid_t> pids = processes_of(host, fabric_path);
    if (pids.empty()) return;
    for (const pid_t pid : pids) kill(pid, SIGKILL);
    nanosleep(&kPause, nullptr);
  }
}

}  // namespace

bool target_faults_parse(FabricFile& fabric, const std::string& name,
                         const std::vector<std::string>& words, uint32_t seed, FaultTarget* target,
                         std::vector<FaultCommand>* out, std::string* error) {
  *target = {};
  const bool whole = name.find('/') == std::string::npos;
  if (whole) {
    const uint32_t hosts = fabric.host_count.load(std::memory_order_acquire);
    for (uint32_t host = 0; host < hosts && host < kMaxHosts; ++host)
      if (name == fabric.host_name[host]) target->host = static_cast<int>(host);
    if (target->host < 0) {
      *error = "no host '" + name + "' in the fabric";
      return false;
    }
  } else {
    target->nic = nic_by_name(fabric, name, error);
    if (target->nic == nullptr) return false;
    target->host = static_cast<int>(target->nic->host);
  }
  if (!faults_parse(fabric, words, seed, out, error)) return false;
  for (const FaultCommand& fault : *out) {
    const bool of_host = fault_is_of_host(fault.kind);
    if (whole ? of_host || (fault.kind == Kind::kHeal && !fault.triggered) : !of_host) continue;
    *error = fault.text + (whole ? ": is for a NIC, HOST/DEVICE; a host can have cut, power-off, "
                                   "power-on and heal"
                                 : ": is for a whole host, not for a NIC");
    return false;
  }
  return true;
}

void host_fault_apply(FabricFile& fabric, int host, const FaultCommand& fault,
                      const std::string& fabric_path, const std::string& run_dir, uint64_t now_ns) {
  std::atomic<uint32_t>& off = fabric.host_off[host];
  if (fault.kind == Kind::kPowerOn && off.exchange(0) == 0) return;
  std::vector<FabricNic*> nics;
  for (int i = 0; i < kMaxNicsPerHost; ++i) {
    FabricNic& nic = fabric.nic[host * kMaxNicsPerHost + i];
    if (nic.used.load(std::memory_order_acquire) != 0) nics.push_back(&nic);
  }
  constexpr uint32_t kSilent = kDropData | kDropAcks;
  std::vector<uint32_t> before;
  if (fault.kind == Kind::kPowerOff) {
    off.store(1);
    // Nothing that is still done may leave the host, and none of its programs may come to know that
    // the power is gone.
    for (FabricNic* nic : nics) {
      before.push_back(nic->faults.fetch_or(kSilent) & kSilent);
      nic_changed(fabric, *nic);
    }
    processes_end(fabric.host_name[host], fabric_path);
    std::error_code none;
    std::filesystem::remove_all(run_dir, none);
  }
  std::string none;
  for (FabricNic* nic : nics) fault_apply(fabric, *nic, fault, now_ns, &none);
  for (size_t i = 0; i < before.size(); ++i) nics[i]->faults.fetch_and(~(kSilent & ~before[i]));
}

}  // namespace cxemu
