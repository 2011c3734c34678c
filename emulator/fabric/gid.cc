// GIDs of emulated ports.
#include "fabric/gid.h"

#include <arpa/inet.h>

#include <cstring>

namespace cxemu {
namespace {

constexpr uint32_t kAddressMask = 0xff;
constexpr uint32_t kIndexMoved = 1u << 8;
constexpr uint32_t kChangeOne = 1u << 9;  // the bits from here on are a counter

// The index of the first IPv4-mapped entry.
int mapped_first(uint32_t gids) {
  return (gids & kIndexMoved) != 0 ? 4 : 2;
}

uint32_t address_be(const FabricNic& nic, uint32_t gids) {
  return htonl(ntohl(nic.ipv4_be) + (gids & kAddressMask) * kMaxNicsPerHost);
}

}  // namespace

void nic_mac(const FabricNic& nic, uint8_t mac[6]) {
  // The last three bytes of the address are unique in the fabric and, while the fabric lives, on
  // the machine; 0c:42:a1 is a prefix of ConnectX cards.
  uint8_t address[4];
  memcpy(address, &nic.ipv4_be, sizeof address);
  const uint8_t prefix[3] = {0x0c, 0x42, 0xa1};
  memcpy(mac, prefix, sizeof prefix);
  memcpy(mac + 3, address + 1, 3);
}

void nic_gid(const FabricNic& nic, int index, uint8_t gid[16]) {
  memset(gid, 0, 16);
  if (index >= 2) {
    const uint32_t ipv4_be = gid_ipv4_be(nic, index);
    if (ipv4_be == 0) return;
    gid[10] = gid[11] = 0xff;
    memcpy(gid + 12, &ipv4_be, 4);
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

bool gid_is_empty(const FabricNic& nic, int index) {
  return gid_ipv4_be(nic, index) == 0;
}

uint32_t gid_ipv4_be(const FabricNic& nic, int index) {
  if (index < 2) return nic.ipv4_be;
  const uint32_t gids = nic.gids.load(std::memory_order_acquire);
  const int first = mapped_first(gids);
  return index == first || index == first + 1 ? address_be(nic, gids) : 0;
}

namespace {

const FabricNic* nic_find(const FabricFile& fabric, const uint8_t gid[16], uint32_t* ipv4_be) {
  for (const FabricNic& nic : fabric.nic) {
    if (nic.used.load(std::memory_order_acquire) == 0) continue;
    for (int index = 0; index < kGidCount; index += 2) {
      *ipv4_be = gid_ipv4_be(nic, index);
      if (*ipv4_be == 0) continue;
      uint8_t own[16];
      nic_gid(nic, index, own);
      if (memcmp(own, gid, sizeof own) == 0) return &nic;
    }
  }
  *ipv4_be = 0;
  return nullptr;
}

}  // namespace

FabricNic* nic_by_gid(FabricFile& fabric, const uint8_t gid[16]) {
  uint32_t ipv4_be;
  return const_cast<FabricNic*>(nic_find(fabric, gid, &ipv4_be));
}

uint32_t gid_find_ipv4_be(const FabricFile& fabric, const uint8_t gid[16]) {
  uint32_t ipv4_be;
  nic_find(fabric, gid, &ipv4_be);
  return ipv4_be;
}

int gid_index_now(const FabricNic& nic, int kind) {
  return kind < 2 ? kind : mapped_first(nic.gids.load(std::memory_order_acquire)) + (kind & 1);
}

uint32_t address_original_be(uint32_t ipv4_be) {
  const uint32_t address = ntohl(ipv4_be);
  const uint32_t last = address & 0xff;
  return last == 0 ? ipv4_be : htonl((address & ~0xffu) | ((last - 1) % kMaxNicsPerHost + 1));
}

uint32_t gids_changed(uint32_t gids, GidChange change) {
  const uint32_t changes = (gids + kChangeOne) & ~(kChangeOne - 1);
  const uint32_t address = gids & kAddressMask, moved = gids & kIndexMoved;
  switch (change) {
    case GidChange::kAddress:
      return changes | moved | (address + 1) % kGidAddresses;
    case GidChange::kIndex:
      return changes | (moved ^ kIndexMoved) | address;
    case GidChange::kRestore:
      return changes;
  }
  return gids;
}

bool gids_are_original(uint32_t gids) {
  return (gids & (kAddressMask | kIndexMoved)) == 0;
}

}  // namespace cxemu
