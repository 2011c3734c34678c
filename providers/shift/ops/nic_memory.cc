#include "ops/nic_memory.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "control/host_memory.h"
#include "ops/nic_facts.h"

namespace shift::ops {
namespace {

// Ahead of everything else: it changes with the layout of what follows.
struct Head {
  char magic[8] = {'S', 'H', 'I', 'F', 'T', 'N', 'I', 'C'};
  uint32_t version = 1;
  uint32_t attr_size = sizeof(ibv_device_attr_ex);
  uint32_t port_size = sizeof(ibv_port_attr);
  uint32_t gid_size = sizeof(ibv_gid_entry);
  uint64_t guid = 0;
  int64_t saved_s = 0;
  uint32_t ports = 0;
  uint32_t gids = 0;
};
struct Port {
  uint64_t number;
  ibv_port_attr attr;
};
constexpr uint32_t kPortsMax = 64, kGidsMax = 1024;

template <typename T>
void put(std::string& bytes, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
bool take(const std::string& bytes, size_t& at, T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (bytes.size() - at < sizeof value) return false;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  at += sizeof value;
  return true;
}

std::string file_of(uint64_t guid) {
  char name[32];
  snprintf(name, sizeof name, "nic-%016llx", static_cast<unsigned long long>(guid));
  return name;
}

}  // namespace

std::string nic_pack(const NicMemory& memory, uint64_t guid) {
  Head head;
  head.guid = guid;
  head.saved_s = memory.saved_s;
  head.ports = static_cast<uint32_t>(memory.ports.size());
  head.gids = static_cast<uint32_t>(memory.gids.size());
  std::string bytes;
  put(bytes, head);
  put(bytes, memory.attr);
  for (const auto& [number, attr] : memory.ports) put(bytes, Port{number, attr});
  for (const ibv_gid_entry& entry : memory.gids) put(bytes, entry);
  return bytes;
}

std::optional<NicMemory> nic_unpack(const std::string& bytes, uint64_t guid) {
  const Head expected;
  Head head;
  size_t at = 0;
  if (!take(bytes, at, head)) return std::nullopt;
  const bool is_ours = std::memcmp(head.magic, expected.magic, sizeof head.magic) == 0 &&
                       head.version == expected.version && head.attr_size == expected.attr_size &&
                       head.port_size == expected.port_size && head.gid_size == expected.gid_size;
  if (!is_ours || head.guid != guid || head.ports > kPortsMax || head.gids > kGidsMax)
    return std::nullopt;
  NicMemory memory;
  memory.saved_s = head.saved_s;
  if (!take(bytes, at, memory.attr)) return std::nullopt;
  for (uint32_t i = 0; i < head.ports; i++) {
    Port port;
    if (!take(bytes, at, port) || port.number > UINT8_MAX) return std::nullopt;
    memory.ports[static_cast<uint8_t>(port.number)] = port.attr;
  }
  for (uint32_t i = 0; i < head.gids; i++) {
    ibv_gid_entry entry;
    if (!take(bytes, at, entry)) return std::nullopt;
    memory.gids.push_back(entry);
  }
  if (at != bytes.size()) return std::nullopt;
  return memory;
}

std::optional<NicMemory> nic_recall(const ibv_device& device) {
  const uint64_t guid = nic_guid(device);
  if (guid == 0) return std::nullopt;  // any NIC could have this name
  return nic_unpack(control::kept_read(file_of(guid)), guid);
}

namespace {

bool has_gid(const std::vector<ibv_gid_entry>& gids, const ibv_gid_entry& wanted) {
  return std::ranges::any_of(gids, [&](const ibv_gid_entry& entry) {
    return entry.port_num == wanted.port_num && entry.gid_index == wanted.gid_index &&
           entry.gid_type == wanted.gid_type &&
           std::memcmp(&entry.gid, &wanted.gid, sizeof wanted.gid) == 0;
  });
}

bool holds_all(const std::vector<ibv_gid_entry>& gids, const std::vector<ibv_gid_entry>& wanted) {
  return std::ranges::all_of(wanted,
                             [&](const ibv_gid_entry& entry) { return has_gid(gids, entry); });
}

}  // namespace

bool nic_is_news(const NicMemory& now, const std::optional<NicMemory>& before) {
  constexpr int64_t kFresh_s = 600, kLost_s = 3600;
  if (!before || before->saved_s > now.saved_s) return true;
  const int64_t age_s = now.saved_s - before->saved_s;
  if (!holds_all(now.gids, before->gids)) return age_s >= kLost_s;
  return age_s >= kFresh_s || !holds_all(before->gids, now.gids);
}

void nic_remember(const ibv_device& device, const NicMemory& memory) {
  const uint64_t guid = nic_guid(device);
  if (guid == 0 || memory.ports.size() > kPortsMax || memory.gids.size() > kGidsMax) return;
  control::kept_write(file_of(guid), nic_pack(memory, guid));
}

}  // namespace shift::ops
