// Writing sysfs trees.
#include "host/sysfs_tree.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "fabric/flap.h"
#include "fabric/place.h"
#include "host/device_number.h"
#include "host/paths.h"
#include "host/port_files.h"
#include "uverbs/limits.h"

namespace cxemu {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kLinkSpeed = 160, kLinkWidth = 16;  // of a ConnectX-6 Dx
constexpr uint32_t kBridgeSpeed = 640;

// The file appears complete or not at all, because programs may be reading the tree.
void file_write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  fs::path draft = path;
  draft += ".draft" + std::to_string(getpid());
  std::ofstream out(draft);
  out << text << "\n";
  out.close();
  if (!out) throw std::system_error(errno, std::generic_category(), draft.string());
  fs::rename(draft, path);
}

void link_make(const fs::path& target, const fs::path& link) {
  fs::create_directories(link.parent_path());
  if (!fs::is_symlink(link)) fs::create_symlink(target, link);
}

std::string guid_text(uint64_t guid) {
  uint8_t bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(guid >> (56 - 8 * i));
  return hex_groups(bytes, 8);
}

std::string device_name(const FabricNic& nic) {
  return "mlx5_" + std::to_string(nic.index);
}

// Unless it was given a place, every NIC is on a bus of its own, in a PCI domain (kPciDomain) that
// the machine does not have.
std::string pci_address(const FabricNic& nic) {
  if (nic.place.pci[0] != '\0') return nic.place.pci;
  char text[32];
  snprintf(text, sizeof text, "%s:%02x:00.0", kPciDomain, 0x10 + nic.index);
  return text;
}

// DDDD:BB of DDDD:BB:DD.F.
std::string bus_of(const std::string& address) {
  return address.substr(0, 7);
}

// These paths are relative to the tree's root.
fs::path pci_path(const FabricNic& nic) {
  const std::string address = pci_address(nic);
  if (nic.place.pci[0] == '\0')
    return fs::path("devices/pci" + std::string(kPciDomain) + ":00") / address;
  const std::string bridges = nic.place.bridges;
  const fs::path root = "devices/pci" + bus_of(bridges.empty() ? address : bridges);
  return bridges.empty() ? root / address : root / bridges / address;
}

fs::path device_path(const FabricNic& nic) {
  return pci_path(nic) / "infiniband" / device_name(nic);
}

// The processors near a NIC: as a list, and as the mask that sysfs shows.
struct Processors {
  std::string list, mask;
};

Processors processors_of(const FabricNic& nic) {
  const long count = std::max(1l, sysconf(_SC_NPROCESSORS_ONLN));
  Processors near = {nic.place.cpus, ""};
  if (near.list.empty()) near.list = "0-" + std::to_string(count - 1);
  std::vector<int> cpus;
  cpu_list_parse(near.list, &cpus);
  const long words = (std::max(count, cpus.empty() ? 0l : cpus.back() + 1l) + 31) / 32;
  std::vector<uint32_t> bits(static_cast<size_t>(words));
  for (const int cpu : cpus) bits[static_cast<size_t>(cpu / 32)] |= 1u << cpu % 32;
  for (size_t i = bits.size(); i-- > 0;) {
    char word[16];
    snprintf(word, sizeof word, "%s%08x", near.mask.empty() ? "" : ",", bits[i]);
    near.mask += word;
  }
  return near;
}

// What a card and the bridges above it have in common.
void pci_common_write(const FabricNic& nic, const fs::path& pci) {
  const uint32_t speed = nic.place.speed.load(), width = nic.place.width.load();
  const Processors near = processors_of(nic);
  file_write(pci / "numa_node", std::to_string(nic.place.numa.load()));
  file_write(pci / "local_cpus", near.mask);
  file_write(pci / "local_cpulist", near.list);
  // The card can do at least this, and its link may be worse.
  file_write(pci / "max_link_speed", pci_speed_text(std::max(speed, kLinkSpeed)));
  file_write(pci / "max_link_width", std::to_string(std::max(width, kLinkWidth)));
  file_write(pci / "current_link_speed", pci_speed_text(speed != 0 ? speed : kLinkSpeed));
  file_write(pci / "current_link_width", std::to_string(width != 0 ? width : kLinkWidth));
}

void pci_write(const FabricNic& nic, const fs::path& root) {
  const fs::path pci = root / pci_path(nic);
  char device[16], modalias[96];
  snprintf(device, sizeof device, "0x%04x", kPciDeviceId);
  snprintf(modalias, sizeof modalias, "pci:v000015B3d%08Xsv000015B3sd00000016bc02sc00i00",
           kPciDeviceId);
  file_write(pci / "vendor", "0x15b3");
  file_write(pci / "device", device);
  file_write(pci / "subsystem_vendor", "0x15b3");
  file_write(pci / "subsystem_device", "0x0016");
  file_write(pci / "class", "0x020000");
  file_write(pci / "modalias", modalias);
  pci_common_write(nic, pci);
  link_make(root / "bus/pci", pci / "subsystem");
}

