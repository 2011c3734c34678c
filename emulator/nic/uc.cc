// Unreliable connections: how a message is sent, and how an arriving packet affects the message
// being received. Nothing is acknowledged: a missing packet costs its message (IBA 9.8.2, 9.8.3).
#include <algorithm>

#include "nic/inbound.h"
#include "nic/nic_model.h"
#include "nic/outbound.h"
#include "nic/planted.h"
#include "nic/unreliable.h"

namespace cxemu {

namespace {

using Message = Responder::Message;

// Forgets the message received so far; a receive that it took is kept for the next message.
void message_drop(Responder& r) {
  r.message = Message::kNone;
  r.received = 0;
  if (CXEMU_PLANT(uc_loss_spends_receive)) r.recv_taken = false;
}

void uc_send_execute(Qp& qp, const Packet& packet, const Transport& transport) {
  Responder& r = qp.responder;
  if (!recv_take(qp)) {
    qp.nic.fabric().add(HwCounter::kOutOfBuffer);
    message_drop(r);
    return;
  }
  const auto size = static_cast<uint32_t>(packet.payload_size);
  if (uint64_t{r.received} + size > std::min(r.recv.length, kMaxMessage)) {
    recv_fail(qp, kSyndromeLocalLength, transport);
    return;
  }
  if (!recv_write(qp, r.received, packet.payload, size)) {
    recv_fail(qp, kSyndromeLocalProtection, transport);
    return;
  }
  r.message = Message::kSend;
  r.received += size;
  if (!opcode_ends_message(packet.opcode)) return;
  r.recv_taken = false;
  recv_complete(qp,
                {.opcode = opcode_has_imm(packet.opcode) ? kCqeRecvSendImm : kCqeRecvSend,
                 .byte_count = r.received,
                 .imm_be = packet.imm_be,
                 .solicited = packet.solicited},
                transport);
  message_drop(r);
}

void uc_write_execute(Qp& qp, const Packet& packet, const Transport& transport) {
  Responder& r = qp.responder;
  if (opcode_starts_message(packet.opcode)) {
    r.write_address = packet.remote_address;
    r.write_rkey = packet.rkey;
    r.write_length = packet.dma_length;
  }
  const auto size = static_cast<uint32_t>(packet.payload_size);
  const uint64_t received = uint64_t{r.received} + size;
  const bool last = opcode_ends_message(packet.opcode);
  const bool length_ok = r.write_length <= kMaxMessage &&
                         (last ? received == r.write_length : received < r.write_length);
  // A missing right is reported to neither end; the message is just dropped.
  if (!length_ok || remote_find(qp, r.write_rkey, r.write_address, r.write_length,
                                IBV_ACCESS_REMOTE_WRITE) == nullptr) {
    message_drop(r);
    return;
  }
  const bool imm = opcode_has_imm(packet.opcode);
  if (imm && !recv_take(qp)) {
    qp.nic.fabric().add(HwCounter::kOutOfBuffer);
    message_drop(r);
    return;
  }
  place(remote_find(qp, r.write_rkey, r.write_address + r.received, size, IBV_ACCESS_REMOTE_WRITE),
        packet.payload, size);
  r.message = Message::kWrite;
  r.received += size;
  if (!last) return;
  if (imm) {
    r.recv_taken = false;
    recv_complete(qp,
                  {.opcode = kCqeRecvWriteImm,
                   .byte_count = r.write_length,
                   .imm_be = packet.imm_be,
                   .solicited = packet.solicited},
                  transport);
  }
  message_drop(r);
}

}  // namespace

SentPacket uc_packet_send(Qp& qp, const Transport& transport) {
  Requester& r = qp.requester;
  const SendWqe& wqe = r.tx_wqe;
  const uint64_t offset = uint64_t{r.packet_tx} * qp.mtu;
  const auto size = static_cast<uint32_t>(std::min<uint64_t>(wqe.length - offset, qp.mtu));
  const bool last = offset + size == wqe.length;

  Packet packet = {.opcode = request_opcode(wqe.opcode, r.packet_tx == 0, last),
                   .service = Service::kUc};
  packet.solicited = wqe.solicited && last;
  packet.dest_qpn = qp.attr.dest_qp_num;
  packet.psn = r.psn_next;
  packet.remote_address = wqe.remote_address;
  packet.rkey = wqe.rkey;
  packet.dma_length = static_cast<uint32_t>(wqe.length);
  packet.imm_be = wqe.imm_be;
  const size_t pad = pad_size(size);
  uint8_t* out = transport.wire.reserve(packet.dest_qpn,
                                        header_size(packet.opcode, packet.service) + size + pad);
  if (out == nullptr) return {.sent = false, .last = false, .bytes = 0};
  const size_t headers = headers_encode(packet, size, out);
  if (!parts_read(qp, wqe.part, wqe.part_count, offset, size, out + headers)) {
    return {.sent = false, .last = false, .bytes = 0, .error = kSyndromeLocalProtection};
  }
  std::fill_n(out + headers + size, pad, uint8_t{0});
  transport.wire.commit(qp.nic.fabric(), qp.remote_ipv4_be, packet.opcode, headers + size + pad,
                        transport.wall_ns);
  return {.sent = true, .last = last, .bytes = static_cast<uint32_t>(headers) + size};
}

void uc_request(Qp& qp, const Packet& packet, const Transport& transport) {
  if (!qp.receives()) return;
  Responder& r = qp.responder;
  const bool starts = opcode_starts_message(packet.opcode);
  const bool gap = packet.psn != r.psn_expected && !CXEMU_PLANT(uc_gap_ignored);
  r.psn_expected = psn_add(packet.psn, 1);
  // A first packet always begins a new message, whatever its number; after a gap all other packets
  // are ignored.
  if (gap || starts) message_drop(r);
  const Message continues = opcode_is_send(packet.opcode) ? Message::kSend : Message::kWrite;
  const bool follows = starts || r.message == continues || CXEMU_PLANT(uc_sequence_unchecked);
  if (!follows || !payload_length_ok(qp, packet)) {
    message_drop(r);
    return;
  }
  if (opcode_is_send(packet.opcode)) {
    uc_send_execute(qp, packet, transport);
  } else {
    uc_write_execute(qp, packet, transport);
  }
}

}  // namespace cxemu
