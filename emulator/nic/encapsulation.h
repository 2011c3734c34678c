// What RoCEv2 puts around a transport packet (IBA volume 1, annex A17): Ethernet, IPv4 and UDP
// headers before it, and the ICRC after it, which covers what routers leave alone.
//
// The IPv4 fields that are the same in all packets have the values that Linux sends from an
// unconnected socket that forbids fragments: DF set and identification 0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cxemu {

inline constexpr uint16_t kRocePort = 4791;
inline constexpr size_t kIcrcSize = 4;
inline constexpr size_t kEthernetHeader = 14, kIpv4Header = 20, kUdpHeader = 8;
inline constexpr size_t kEncapsulation = kEthernetHeader + kIpv4Header + kUdpHeader + kIcrcSize;

struct Flow {
  uint32_t src_ipv4_be, dst_ipv4_be;
  uint16_t src_port;  // differs between flows, so that routers can spread them
};

// Distinct source ports of one NIC: enough to spread flows visibly, few enough to have one socket
// each.
inline constexpr uint32_t kFlowPorts = 32;
// The index of the packet's flow among them; the same for all packets to one queue pair.
uint32_t flow_index(uint32_t src_ipv4_be, uint32_t dst_ipv4_be, const uint8_t* packet);
// 0xc000 and above, as the annex recommends.
inline uint16_t flow_port(uint32_t index) {
  return static_cast<uint16_t>(0xc000 + index % kFlowPorts * (0x4000 / kFlowPorts));
}

// The ICRC of a packet, computed from the BTH (which must be complete) to the padding. The result
// holds the four bytes that follow the packet, the first byte in the lowest bits.
uint32_t icrc_compute(const Flow& flow, const uint8_t* packet, size_t size);
// The ICRC after IPv4 and UDP headers other than ours.
uint32_t icrc_behind(const uint8_t headers[kIpv4Header + kUdpHeader], const uint8_t* packet,
                     size_t size);
// The wrong ICRC that a `corrupt` packet carries.
inline uint32_t icrc_spoil(uint32_t icrc) {
  return ~icrc;
}

// Writes the IPv4 header that precedes a packet of this size.
void ipv4_header_write(const Flow& flow, size_t size, uint8_t out[kIpv4Header]);
// Writes the whole Ethernet frame to `out`, kEncapsulation + size bytes, and returns its size.
size_t frame_encode(const Flow& flow, const uint8_t src_mac[6], const uint8_t dst_mac[6],
                    const uint8_t* packet, size_t size, bool corrupt, uint8_t* out);

}  // namespace cxemu
