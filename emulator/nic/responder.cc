// The half of the RC transport that executes requests: checks them, places data, consumes receives,
// answers READs and atomics, acknowledges (IBA 9.7.4, 9.7.5.1.3 and 9.9.3).
#include <algorithm>

#include "nic/nic_model.h"
#include "nic/transport.h"

namespace cxemu {

namespace {

// A fatal NAK: it is sent after the answers that precede it, then the QP is dead.
void request_refuse(Qp& qp, NakCode code, int event) {
  Responder& r = qp.responder;
  r.nak_pending = true;
  r.nak_syndrome = static_cast<uint8_t>(kAethNak | code);
  r.nak_psn = r.psn_expected;
  qp_fail(qp, event);
}

// Asks for the packet again: nothing beyond it is executed, nor refused once more, until it comes.
void request_ask_again(Qp& qp, uint8_t syndrome) {
  Responder& r = qp.responder;
  r.nak_sent = true;
  r.nak_pending = true;
  r.nak_syndrome = syndrome;
  r.nak_psn = r.psn_expected;
}

void recv_fail(Qp& qp, Syndrome syndrome, NakCode code, const Transport& transport) {
  qp.responder.recv_taken = false;
  recv_complete(qp, {.opcode = kCqeResponderError, .syndrome = syndrome}, transport);
  request_refuse(qp, code, 0);
}

// Takes the next receive. False: none is posted, and the requester was told (RNR NAK).
bool recv_take(Qp& qp) {
  Responder& r = qp.responder;
  if (r.recv_taken) return true;
  const uint16_t posted = static_cast<uint16_t>(qp.recv_producer() - r.ring_next);
  if (posted == 0 || posted > qp.config.rq_wqe_count) {
    request_ask_again(qp, static_cast<uint8_t>(kAethRnr | qp.attr.min_rnr_timer));
    return false;
  }
  recv_wqe_decode(qp.recv_ring(), r.ring_next++, &r.recv);
  r.recv_taken = true;
  return true;
}

uint8_t* remote_find(const Qp& qp, uint32_t rkey, uint64_t address, uint64_t length,
                     uint32_t access) {
  if ((qp.attr.qp_access_flags & access) == 0) return nullptr;
  return qp.nic.memory().find(rkey, qp.config.pd, address, length, access);
}

void message_done(Qp& qp) {
  Responder& r = qp.responder;
  r.message = Responder::Message::kNone;
  r.received = 0;
  r.msn = psn_add(r.msn, 1);
}

void packet_done(Qp& qp, const Packet& packet, uint32_t psns) {
  Responder& r = qp.responder;
  r.psn_expected = psn_add(r.psn_expected, psns);
  r.nak_sent = r.nak_pending = false;
  if (packet.ack_request) r.ack_pending = true;
}

// Lengths that a packet of a SEND or WRITE may have (IBA 9.7.4.1.4).
bool payload_length_ok(const Qp& qp, const Packet& packet) {
  if (!opcode_ends_message(packet.opcode)) return packet.payload_size == qp.mtu;
  if (!opcode_starts_message(packet.opcode) && packet.payload_size == 0) return false;
  return packet.payload_size <= qp.mtu;
}

// The opcode continues, or starts, what the packets before it began (IBA 9.7.4.1.2).
bool sequence_ok(const Qp& qp, RcOpcode opcode) {
  using Message = Responder::Message;
  const Message message = qp.responder.message;
  if (opcode_starts_message(opcode)) return message == Message::kNone;
  return message == (opcode_is_send(opcode) ? Message::kSend : Message::kWrite);
}

void send_execute(Qp& qp, const Packet& packet, const Transport& transport) {
  Responder& r = qp.responder;
  if (!recv_take(qp)) return;
  const auto size = static_cast<uint32_t>(packet.payload_size);
  if (uint64_t{r.received} + size > r.recv.length) {
    recv_fail(qp, kSyndromeLocalLength, kNakInvalidRequest, transport);
    return;
  }
  if (!parts_write(qp, r.recv.part, r.recv.part_count, r.received, packet.payload, size)) {
    recv_fail(qp, kSyndromeLocalProtection, kNakRemoteOperation, transport);
    return;
  }
  r.message = Responder::Message::kSend;
  r.received += size;
  const bool last = opcode_ends_message(packet.opcode);
  if (last) {
    r.recv_taken = false;
    const bool imm = opcode_has_imm(packet.opcode);
    recv_complete(qp,
                  {.opcode = imm ? kCqeRecvSendImm : kCqeRecvSend,
                   .byte_count = r.received,
                   .imm_be = packet.imm_be,
                   .solicited = packet.solicited},
                  transport);
    message_done(qp);
  }
  packet_done(qp, packet, 1);
}

void write_execute(Qp& qp, const Packet& packet, const Transport& transport) {
  Responder& r = qp.responder;
  const auto size = static_cast<uint32_t>(packet.payload_size);
  const bool first = opcode_starts_message(packet.opcode);
  const bool last = opcode_ends_message(packet.opcode);
  const uint64_t address = first ? packet.remote_address : r.write_address;
  const uint32_t rkey = first ? packet.rkey : r.write_rkey;
  const uint32_t length = first ? packet.dma_length : r.write_length;
  // The first packet answers for the whole message, so that none of it is placed if it must fail.
  if (remote_find(qp, rkey, address, length, IBV_ACCESS_REMOTE_WRITE) == nullptr) {
    request_refuse(qp, kNakRemoteAccess, IBV_EVENT_QP_ACCESS_ERR);
    return;
  }
  const uint64_t received = uint64_t{r.received} + size;
  if (last ? received != length : received >= length) {
    request_refuse(qp, kNakInvalidRequest, IBV_EVENT_QP_REQ_ERR);
    return;
  }
  const bool imm = opcode_has_imm(packet.opcode);
  if (imm && !recv_take(qp)) return;
  place(remote_find(qp, rkey, address + r.received, size, IBV_ACCESS_REMOTE_WRITE), packet.payload,
        size);
  r.message = Responder::Message::kWrite;
  r.write_address = address;
  r.write_rkey = rkey;
  r.write_length = length;
  r.received += size;
  if (imm) {
    r.recv_taken = false;
    recv_complete(qp,
                  {.opcode = kCqeRecvWriteImm,
                   .byte_count = length,
                   .imm_be = packet.imm_be,
                   .solicited = packet.solicited},
                  transport);
  }
  if (last) message_done(qp);
  packet_done(qp, packet, 1);
}

// READs and atomics in progress never exceed what was agreed (IBA 9.7.4.1.3).
bool resources_left(const Qp& qp) {
  return qp.responder.jobs.size() < qp.attr.max_dest_rd_atomic;
}

// For a new request. A requester that sends one has its answers already, perhaps late ones that
// crossed its repetition: answers to repetitions give way, and are asked for again if need be.
bool resources_for_new(Qp& qp) {
  auto& jobs = qp.responder.jobs;
  while (!resources_left(qp) && !jobs.empty() && jobs.front().again) jobs.pop_front();
  return resources_left(qp);
}

uint32_t response_packets(const Qp& qp, uint32_t length) {
  return length == 0 ? 1 : (length + qp.mtu - 1) / qp.mtu;
}

void read_queue(Qp& qp, const Packet& packet, uint32_t msn) {
  qp.responder.jobs.push_back({.first_psn = packet.psn,
                               .packets = response_packets(qp, packet.dma_length),
                               .sent = 0,
                               .address = packet.remote_address,
                               .rkey = packet.rkey,
                               .length = packet.dma_length,
                               .msn = msn,
                               .atomic = false,
                               .original = 0});
}

void atomic_queue(Qp& qp, const AtomicRecord& record) {
  qp.responder.jobs.push_back({.first_psn = record.psn,
                               .packets = 1,
                               .sent = 0,
                               .address = 0,
                               .rkey = 0,
                               .length = 0,
                               .msn = record.msn,
                               .atomic = true,
                               .original = record.original});
}

void read_execute(Qp& qp, const Packet& packet) {
  Responder& r = qp.responder;
  if (remote_find(qp, packet.rkey, packet.remote_address, packet.dma_length,
                  IBV_ACCESS_REMOTE_READ) == nullptr) {
    request_refuse(qp, kNakRemoteAccess, IBV_EVENT_QP_ACCESS_ERR);
    return;
  }
  if (!resources_for_new(qp) || packet.dma_length > kMaxMessage) {
    request_refuse(qp, kNakInvalidRequest, IBV_EVENT_QP_REQ_ERR);
    return;
  }
  message_done(qp);
  read_queue(qp, packet, r.msn);
  packet_done(qp, packet, response_packets(qp, packet.dma_length));
  r.ack_pending = false;  // the response acknowledges it, and everything before it
}

void atomic_execute(Qp& qp, const Packet& packet) {
  Responder& r = qp.responder;
  uint8_t* at = remote_find(qp, packet.rkey, packet.remote_address, sizeof(uint64_t),
                            IBV_ACCESS_REMOTE_ATOMIC);
  if (at == nullptr) {
    request_refuse(qp, kNakRemoteAccess, IBV_EVENT_QP_ACCESS_ERR);
    return;
  }
  if (!resources_for_new(qp) || reinterpret_cast<uintptr_t>(at) % sizeof(uint64_t) != 0) {
    request_refuse(qp, kNakInvalidRequest, IBV_EVENT_QP_REQ_ERR);
    return;
  }
  auto* word = reinterpret_cast<uint64_t*>(at);
  uint64_t original = packet.compare;
  if (packet.opcode == RcOpcode::kFetchAdd) {
    original = __atomic_fetch_add(word, packet.swap_or_add, __ATOMIC_SEQ_CST);
  } else {
    __atomic_compare_exchange_n(word, &original, packet.swap_or_add, false, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
  }
  message_done(qp);
  r.atomics.push_back({packet.psn, r.msn, original});
  if (r.atomics.size() > qp.attr.max_dest_rd_atomic) r.atomics.pop_front();
  atomic_queue(qp, r.atomics.back());
  packet_done(qp, packet, 1);
  r.ack_pending = false;
}

// A request that was executed before. Reading again does no harm, an atomic gives its first result
// again, everything else is only acknowledged (IBA 9.7.5.1.4).
void duplicate_answer(Qp& qp, const Packet& packet) {
  Responder& r = qp.responder;
  const bool atomic =
      packet.opcode == RcOpcode::kFetchAdd || packet.opcode == RcOpcode::kCompareSwap;
  if (packet.opcode != RcOpcode::kReadRequest && !atomic) {
    r.ack_pending = true;
    return;
  }
  // The requester went back to this packet and will ask for all that follows again.
  while (!r.jobs.empty() && psn_diff(r.jobs.back().first_psn, packet.psn) >= 0) r.jobs.pop_back();
  if (!r.jobs.empty()) {
    ResponseJob& job = r.jobs.back();
    const auto wanted = static_cast<uint32_t>(psn_diff(packet.psn, job.first_psn));
    if (wanted < job.packets) r.jobs.pop_back();
  }
  if (!resources_left(qp)) return;
  if (atomic) {
    const auto same = [&](const AtomicRecord& record) { return record.psn == packet.psn; };
    const auto found = std::find_if(r.atomics.begin(), r.atomics.end(), same);
    if (found == r.atomics.end()) return;
    atomic_queue(qp, *found);
    r.jobs.back().again = true;
    return;
  }
  const uint32_t end = psn_add(packet.psn, response_packets(qp, packet.dma_length));
  if (psn_diff(end, r.psn_expected) > 0) return;  // not a part of what was asked before
  if (remote_find(qp, packet.rkey, packet.remote_address, packet.dma_length,
                  IBV_ACCESS_REMOTE_READ) == nullptr) {
    request_refuse(qp, kNakRemoteAccess, IBV_EVENT_QP_ACCESS_ERR);
    return;
  }
  read_queue(qp, packet, r.msn);
  r.jobs.back().again = true;
}

// Writes and sends one packet without payload. False: the way is full.
bool plain_send(Qp& qp, const Packet& packet, const Transport& transport) {
  uint8_t* out = transport.wire.reserve(packet.dest_qpn, header_size(packet.opcode));
  if (out == nullptr) return false;
  const size_t size = headers_encode(packet, 0, out);
  transport.wire.commit(qp.nic.fabric(), qp.remote_ipv4_be, packet.opcode, size, transport.wall_ns);
  return true;
}

RcOpcode read_response_opcode(uint32_t index, uint32_t packets) {
  if (packets == 1) return RcOpcode::kReadResponseOnly;
  if (index == 0) return RcOpcode::kReadResponseFirst;
  return index + 1 == packets ? RcOpcode::kReadResponseLast : RcOpcode::kReadResponseMiddle;
}

struct Sent {
  bool done;
  uint32_t bytes;
};

Sent response_send(Qp& qp, ResponseJob& job, const Transport& transport) {
  Packet packet = {.opcode = job.atomic ? RcOpcode::kAtomicAcknowledge
                                        : read_response_opcode(job.sent, job.packets)};
  packet.dest_qpn = qp.attr.dest_qp_num;
  packet.psn = psn_add(job.first_psn, job.sent);
  packet.syndrome = kAethAck;
  packet.msn = job.msn;
  packet.original = job.original;
  if (job.atomic) return {plain_send(qp, packet, transport), kMaxHeader};

  const uint64_t offset = uint64_t{job.sent} * qp.mtu;
  const auto size = static_cast<uint32_t>(std::min<uint64_t>(job.length - offset, qp.mtu));
  // Looked up for each packet: the region may be gone since the request came.
  const uint8_t* from =
      remote_find(qp, job.rkey, job.address + offset, size, IBV_ACCESS_REMOTE_READ);
  if (from == nullptr) {
    Responder& r = qp.responder;
    r.jobs.clear();
    r.nak_pending = true;
    r.nak_syndrome = kAethNak | kNakRemoteAccess;
    r.nak_psn = packet.psn;
    qp_fail(qp, IBV_EVENT_QP_ACCESS_ERR);
    return {false, 0};
  }
  const size_t pad = pad_size(size);
  uint8_t* out = transport.wire.reserve(packet.dest_qpn, header_size(packet.opcode) + size + pad);
  if (out == nullptr) return {false, 0};
  const size_t headers = headers_encode(packet, size, out);
  std::copy_n(from, size, out + headers);
  std::fill_n(out + headers + size, pad, uint8_t{0});
  transport.wire.commit(qp.nic.fabric(), qp.remote_ipv4_be, packet.opcode, headers + size + pad,
                        transport.wall_ns);
  return {true, static_cast<uint32_t>(headers) + size};
}

}  // namespace

void responder_request(Qp& qp, const Packet& packet, const Transport& transport) {
  if (!qp.receives()) return;
  Responder& r = qp.responder;
  const int32_t distance = psn_diff(packet.psn, r.psn_expected);
  if (distance > 0) {
    if (!r.nak_sent) request_ask_again(qp, kAethNak | kNakSequence);
    return;
  }
  if (distance < 0) {
    duplicate_answer(qp, packet);
    return;
  }
  if (!sequence_ok(qp, packet.opcode) ||
      (opcode_has_payload(packet.opcode) && !payload_length_ok(qp, packet))) {
    request_refuse(qp, kNakInvalidRequest, IBV_EVENT_QP_REQ_ERR);
  } else if (opcode_is_send(packet.opcode)) {
    send_execute(qp, packet, transport);
  } else if (opcode_is_write(packet.opcode)) {
    write_execute(qp, packet, transport);
  } else if (packet.opcode == RcOpcode::kReadRequest) {
    read_execute(qp, packet);
  } else {
    atomic_execute(qp, packet);
  }
}

bool responder_run(Qp& qp, const Transport& transport, uint32_t budget_bytes) {
  Responder& r = qp.responder;
  bool any = false;
  for (uint32_t bytes = 0; !r.jobs.empty() && bytes < budget_bytes;) {
    ResponseJob& job = r.jobs.front();
    const Sent sent = response_send(qp, job, transport);
    if (!sent.done) break;
    bytes += sent.bytes;
    any = true;
    if (++job.sent == job.packets) r.jobs.pop_front();
  }
  if (!r.jobs.empty() || (!r.ack_pending && !r.nak_pending)) return any;
  // A NAK acknowledges what lies before it, so one packet says everything.
  Packet packet = {.opcode = RcOpcode::kAcknowledge};
  packet.dest_qpn = qp.attr.dest_qp_num;
  packet.msn = r.msn;
  packet.psn = r.nak_pending ? r.nak_psn : psn_add(r.psn_expected, kPsnMask);
  packet.syndrome = r.nak_pending ? r.nak_syndrome : kAethAck;
  if (!plain_send(qp, packet, transport)) return any;
  r.ack_pending = r.nak_pending = false;
  return true;
}

bool responder_idle(const Qp& qp) {
  const Responder& r = qp.responder;
  return r.jobs.empty() && !r.ack_pending && !r.nak_pending;
}

}  // namespace cxemu
