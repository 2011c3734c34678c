#include "ops/nic_facts.h"

#include <climits>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "util/log.h"

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

// In gigabits per second. A port that is down shows some speed, which says nothing.
std::optional<double> speed_of(const std::string& port) {
  if (std::atoi(line_of(port + "state").c_str()) != IBV_PORT_ACTIVE) return std::nullopt;
  const double gigabits = std::atof(line_of(port + "rate").c_str());
  return gigabits > 0 ? std::optional(gigabits) : std::nullopt;
}

// In gigabits per second, from "16.0 GT/s PCIe" and a number of lanes. From the third generation
// on, 128 of 130 bits are data, and before that 8 of 10.
std::optional<double> bus_speed_of(const std::string& function) {
  constexpr double kThirdGeneration = 8;
  const double transfers = std::atof(line_of(function + "current_link_speed").c_str());
  const double lanes = std::atof(line_of(function + "current_link_width").c_str());
  if (transfers <= 0 || lanes <= 0) return std::nullopt;
  return transfers * lanes * (transfers >= kThirdGeneration ? 128.0 / 130 : 0.8);
}

struct Speed {
  std::optional<double> port, bus;
};

// What the threads of port_speeds_read() have found. They share it, because one may outlive the
// call.
struct Speeds {
  std::mutex mutex;
  std::condition_variable answered;
  std::vector<Speed> of;  // in the order of the devices
  size_t open = 0;        // so many have not answered
};

// Starts a thread that asks for one device, and takes none of the program's signals. False: the
// system refuses it.
bool asks(const std::shared_ptr<Speeds>& speeds, size_t index, const std::string& device) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  bool is_started = true;
  try {
    std::thread([speeds, index, device] {
      const Speed speed{speed_of(device + "/ports/1/"), bus_speed_of(device + "/device/")};
      std::lock_guard lock(speeds->mutex);
      speeds->of[index] = speed;
      speeds->open--;
      speeds->answered.notify_one();
    }).detach();
  } catch (const std::exception&) {
    is_started = false;
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  return is_started;
}

// A driver's name where it is known. Otherwise it is what the names of its devices begin with.
std::string kind_of(const ibv_device& device, const std::string& driver) {
  std::string kind = std::to_string(device.node_type) + ' ';
  if (!driver.empty()) return kind + driver.substr(driver.rfind('/') + 1);
  return kind.append(device.name, std::strcspn(device.name, "0123456789_"));
}

}  // namespace

NicFacts nic_facts(const ibv_device& device) {
  const std::string base = device.ibdev_path;
  NicFacts facts;
  facts.kind = kind_of(device, real_path(base + "/device/driver"));
  facts.link_layer = line_of(base + "/ports/1/link_layer");
  // A virtual function is on the card of its physical one.
  const std::string physical = real_path(base + "/device/physfn");
  facts.place = place_in(physical.empty() ? real_path(base + "/device") : physical);
  const std::string numa_node = line_of(base + "/device/numa_node");
  if (!numa_node.empty() && std::atoi(numa_node.c_str()) >= 0)
    facts.numa_node = std::atoi(numa_node.c_str());
  return facts;
}

// It has the form 0123:4567:89ab:cdef.
uint64_t nic_guid(const ibv_device& device) {
  std::string digits = line_of(device.ibdev_path + std::string("/node_guid"));
  std::erase(digits, ':');
  constexpr size_t kDigits = 16;
  return digits.size() == kDigits ? std::strtoull(digits.c_str(), nullptr, 16) : 0;
}

void port_speeds_read(std::span<ibv_device* const> devices, std::vector<NicFacts>& facts,
                      std::chrono::milliseconds patience) {
  const auto speeds = std::make_shared<Speeds>();
  std::unique_lock lock(speeds->mutex);
  speeds->of.resize(devices.size());
  for (size_t i = 0; i < devices.size(); i++)
    speeds->open += asks(speeds, i, devices[i]->ibdev_path);
  if (!speeds->answered.wait_for(lock, patience, [&] { return speeds->open == 0; })) {
    SHIFT_WARN_LIMITED(
        "%zu of the NICs %s not say the speed of the port within %lld ms: NICs are paired "
        "without it",
        speeds->open, speeds->open == 1 ? "does" : "do", static_cast<long long>(patience.count()));
  }
  for (size_t i = 0; i < devices.size(); i++) {
    facts[i].gigabits = speeds->of[i].port;
    facts[i].bus_gigabits = speeds->of[i].bus;
  }
}

}  // namespace shift::ops
