#include "ops/nic_facts.h"

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace shift::ops {
namespace {

// The file's first line; empty: there is none.
std::string line_of(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return {};
  char line[128];
  const bool has_line = std::fgets(line, sizeof line, file) != nullptr;
  std::fclose(file);
  return has_line ? std::string(line, std::strcspn(line, "\n")) : std::string();
}

std::string real_path(const std::string& path) {
  char found[PATH_MAX];
  return realpath(path.c_str(), found) != nullptr ? found : "";
}

bool is_pci_function(std::string_view name) {  // 0000:3b:00.1
  return name.size() >= 12 && name[name.size() - 2] == '.' && name[name.size() - 5] == ':' &&
         name[name.size() - 8] == ':';
}

// The parts of a sysfs path that are PCI functions; empty: the last part is none.
std::vector<std::string> place_in(std::string_view path) {
  std::vector<std::string> place;
  bool is_last_one = false;
  while (!path.empty()) {
    const size_t end = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, end);
    is_last_one = is_pci_function(part);
    if (is_last_one) place.emplace_back(part);
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  if (!is_last_one) place.clear();
  return place;
}

// A driver's name where it is known. Otherwise it is what the names of its devices begin with.
std::string kind_of(const ibv_device& device, const std::string& driver) {
  std::string kind = std::to_string(device.node_type) + ' ';
  if (!driver.empty()) return kind + driver.substr(driver.rfind('/') + 1);
  return kind.append(device.name, std::strcspn(device.name, "0123456789_"));
}

}  // namespace

NicFacts nic_facts(const ibv_device& device) {
  const std::string base = device.ibdev_path, port = base + "/ports/1/";
  NicFacts facts;
  facts.kind = kind_of(device, real_path(base + "/device/driver"));
  facts.link_layer = line_of(port + "link_layer");
  // A port that is down shows some speed, which says nothing.
  if (std::atoi(line_of(port + "state").c_str()) == IBV_PORT_ACTIVE) {
    const double gigabits = std::atof(line_of(port + "rate").c_str());
    if (gigabits > 0) facts.gigabits = gigabits;
  }
  // A virtual function is on the card of its physical one.
  const std::string physical = real_path(base + "/device/physfn");
  facts.place = place_in(physical.empty() ? real_path(base + "/device") : physical);
  const std::string numa_node = line_of(base + "/device/numa_node");
  if (!numa_node.empty() && std::atoi(numa_node.c_str()) >= 0)
    facts.numa_node = std::atoi(numa_node.c_str());
  return facts;
}

}  // namespace shift::ops
