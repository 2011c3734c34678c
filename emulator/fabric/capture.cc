// Switches packet captures on and off.
#include "fabric/capture.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

namespace cxemu {
namespace {

bool alive(int32_t pid) {
  return pid != 0 && (kill(pid, 0) == 0 || errno == EPERM);
}

bool anybody_writes(const Fabric& fabric) {
  for (const FabricProcess& process : fabric->process) {
    if (process.capturing.load() != 0 && alive(process.pid.load())) return true;
  }
  return false;
}

}  // namespace

bool capture_begin(const Fabric& fabric, const std::string& spool,
                   const std::vector<FabricNic*>& nics, std::string* error) {
  if (spool.size() >= sizeof fabric->capture_path) {
    *error = spool + ": too long for a capture";
    return false;
  }
  int32_t owner = fabric->capture_pid.load();
  if (alive(owner) || !fabric->capture_pid.compare_exchange_strong(owner, getpid())) {
    *error = "a capture of this fabric is running already, by process " + std::to_string(owner);
    return false;
  }
  // A capturing process that was killed may have left its capture on, with another path.
  for (FabricNic& nic : fabric->nic) nic.capture.store(0);
  memcpy(fabric->capture_path, spool.c_str(), spool.size() + 1);
  fabric->capture_lost.store(0);
  const uint32_t session = fabric->capture_session.load() + 1;
  fabric->capture_session.store(session);
  if (nics.empty()) {
    for (FabricNic& nic : fabric->nic) nic.capture.store(session);
  }
  for (FabricNic* nic : nics) nic->capture.store(session);
  return true;
}

void capture_end(const Fabric& fabric, std::chrono::milliseconds patience) {
  for (FabricNic& nic : fabric->nic) nic.capture.store(0);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (anybody_writes(fabric) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  fabric->capture_pid.store(0);
}

void capture_forget(FabricFile& fabric) {
  for (FabricNic& nic : fabric.nic) nic.capture.store(0);
}

}  // namespace cxemu
