// Unreliable datagrams: single packets to any queue pair that has the same Q_Key. The network
// header of a packet is stored before its data (IBA 9.8.4 and 11.4.1.2, RoCEv2: annex A17.4.5).
#include <algorithm>
#include <cstring>

#include "fabric/gid.h"
#include "nic/engine_core.h"
#include "nic/grh.h"
#include "nic/inbound.h"
#include "nic/outbound.h"
#include "nic/planted.h"
#include "nic/unreliable.h"

namespace cxemu {

namespace {

// Packet::network for a kind of entry of the GID table (gid.h); 0 stands for the header that real
// networks carry.
uint8_t network_of(int kind) {
  return kind == kGidRoceV2Ipv4 ? 0 : static_cast<uint8_t>(kind + 1);
}

CqePacket packet_kind(int gid_kind) {
  if (gid_kind == kGidRoceV2Ipv4) return kCqePacketRoceV2Ipv4;
  return gid_is_roce_v2(gid_kind) ? kCqePacketRoceV2Ipv6 : kCqePacketRoceV1;
}

int kind_of(uint8_t network) {
  return network == 0 || network > kGidRoceV2Ipv4 ? kGidRoceV2Ipv4 : network - 1;
}

// An unknown address is no error: the datagram vanishes.
uint32_t destination_find(Qp& qp, const uint8_t gid[16]) {
  FabricFile& fabric = qp.nic.core().fabric();
  const uint32_t changes = fabric.change_count.load(std::memory_order_acquire);
  Destination& last = qp.destination;
  if (!last.known || last.change_count != changes || memcmp(last.gid, gid, sizeof last.gid) != 0) {
    last = {.known = true, .change_count = changes, .ipv4_be = gid_find_ipv4_be(fabric, gid)};
    memcpy(last.gid, gid, sizeof last.gid);
  }
  return last.ipv4_be;
}

SentPacket failed(Syndrome syndrome) {
  return {.sent = false, .last = false, .bytes = 0, .error = syndrome};
}

}  // namespace

bool ud_addressed(const Qp& qp, const Packet& packet, uint32_t dst_ipv4_be) {
  const FabricNic& nic = qp.nic.fabric();
  return dst_ipv4_be == gid_ipv4_be(nic, gid_index_now(nic, kind_of(packet.network)));
}

SentPacket ud_packet_send(Qp& qp, const Transport& transport) {
  const SendWqe& wqe = qp.requester.tx_wqe;
  if (wqe.length > qp.mtu && !CXEMU_PLANT(datagram_cut)) return failed(kSyndromeLocalLength);
  if (wqe.datagram.sgid_index >= kGidCount) return failed(kSyndromeLocalQpOperation);
  const auto size = static_cast<uint32_t>(std::min<uint64_t>(wqe.length, qp.mtu));
  Packet packet = {.opcode = request_opcode(wqe.opcode, true, true), .service = Service::kUd};
  packet.solicited = wqe.solicited;
  packet.dest_qpn = wqe.datagram.qpn;
  packet.psn = qp.requester.psn_next;
  const bool own_qkey = (wqe.datagram.qkey & kQkeyOfQp) != 0 && !CXEMU_PLANT(qkey_high_bit_sent);
  packet.qkey = own_qkey ? qp.attr.qkey : wqe.datagram.qkey;
  packet.src_qpn = qp.number;
  packet.network = network_of(gid_kind(wqe.datagram.sgid_index));
  packet.imm_be = wqe.imm_be;
  const size_t pad = pad_size(size);
  const uint32_t to_be = destination_find(qp, wqe.datagram.gid);
  transport.wire.source_set({.nic = qp.nic.fabric(),
                             .qpn = qp.number,
                             .gid_index = static_cast<int>(wqe.datagram.sgid_index),
                             .service_class = shape_class(wqe.datagram.service_level),
                             .dst_ipv4_be = to_be});
  uint8_t* out = transport.wire.reserve(packet.dest_qpn,
                                        header_size(packet.opcode, packet.service) + size + pad);
  if (out == nullptr) return {.sent = false, .last = false, .bytes = 0};
  const size_t headers = headers_encode(packet, size, out);
  if (!parts_read(qp, wqe.part, wqe.part_count, 0, size, out + headers)) {
    return failed(kSyndromeLocalProtection);
  }
  std::fill_n(out + headers + size, pad, uint8_t{0});
  transport.wire.commit(qp.nic.fabric(), to_be, packet.opcode, headers + size + pad,
                        transport.wall_ns);
  return {.sent = true, .last = true, .bytes = static_cast<uint32_t>(headers) + size};
}

void ud_datagram(Qp& qp, const Packet& packet, uint32_t src_ipv4_be, const Transport& transport) {
  if (!qp.receives()) return;
  FabricNic& own = qp.nic.fabric();
  const FabricNic* from = nic_by_address(qp.nic.core().fabric(), src_ipv4_be);
  if (from == nullptr) return;
  if (packet.qkey != qp.attr.qkey && !CXEMU_PLANT(qkey_unchecked)) {
    own.qkey_violations.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (!recv_take(qp)) {
    own.add(HwCounter::kOutOfBuffer);
    return;
  }
  const auto size = static_cast<uint32_t>(packet.payload_size);
  if (kGrhSize + size > qp.responder.recv.length) {
    recv_fail(qp, kSyndromeLocalLength, transport);
    return;
  }
  uint8_t grh[kGrhSize];
  grh_write(*from, own, kind_of(packet.network),
            header_size(packet.opcode, packet.service) + size + pad_size(size), grh);
  if (!recv_write(qp, 0, grh, kGrhSize) || !recv_write(qp, kGrhSize, packet.payload, size)) {
    recv_fail(qp, kSyndromeLocalProtection, transport);
    return;
  }
  qp.responder.recv_taken = false;
  recv_complete(qp,
                {.opcode = opcode_has_imm(packet.opcode) ? kCqeRecvSendImm : kCqeRecvSend,
                 .byte_count = (CXEMU_PLANT(header_not_counted) ? 0 : uint32_t{kGrhSize}) + size,
                 .imm_be = packet.imm_be,
                 .remote_qpn = packet.src_qpn,
                 .solicited = packet.solicited,
                 .grh = true,
                 .packet = packet_kind(kind_of(packet.network))},
                transport);
}

}  // namespace cxemu
