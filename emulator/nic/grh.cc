// Network headers.
#include "nic/grh.h"

#include <endian.h>

#include <cstring>

#include "fabric/gid.h"

namespace cxemu {

namespace {

constexpr uint8_t kHopLimit = 64;
constexpr uint8_t kProtocolUdp = 17;
constexpr uint8_t kProtocolRoceV1 = 0x1b;
constexpr size_t kUdpHeader = 8;
constexpr size_t kIcrc = 4;
constexpr size_t kIpv4Size = 20;

void store16(uint8_t* at, size_t value) {
  const uint16_t be = htobe16(static_cast<uint16_t>(value));
  memcpy(at, &be, sizeof be);
}

uint16_t ipv4_checksum(const uint8_t* header) {
  uint32_t sum = 0;
  for (size_t i = 0; i < kIpv4Size; i += 2) sum += uint32_t{header[i]} << 8 | header[i + 1];
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

void ipv4_write(const FabricNic& from, const FabricNic& to, size_t transport_size, uint8_t* out) {
  constexpr size_t kDontFragment = 0x4000;
  out[0] = 0x45;
  store16(out + 2, kIpv4Size + kUdpHeader + transport_size + kIcrc);
  store16(out + 6, kDontFragment);
  out[8] = kHopLimit;
  out[9] = kProtocolUdp;
  const uint32_t from_be = gid_ipv4_be(from, gid_index_now(from, kGidRoceV2Ipv4));
  const uint32_t to_be = gid_ipv4_be(to, gid_index_now(to, kGidRoceV2Ipv4));
  memcpy(out + 12, &from_be, 4);
  memcpy(out + 16, &to_be, 4);
  store16(out + 10, ipv4_checksum(out));
}

}  // namespace

void grh_write(const FabricNic& from, const FabricNic& to, int kind, size_t transport_size,
               uint8_t out[kGrhSize]) {
  memset(out, 0, kGrhSize);
  if (kind == kGidRoceV2Ipv4) {
    ipv4_write(from, to, transport_size, out + kGrhSize - kIpv4Size);
    return;
  }
  const bool v2 = gid_is_roce_v2(kind);
  out[0] = 0x60;
  store16(out + 4, transport_size + kIcrc + (v2 ? kUdpHeader : 0));
  out[6] = v2 ? kProtocolUdp : kProtocolRoceV1;
  out[7] = kHopLimit;
  nic_gid(from, gid_index_now(from, kind), out + 8);
  nic_gid(to, gid_index_now(to, kind), out + 24);
}

}  // namespace cxemu
