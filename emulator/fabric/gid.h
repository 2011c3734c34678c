// The GID table of an emulated RoCE port, and the way back from a GID to the NIC.
//   0, 1  link-local address (RoCE v1, RoCE v2)
//   2, 3  the NIC's IPv4-mapped address ::ffff:127.x.y.z (RoCE v1, RoCE v2)
//   4..   empty, all zeros
// The fault gid-change acts like an administrator who changes the port's IP address: it gives the
// IPv4-mapped entries another address, or moves them to 4 and 5 and leaves 2 and 3 empty.
#pragma once

#include <cstdint>

#include "fabric/fabric.h"

namespace cxemu {

inline constexpr int kGidCount = 8;
// How many addresses one NIC can have: 127.NET.HOST+1.NIC+1 + k * kMaxNicsPerHost, with k below
// this.
inline constexpr uint32_t kGidAddresses = 31;
inline constexpr int kGidRoceV2Ipv4 = 3;

void nic_mac(const FabricNic&, uint8_t mac[6]);
// Network byte order, all zeros for an empty entry. `index` in 0..kGidCount-1.
void nic_gid(const FabricNic&, int index, uint8_t gid[16]);
bool gid_is_empty(const FabricNic&, int index);
bool gid_is_roce_v2(int index);
// The NIC that owns a GID now, or nullptr.
FabricNic* nic_by_gid(FabricFile&, const uint8_t gid[16]);
inline FabricNic* nic_by_gid(const Fabric& fabric, const uint8_t gid[16]) {
  return nic_by_gid(*fabric.operator->(), gid);
}

// The IPv4 address of packets from or to this entry of the table; 0: the entry is empty. A
// link-local entry has the address that the NIC was made with, even when the other entries have
// changed.
uint32_t gid_ipv4_be(const FabricNic&, int index);
// The IPv4 address of a GID of any NIC; 0: no NIC has it.
uint32_t gid_find_ipv4_be(const FabricFile&, const uint8_t gid[16]);

// gid_kind: which entry of the original table (0..3) this index stands for. gid_index_now: where
// that entry is now.
inline int gid_kind(int index) {
  return index < 2 ? index : 2 + (index & 1);
}
int gid_index_now(const FabricNic&, int kind);

// The address that a NIC was made with, from any address that it may have.
uint32_t address_original_be(uint32_t ipv4_be);

// FabricNic::gids holds k, whether the entries are moved, and how many changes there were.
enum class GidChange { kAddress, kIndex, kRestore };
uint32_t gids_changed(uint32_t gids, GidChange);
bool gids_are_original(uint32_t gids);

}  // namespace cxemu
