// Network headers.
#include "nic/grh.h"

#include <endian.h>

#include <cstring>

#include "fabric/gid.h"
#include "nic/encapsulation.h"

namespace cxemu {

namespace {

constexpr uint8_t kHopLimit = 64;
constexpr uint8_t kProtocolUdp = 17;
constexpr uint8_t kProtocolRoceV1 = 0x1b;

void store16(uint8_t* at, size_t value) {
  const uint16_t be = htobe16(static_cast<uint16_t>(value));
  memcpy(at, &be, sizeof be);
}

void ipv4_write(const FabricNic& from, const FabricNic& to, size_t transport_size, uint8_t* out) {
  const Flow flow = {.src_ipv4_be = gid_ipv4_be(from, gid_index_now(from, kGidRoceV2Ipv4)),
                     .dst_ipv4_be = gid_ipv4_be(to, gid_index_now(to, kGidRoceV2Ipv4)),
                     .src_port = 0};
  ipv4_header_write(flow, transport_size, out);
}

}  // namespace

void grh_write(const FabricNic& from, const FabricNic& to, int kind, size_t transport_size,
               uint8_t out[kGrhSize]) {
  memset(out, 0, kGrhSize);
  if (kind == kGidRoceV2Ipv4) {
    ipv4_write(from, to, transport_size, out + kGrhSize - kIpv4Header);
    return;
  }
  const bool v2 = gid_is_roce_v2(kind);
  out[0] = 0x60;
  store16(out + 4, transport_size + kIcrcSize + (v2 ? kUdpHeader : 0));
  out[6] = v2 ? kProtocolUdp : kProtocolRoceV1;
  out[7] = kHopLimit;
  nic_gid(from, gid_index_now(from, kind), out + 8);
  nic_gid(to, gid_index_now(to, kind), out + 24);
}

}  // namespace cxemu
