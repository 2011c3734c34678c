// What a NIC has said of itself while it was healthy, kept for processes that begin while it is
// broken: they show it as it was (SHIFT_BORN).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace shift::ops {

struct NicMemory {
  int64_t saved_s = 0;  // in seconds since 1970
  ibv_device_attr_ex attr{};
  std::map<uint8_t, ibv_port_attr> ports;
  std::vector<ibv_gid_entry> gids;
};

// As bytes, and back. The bytes are for this very build's structures; what does not fit is
// nothing. `guid` names the NIC: what another NIC of that name has said is not believed.
std::string nic_pack(const NicMemory& memory, uint64_t guid);
std::optional<NicMemory> nic_unpack(const std::string& bytes, uint64_t guid);

// Reads what was said by the NIC that has this device's GUID.
std::optional<NicMemory> nic_recall(const ibv_device& device);
// Whether `now` shall take the place of what was remembered. While the NIC lacks an address that it
// had, what it says is the state of a fault, and is not remembered for an hour.
bool nic_is_news(const NicMemory& now, const std::optional<NicMemory>& before);
void nic_remember(const ibv_device& device, const NicMemory& memory);

}  // namespace shift::ops
