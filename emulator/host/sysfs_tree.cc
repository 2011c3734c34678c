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
#include "host/device_number.h"
#include "host/paths.h"
#include "host/port_files.h"
#include "uverbs/limits.h"

namespace cxemu {
namespace {

namespace fs = std::filesystem;

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

// Every NIC is on a bus of its own, in a PCI domain (kPciDomain) that the machine does not have.
std::string pci_bus(const FabricNic& nic) {
  char text[32];
  snprintf(text, sizeof text, "%s:%02x", kPciDomain, 0x10 + nic.index);
  return text;
}

// These paths are relative to the tree's root.
fs::path pci_root() {
  char text[32];
  snprintf(text, sizeof text, "devices/pci%s:00", kPciDomain);
  return text;
}

fs::path pci_path(const FabricNic& nic) {
  return pci_root() / (pci_bus(nic) + ":00.0");
}

fs::path device_path(const FabricNic& nic) {
  return pci_path(nic) / "infiniband" / device_name(nic);
}

void pci_write(const fs::path& pci) {
  const long cpus = std::max(1l, sysconf(_SC_NPROCESSORS_ONLN));
  char device[16], modalias[96];
  snprintf(device, sizeof device, "0x%04x", kPciDeviceId);
  snprintf(modalias, sizeof modalias, "pci:v000015B3d%08Xsv000015B3sd00000016bc02sc00i00",
           kPciDeviceId);
  std::string mask;
  for (long left = cpus; left > 0; left -= 32) {
    char word[16];
    snprintf(word, sizeof word, "%08lx", left >= 32 ? 0xffffffffl : (1l << left) - 1);
    mask = mask.empty() ? word : std::string(word) + "," + mask;
  }
  file_write(pci / "vendor", "0x15b3");
  file_write(pci / "device", device);
  file_write(pci / "subsystem_vendor", "0x15b3");
  file_write(pci / "subsystem_device", "0x0016");
  file_write(pci / "class", "0x020000");
  file_write(pci / "modalias", modalias);
  file_write(pci / "numa_node", "0");
  file_write(pci / "local_cpus", mask);
  file_write(pci / "local_cpulist", "0-" + std::to_string(cpus - 1));
  file_write(pci / "max_link_speed", "16.0 GT/s PCIe");
  file_write(pci / "max_link_width", "16");
  file_write(pci / "current_link_speed", "16.0 GT/s PCIe");
  file_write(pci / "current_link_width", "16");
  link_make("../../../bus/pci", pci / "subsystem");
}

// The bus itself, from which NCCL finds the device: class/pci_bus/BUS/../../DEVICE.
void bus_write(const FabricNic& nic, const fs::path& root) {
  const fs::path bus = pci_root() / "pci_bus" / pci_bus(nic);
  fs::create_directories(root / bus);
  fs::create_directories(root / "bus/pci");
  link_make(fs::path("../..") / bus, root / "class/pci_bus" / pci_bus(nic));
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
  pci_write(root / pci_path(nic));
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

}  // namespace cxemu
