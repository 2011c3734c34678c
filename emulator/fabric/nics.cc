// Finds NICs by name and number, and announces changes of NICs.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "fabric/fabric.h"

namespace cxemu {

uint16_t nic_number(const FabricFile& fabric, const FabricNic& nic) {
  return static_cast<uint16_t>(&nic - fabric.nic);
}

std::string nic_name(const FabricFile& fabric, const FabricNic& nic) {
  return std::string(fabric.host_name[nic.host]) + "/mlx5_" + std::to_string(nic.index);
}

FabricNic* nic_by_name(FabricFile& fabric, const std::string& name, std::string* error) {
  const size_t slash = name.find('/');
  const std::string host_name = name.substr(0, slash);
  const uint32_t hosts = fabric.host_count.load(std::memory_order_acquire);
  for (uint32_t host = 0; host < hosts && host < kMaxHosts; ++host) {
    if (host_name != fabric.host_name[host]) continue;
    FabricNic* const nics = &fabric.nic[host * kMaxNicsPerHost];
    int count = 0;
    for (; count < kMaxNicsPerHost && nics[count].used.load(std::memory_order_acquire) != 0;
         ++count)
      if (nic_name(fabric, nics[count]) == name) return &nics[count];
    *error =
        "'" + name + "': host " + host_name + " has mlx5_0 to mlx5_" + std::to_string(count - 1);
    return nullptr;
  }
  *error = "no host '" + host_name + "' in the fabric";
  return nullptr;
}

void nic_changed(FabricFile& fabric, FabricNic& nic) {
  nic.generation.fetch_add(1, std::memory_order_acq_rel);
  fabric_wake(fabric);
}

void fabric_wake(FabricFile& fabric) {
  fabric.change_count.fetch_add(1, std::memory_order_acq_rel);
  syscall(SYS_futex, &fabric.change_count, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace cxemu
