// The GID table of an emulated RoCE port, and the way back from a GID to the NIC.
//   0, 1  link-local address (RoCE v1, RoCE v2)
//   2, 3  the NIC's IPv4-mapped address ::ffff:127.x.y.z (RoCE v1, RoCE v2)
#pragma once

#include <cstdint>

#include "fabric/fabric.h"

namespace cxemu {

inline constexpr int kGidCount = 4;
inline constexpr int kGidRoceV2Ipv4 = 3;

void nic_mac(const FabricNic&, uint8_t mac[6]);
// Network byte order. `index` in 0..kGidCount-1.
void nic_gid(const FabricNic&, int index, uint8_t gid[16]);
bool gid_is_roce_v2(int index);
// The NIC that owns a GID, or nullptr.
FabricNic* nic_by_gid(FabricFile&, const uint8_t gid[16]);
inline FabricNic* nic_by_gid(const Fabric& fabric, const uint8_t gid[16]) {
  return nic_by_gid(*fabric.operator->(), gid);
}

}  // namespace cxemu
