// Path translation. Every open() and stat() of the application calls it, so it neither allocates
// nor locks.
#include "host/paths.h"

#include <cstdio>
#include <cstring>

#include "host/guest.h"

namespace cxemu {
namespace {

constexpr std::string_view kDevicePrefix = "/dev/infiniband/uverbs";
// The same prefixes hide real RDMA devices of the machine.
constexpr std::string_view kDeviceDir = "/dev/infiniband";
constexpr std::string_view kSysfsPrefix = "/sys/class/infiniband";
constexpr std::string_view kBusPrefix = "/sys/class/pci_bus/";
constexpr std::string_view kRootPrefix = "/sys/devices/pci";

bool inside_device_dir(std::string_view path) {
  return path.starts_with(kDeviceDir) &&
         (path.size() == kDeviceDir.size() || path[kDeviceDir.size()] == '/');
}

constexpr size_t kBusSize = 7;  // DDDD:BB

// Whether some NIC is on this bus or, with `root`, below this root of buses. The machine's own
// buses stay as they are, unless a NIC was put there.
bool bus_is_emulated(const Guest& guest, std::string_view bus, bool root) {
  if (bus.starts_with(kPciDomain)) return true;
  for (int i = 0; i < kMaxNicsPerHost && bus.size() == kBusSize; ++i) {
    const FabricNic* nic = guest.nic(i);
    if (nic == nullptr) break;
    const NicPlace& place = nic->place;
    const char* address = root && place.bridges[0] != '\0' ? place.bridges : place.pci;
    if (strncmp(address, bus.data(), kBusSize) == 0) return true;
  }
  return false;
}

bool on_emulated_bus(const Guest& guest, std::string_view path) {
  for (const bool root : {false, true}) {
    const std::string_view prefix = root ? kRootPrefix : kBusPrefix;
    if (!path.starts_with(prefix)) continue;
    const std::string_view rest = path.substr(prefix.size());
    return bus_is_emulated(guest, rest.substr(0, rest.find('/')), root);
  }
  return false;
}

}  // namespace

int device_path_index(const Guest& guest, std::string_view path) {
  if (!path.starts_with(kDevicePrefix) || path.size() != kDevicePrefix.size() + 1) return -1;
  const int index = path.back() - '0';
  return guest.device_exists(index) ? index : -1;
}

TranslatedPath::TranslatedPath(const char* path) : path_(path) {
  const Guest* guest = Guest::get();
  if (guest == nullptr || path == nullptr || path[0] != '/') return;
  // The tree has the class folders at /class and the device nodes at /dev-infiniband.
  const char* rest;
  const char* at;
  if (strncmp(path, kSysfsPrefix.data(), kSysfsPrefix.size()) == 0 ||
      on_emulated_bus(*guest, path)) {
    at = "";
    rest = path + strlen("/sys");
  } else if (inside_device_dir(path)) {
    device_ = device_path_index(*guest, path);
    if (device_ >= 0) {
      path_ = "/dev/zero";
      return;
    }
    at = "/dev-infiniband";
    rest = path + kDeviceDir.size();
  } else {
    return;
  }
  const int length =
      snprintf(changed_, sizeof changed_, "%s%s%s", guest->sysfs_root().c_str(), at, rest);
  if (length > 0 && static_cast<size_t>(length) < sizeof changed_) path_ = changed_;
}

}  // namespace cxemu
