// GIDs of emulated ports.
#include "fabric/gid.h"

#include <cstring>

namespace cxemu {

void nic_mac(const FabricNic& nic, uint8_t mac[6]) {
  // The last three bytes of the address are unique in the fabric and, while it lives, on the
  // machine; 0c:42:a1 is a prefix that ConnectX cards carry.
  uint8_t address[4];
  memcpy(address, &nic.ipv4_be, sizeof address);
  const uint8_t prefix[3] = {0x0c, 0x42, 0xa1};
  memcpy(mac, prefix, sizeof prefix);
  memcpy(mac + 3, address + 1, 3);
}

void nic_gid(const FabricNic& nic, int index, uint8_t gid[16]) {
  memset(gid, 0, 16);
  if (index >= 2) {
    gid[10] = gid[11] = 0xff;
    memcpy(gid + 12, &nic.ipv4_be, 4);
    return;
  }
  uint8_t mac[6];
  nic_mac(nic, mac);
  gid[0] = 0xfe;
  gid[1] = 0x80;
  memcpy(gid + 8, mac, 3);
  gid[8] ^= 2;
  gid[11] = 0xff;
  gid[12] = 0xfe;
  memcpy(gid + 13, mac + 3, 3);
}

bool gid_is_roce_v2(int index) {
  return (index & 1) != 0;
}

FabricNic* nic_by_gid(FabricFile& fabric, const uint8_t gid[16]) {
  for (FabricNic& nic : fabric.nic) {
    if (nic.used.load(std::memory_order_acquire) == 0) continue;
    for (int index = 0; index < kGidCount; index += 2) {
      uint8_t own[16];
      nic_gid(nic, index, own);
      if (memcmp(own, gid, sizeof own) == 0) return &nic;
    }
  }
  return nullptr;
}

}  // namespace cxemu