// The switches above a card. Their links are the greatest, whatever the card's own is.
void bridges_write(const FabricNic& nic, const fs::path& root) {
  const Processors near = processors_of(nic);
  fs::path bridge = root / ("devices/pci" + bus_of(nic.place.bridges));
  for (const fs::path& address : fs::path(nic.place.bridges)) {
    bridge /= address;
    file_write(bridge / "vendor", "0x1000");
    file_write(bridge / "device", "0xc030");
    file_write(bridge / "class", "0x060400");
    file_write(bridge / "numa_node", std::to_string(nic.place.numa.load()));
    file_write(bridge / "local_cpus", near.mask);
    file_write(bridge / "local_cpulist", near.list);
    for (const char* which : {"max", "current"}) {
      file_write(bridge / (std::string(which) + "_link_speed"), pci_speed_text(kBridgeSpeed));
      file_write(bridge / (std::string(which) + "_link_width"), std::to_string(kLinkWidth));
    }
    link_make(root / "bus/pci", bridge / "subsystem");
  }
}

// The bus itself, from which NCCL finds the device: class/pci_bus/BUS/../../DEVICE.
void bus_write(const FabricNic& nic, const fs::path& root) {
  const std::string name = bus_of(pci_address(nic));
  const fs::path bus = pci_path(nic).parent_path() / "pci_bus" / name;
  fs::create_directories(root / bus);
  fs::create_directories(root / "bus/pci");
  link_make(fs::path("../..") / bus, root / "class/pci_bus" / name);
}

void port_write(const FabricNic& nic, const fs::path& port) {
  file_write(port / "rate", "100 Gb/sec (4X EDR)");
  file_write(port / "link_layer", "Ethernet");
  file_write(port / "lid", "0x0");
  file_write(port / "lid_mask_count", "0");
  file_write(port / "sm_lid", "0x0");
  file_write(port / "sm_sl", "0");
  file_write(port / "cap_mask", "0x04010000");
  file_write(port / "pkeys/0", "0xffff");
  for (const std::string& path : port_files()) {
    std::string text;
    port_file_text(nic, path, monotonic_ns(), &text);
    if (!text.empty()) text.pop_back();
    file_write(port / path, text);
  }
}

void nic_write(const FabricNic& nic, const fs::path& root) {
  const std::string name = device_name(nic);
  const fs::path device = root / device_path(nic);
  const std::string uverbs = "uverbs" + std::to_string(nic.index);
  pci_write(nic, root);
  bridges_write(nic, root);
  bus_write(nic, root);
  file_write(device / "node_type", "1: CA");
  file_write(device / "node_guid", guid_text(nic.guid));
  file_write(device / "sys_image_guid", guid_text(nic.guid));
  file_write(device / "node_desc", "cxemu");
  file_write(device / "fw_ver", "22.41.1000");
  file_write(device / "hca_type", "MT4125");
  file_write(device / "hw_rev", "0");
  file_write(device / "board_id", "MT_0000000359");
  port_write(nic, device / "ports/1");
  link_make("../..", device / "device");
  link_make(fs::path("../..") / device_path(nic), root / "class/infiniband" / name);
  const fs::path bus_node = root / pci_path(nic) / "infiniband_verbs" / uverbs;
  const dev_t number = device_number(static_cast<int>(nic.index));
  file_write(bus_node / "dev", std::to_string(major(number)) + ":" + std::to_string(minor(number)));
  file_write(bus_node / "ibdev", name);
  file_write(bus_node / "abi_version", "1");
  link_make("../..", bus_node / "device");
  file_write(root / "dev-infiniband" / uverbs, "");
  // This comes last: from now on libibverbs lists the device.
  link_make(fs::path("../..") / pci_path(nic) / "infiniband_verbs" / uverbs,
            root / "class/infiniband_verbs" / uverbs);
}

// Several `cxemu exec` of one host may start at the same time.
class TreeLock {
 public:
  explicit TreeLock(const fs::path& root)
      : fd_(open((root / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (fd_ < 0 || flock(fd_, LOCK_EX) != 0)
      throw std::system_error(errno, std::generic_category(), root.string());
  }
  ~TreeLock() { close(fd_); }
  TreeLock(const TreeLock&) = delete;
  TreeLock& operator=(const TreeLock&) = delete;

 private:
  int fd_;
};

}  // namespace

void sysfs_tree_make(const Fabric& fabric, int host, const std::string& root) {
  fs::create_directories(root);
  TreeLock lock(root);
  const fs::path base(root);
  if (!fs::exists(base / "class/infiniband_verbs/abi_version"))
    file_write(base / "class/infiniband_verbs/abi_version", "6");
  for (int i = 0; i < fabric.host_nics(host); ++i)
    if (!fs::is_symlink(base / "class/infiniband_verbs" / ("uverbs" + std::to_string(i))))
      nic_write(*fabric.nic(host, i), base);
}

void sysfs_tree_refresh(const Fabric& fabric, int host, const std::string& root) {
  if (!fs::exists(root)) return;
  TreeLock lock(root);
  for (int i = 0; i < fabric.host_nics(host); ++i) pci_write(*fabric.nic(host, i), root);
}

void sysfs_tree_renew(const Fabric& fabric, int host, const std::string& root) {
  if (!fs::exists(root)) return;
  {
    TreeLock lock(root);
    for (const auto& entry : fs::directory_iterator(root))
      if (entry.path().filename() != ".lock") fs::remove_all(entry.path());
  }
  sysfs_tree_make(fabric, host, root);
}

}  // namespace cxemu
