// The device list: which NICs form a device group, and the virtual devices in their places.
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "control/process_board.h"
#include "ops/device_log.h"
#include "ops/entry.h"
#include "ops/glue.h"
#include "ops/nic_facts.h"
#include "ops/open_contexts.h"
#include "ops/pairing.h"
#include "util/config.h"
#include "util/log.h"

namespace shift::ops {
namespace {

using group::Device;
using group::kDefault;

// Virtual devices live for ever, and there is at most one for each NIC name. So an address that the
// program holds stays valid, and owns() only checks a range.
constexpr int kMaxDevices = 64;
alignas(Device) constinit unsigned char device_storage[kMaxDevices * sizeof(Device)] = {};
constinit std::atomic<int> device_count{0};
constinit std::mutex devices_mutex;

Device* device_at(int index) {
  return std::launder(reinterpret_cast<Device*>(device_storage + sizeof(Device) * index));
}

// A call that hangs uses the device of a list, so real lists are not freed any more.
constinit std::atomic<bool> lists_kept{false};

// The application holds the array after this header, at shown(). When it frees that array, the
// real list goes back to the stock library.
struct List {
  ibv_device** real;
  ibv_device** shown() { return reinterpret_cast<ibv_device**>(this + 1); }
};

// The devices that the configuration puts into a group with the device at `index`, which comes
// first. The order is the configured one; it starts at the device's own place and goes on at the
// beginning.
std::vector<int> configured_group(std::span<ibv_device* const> real, int index) {
  const auto place_of = [&](const std::string& name) {
    const auto found =
        std::ranges::find(real, name, [](const ibv_device* one) { return one->name; });
    return found != real.end() ? static_cast<int>(found - real.begin()) : -1;
  };
  std::vector<int> members{index};
  for (const auto& names : config().groups) {
    const auto self = std::ranges::find(names, real[static_cast<size_t>(index)]->name);
    if (self == names.end()) continue;
    for (size_t i = 1; i < names.size(); i++) {
      const auto place = (static_cast<size_t>(self - names.begin()) + i) % names.size();
      const int other = place_of(names[place]);
      if (other >= 0 && members.size() < group::kMembersMax) members.push_back(other);
    }
  }
  return members;
}

// What is known of these devices. A process that asks for the same devices again gets the same
// answer, and so the same groups, whatever their ports do meanwhile. The caller holds
// devices_mutex.
const std::vector<NicFacts>& facts_of(std::span<ibv_device* const> real) {
  // These are never destroyed, because programs ask for the device list in exit handlers, too.
  static auto* const known_names = new std::vector<std::string>;
  static auto* const known = new std::vector<NicFacts>;
  std::vector<std::string> names;
  for (const ibv_device* device : real) names.emplace_back(device->name);
  if (names != *known_names) {
    std::vector<NicFacts> nics;
    for (const ibv_device* device : real) nics.push_back(nic_facts(*device));
    if (speeds_matter(nics))
      port_speeds_read(real, nics, std::chrono::milliseconds(config().command_ms));
    *known = std::move(nics);
    *known_names = std::move(names);
  }
  return *known;
}

// The devices that form a group with the device at `index`, which comes first. A device that no
// other fits is alone in the result. The caller holds devices_mutex.
std::vector<int> group_of(std::span<ibv_device* const> real, int index) {
  if (!config().groups.empty()) return configured_group(real, index);
  std::vector<int> members{index};
  const std::vector<NicFacts>& nics = facts_of(real);
  if (config().spread == Config::Spread::kOne) {
    const int partner = partners_of(nics)[static_cast<size_t>(index)];
    if (partner >= 0) members.push_back(partner);
    return members;
  }
  for (const int backup : all_backups_of(nics, index))
    if (members.size() < group::kMembersMax) members.push_back(backup);
  return members;
}

// With two NICs there is nothing to choose. The caller holds devices_mutex.
std::vector<uint8_t> capacities(std::span<ibv_device* const> real,
                                const std::vector<int>& members) {
  if (members.size() <= 2) return std::vector<uint8_t>(members.size(), 1);
  std::vector<NicFacts> group;
  for (const int member : members) group.push_back(facts_of(real)[static_cast<size_t>(member)]);
  return capacities_of(group, config().distance);
}

// The caller holds devices_mutex.
Device* virtual_device(std::span<ibv_device* const> list, const std::vector<int>& members) {
  ibv_device* real = list[static_cast<size_t>(members.front())];
  const int count = device_count.load(std::memory_order_relaxed);
  Device* device = nullptr;
  for (int i = 0; i < count; i++) {
    if (std::strcmp(device_at(i)->dev.name, real->name) == 0) device = device_at(i);
  }
  if (device == nullptr) {
    if (count == kMaxDevices) return nullptr;
    device = new (device_at(count)) Device{};
    device->dev = *real;
    device->dev._ops = {};
    device_count.store(count + 1, std::memory_order_release);
  }
  // Other threads may read these fields while they open the device, so a field is written only when
  // its value changes, which is rare.
  const auto set = [](auto& field, auto value) {
    if (field != value) field = value;
  };
  set(device->member_count, static_cast<int>(members.size()));
  const std::vector<uint8_t> capacity = capacities(list, members);
  for (int i = 0; i < device->member_count; i++) {
    set(device->real[i], list[static_cast<size_t>(members[static_cast<size_t>(i)])]);
    set(device->capacity[i], capacity[static_cast<size_t>(i)]);
  }
  return device;
}

}  // namespace

bool init(const StockVerbs& functions) noexcept {
  stock = &functions;
  return !config().disable && stock->get_device_list != nullptr;
}

ibv_device** device_list_wrap(ibv_device** real, int count) noexcept try {
  const size_t bytes = sizeof(List) + sizeof(ibv_device*) * (static_cast<size_t>(count) + 1);
  auto* list = static_cast<List*>(std::calloc(1, bytes));
  if (list == nullptr) throw std::bad_alloc();
  list->real = real;
  const std::span<ibv_device* const> devices(real, static_cast<size_t>(count));
  std::lock_guard lock(devices_mutex);
  log_missing_names(config().groups, devices);
  for (int i = 0; i < count; i++) {
    const auto members = group_of(devices, i);
    log_group(devices, members);
    if (members.size() < 2) control::tell_alone(real[i]->name, "no other NIC of this host fits it");
    Device* device = members.size() < 2 ? nullptr : virtual_device(devices, members);
    list->shown()[i] = device != nullptr ? &device->dev : real[i];
  }
  return list->shown();
} catch (const std::bad_alloc&) {
  errno = ENOMEM;
  return nullptr;
}

void device_lists_keep() noexcept {
  lists_kept = true;
}

void device_list_free(ibv_device** shown) noexcept {
  auto* list = reinterpret_cast<List*>(shown) - 1;
  if (!lists_kept) stock->free_device_list(list->real);
  std::free(list);
}

bool owns(const ibv_device* device) noexcept {
  const auto* address = reinterpret_cast<const unsigned char*>(device);
  return address >= device_storage &&
         address <
             device_storage +
                 sizeof(Device) * static_cast<size_t>(device_count.load(std::memory_order_acquire));
}

ibv_device* real_device(ibv_device* device) noexcept {
  return reinterpret_cast<Device*>(device)->real[kDefault];
}

ibv_context* real_context(ibv_context* context) noexcept {
  return group::Context::from(context)->members[kDefault].real;
}

}  // namespace shift::ops
