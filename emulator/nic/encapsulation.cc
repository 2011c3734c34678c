// RoCEv2 headers and the ICRC.
#include "nic/encapsulation.h"

#include <endian.h>
#include <zlib.h>

#include <cstring>

#include "nic/planted.h"
#include "nic/roce.h"

namespace cxemu {

namespace {

constexpr size_t kBthReserved = 4;  // resv8a, where switches mark congestion
constexpr size_t kLrhMask = 8;      // stands for the link header that an InfiniBand packet has
constexpr uint8_t kUdpProtocol = 17;
constexpr uint8_t kTtl = 64;
constexpr uint16_t kDontFragment = 0x4000;
constexpr uint16_t kEtherTypeIpv4 = 0x0800;

struct Ipv4Udp {
  uint8_t version_length;
  uint8_t tos;
  uint16_t total_length_be;
  uint16_t identification_be;
  uint16_t flags_be;
  uint8_t ttl;
  uint8_t protocol;
  uint16_t checksum_be;
  uint32_t src_be, dst_be;
  uint16_t src_port_be, dst_port_be;
  uint16_t udp_length_be;
  uint16_t udp_checksum_be;
};
static_assert(sizeof(Ipv4Udp) == kIpv4Header + kUdpHeader);

Ipv4Udp headers_make(const Flow& flow, size_t size) {
  const auto udp_length = static_cast<uint16_t>(kUdpHeader + size + kIcrcSize);
  return {.version_length = 0x45,
          .tos = 0,
          .total_length_be = htobe16(static_cast<uint16_t>(kIpv4Header + udp_length)),
          .identification_be = 0,
          .flags_be = htobe16(kDontFragment),
          .ttl = kTtl,
          .protocol = kUdpProtocol,
          .checksum_be = 0,
          .src_be = flow.src_ipv4_be,
          .dst_be = flow.dst_ipv4_be,
          .src_port_be = htobe16(flow.src_port),
          .dst_port_be = htobe16(kRocePort),
          .udp_length_be = htobe16(udp_length),
          .udp_checksum_be = 0};  // none: the ICRC gives more protection
}

uint16_t ipv4_checksum(const Ipv4Udp& headers) {
  uint16_t words[kIpv4Header / 2];
  memcpy(words, &headers, sizeof words);
  uint32_t sum = 0;
  for (const uint16_t word : words) sum += word;
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

}  // namespace

uint32_t flow_index(uint32_t src_ipv4_be, uint32_t dst_ipv4_be, const uint8_t* packet) {
  uint32_t qpn;
  memcpy(&qpn, packet + 4, sizeof qpn);
  const uint32_t mixed = (src_ipv4_be ^ (dst_ipv4_be * 31) ^ be32toh(qpn) << 8) * 0x9e3779b1u;
  return mixed >> 27;
  static_assert(kFlowPorts == 1u << (32 - 27));
}

uint32_t icrc_behind(const uint8_t headers[kIpv4Header + kUdpHeader], const uint8_t* packet,
                     size_t size) {
  struct {
    uint8_t lrh[kLrhMask];
    Ipv4Udp headers;
    uint8_t bth[kBthSize];
  } masked;
  static_assert(sizeof masked == kLrhMask + sizeof(Ipv4Udp) + kBthSize);
  memset(masked.lrh, 0xff, sizeof masked.lrh);
  memcpy(&masked.headers, headers, sizeof masked.headers);
  // Routers change these fields on the way, or end systems compute them from what routers change.
  masked.headers.tos = masked.headers.ttl = 0xff;
  masked.headers.checksum_be = masked.headers.udp_checksum_be = 0xffff;
  memcpy(masked.bth, packet, kBthSize);
  if (!CXEMU_PLANT(icrc_covers_congestion_marks)) masked.bth[kBthReserved] = 0xff;
  const uLong front = crc32(0, reinterpret_cast<const Bytef*>(&masked), sizeof masked);
  return htole32(
      static_cast<uint32_t>(crc32(front, packet + kBthSize, static_cast<uInt>(size - kBthSize))));
}

uint32_t icrc_compute(const Flow& flow, const uint8_t* packet, size_t size) {
  const Ipv4Udp headers = headers_make(flow, size);
  return icrc_behind(reinterpret_cast<const uint8_t*>(&headers), packet, size);
}

void ipv4_header_write(const Flow& flow, size_t size, uint8_t out[kIpv4Header]) {
  Ipv4Udp headers = headers_make(flow, size);
  headers.checksum_be = ipv4_checksum(headers);
  memcpy(out, &headers, kIpv4Header);
}

size_t frame_encode(const Flow& flow, const uint8_t src_mac[6], const uint8_t dst_mac[6],
                    const uint8_t* packet, size_t size, bool corrupt, uint8_t* out) {
  memcpy(out, dst_mac, 6);
  memcpy(out + 6, src_mac, 6);
  const uint16_t type_be = htobe16(kEtherTypeIpv4);
  memcpy(out + 12, &type_be, sizeof type_be);
  Ipv4Udp headers = headers_make(flow, size);
  headers.checksum_be = ipv4_checksum(headers);
  memcpy(out + kEthernetHeader, &headers, sizeof headers);
  uint8_t* bth = out + kEthernetHeader + sizeof headers;
  memcpy(bth, packet, size);
  const uint32_t icrc = icrc_compute(flow, packet, size);
  const uint32_t sent = corrupt ? icrc_spoil(icrc) : icrc;
  memcpy(bth + size, &sent, sizeof sent);
  return size + kEncapsulation;
}

}  // namespace cxemu
