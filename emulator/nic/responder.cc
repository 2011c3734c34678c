// The half of the reliable transport (RC, XRC) that executes requests: checks them, places data,
// consumes receives, answers READs and atomics, and acknowledges (IBA 9.7.4, 9.7.5.1.3 and 9.9.3).
#include <algorithm>

#include "nic/inbound.h"
#include "nic/nic_model.h"
#include "nic/planted.h"
#include "nic/transport.h"

namespace cxemu {

namespace {

// Prepares a fatal NAK for the request at `psn`. It is sent after the answers that precede it; then
// the QP is dead.
void request_refuse_at(Qp& qp, uint32_t psn, NakCode code, int event,
                       Syndrome syndrome = kSyndromeNone) {
  if (code == kNakRemoteAccess) qp.nic.fabric().add(HwCounter::kRespRemoteAccessErrors);
  Responder& r = qp.responder;
  r.nak_pending = !CXEMU_PLANT(refusal_not_told);
  r.nak_syndrome = static_cast<uint8_t>(kAethNak | code);
  r.nak_psn = psn;
  qp_fail(qp, event, syndrome);
}

void request_refuse(Qp& qp, NakCode code, int event, Syndrome syndrome = kSyndromeNone) {
  request_refuse_at(qp, qp.responder.psn_expected, code, event, syndrome);
}

// Asks for the packet again: until it comes, later packets are neither executed nor refused again.
void request_ask_again(Qp& qp, uint8_t syndrome) {
  Responder& r = qp.responder;
  r.nak_sent = syndrome == (kAethNak | kNakSequence) || !CXEMU_PLANT(nak_after_rnr);
  r.nak_pending = true;
  r.nak_syndrome = syndrome;
  r.nak_psn = psn_add(r.psn_expected, CXEMU_PLANT(nak_names_next));
}

void recv_fail(Qp& qp, Syndrome syndrome, NakCode code, const Transport& transport) {
  qp.responder.recv_taken = false;
  recv_complete(qp, {.opcode = kCqeResponderError, .syndrome = syndrome}, transport);
  request_refuse(qp, code, 0, syndrome);
}

// Takes the next receive. Returns false if none is posted; the requester is then told (RNR NAK).
bool recv_demand(Qp& qp) {
  if (recv_take(qp)) return true;
  qp.nic.fabric().add(HwCounter::kOutOfBuffer);
  const uint8_t timer = CXEMU_PLANT(rnr_timer_wrong) ? 5 : qp.attr.min_rnr_timer;
  request_ask_again(qp, static_cast<uint8_t>(kAethRnr | timer));
  return false;
}

void message_done(Qp& qp) {
  Responder& r = qp.responder;
  r.message = Responder::Message::kNone;
  r.received = 0;
  if (!CXEMU_PLANT(msn_stands_still)) r.msn = psn_add(r.msn, 1);
}

void packet_done(Qp& qp, const Packet& packet, uint32_t psns) {
  Responder& r = qp.responder;
  r.psn_expected = psn_add(r.psn_expected, psns);
  r.nak_sent = r.nak_sent && CXEMU_PLANT(nak_once_for_ever);
  r.nak_pending = false;
  if (packet.ack_request && !CXEMU_PLANT(ack_request_ignored)) r.ack_pending = true;
}

// Whether the opcode continues, or starts, a message as the packets before it demand (IBA
// 9.7.4.1.2).
bool sequence_ok(const Qp& qp, Operation opcode) {
  using Message = Responder::Message;
  if (CXEMU_PLANT(opcode_sequence_unchecked)) return true;
  const Message message = qp.responder.message;
  if (opcode_starts_message(opcode)) return message == Message::kNone;
  return message == (opcode_is_send(opcode) ? Message::kSend : Message::kWrite);
}

CqeOpcode recv_opcode(Operation opcode) {
  if (opcode_has_invalidate(opcode)) return kCqeRecvSendInvalidate;
  return opcode_has_imm(opcode) ? kCqeRecvSendImm : kCqeRecvSend;
}

void send_execute(Qp& qp, const Packet& packet, const Transport& transport) {
  Responder& r = qp.responder;
  if (!recv_demand(qp)) return;
  const auto size = static_cast<uint32_t>(packet.payload_size);
  const uint64_t room = std::min(r.recv.length, kMaxMessage);
  if (uint64_t{r.received} + size > room && !CXEMU_PLANT(receive_overflow_unchecked)) {
    recv_fail(qp, kSyndromeLocalLength, kNakInvalidRequest, transport);
    return;
  }
  if (!recv_write(qp, r.received, packet.payload, size)) {
    recv_fail(qp, kSyndromeLocalProtection,
              CXEMU_PLANT(responder_fault_as_access) ? kNakRemoteAccess : kNakRemoteOperation,
              transport);
    return;
  }
  r.message = Responder::Message::kSend;
  r.received += size;
  const bool last = opcode_ends_message(packet.opcode);
  if (last) {
    // The data is delivered, but the receiver must not believe that the window is closed, so its
    // receive ends in an error (IBA 9.9.3, class J).
    if (opcode_has_invalidate(packet.opcode) &&
        !qp.nic.memory().window_invalidate(request_pd(qp), qp.number, be32toh(packet.imm_be))) {
      recv_fail(qp, kSyndromeRemoteInvalidRequest, kNakRemoteAccess, transport);
      return;
    }
    r.recv_taken = false;
    recv_complete(qp,
                  {.opcode = recv_opcode(packet.opcode),
                   .byte_count = r.received,
                   .imm_be = packet.imm_be,
                   .solicited = packet.solicited && !CXEMU_PLANT(solicited_lost)},
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
  if (length > kMaxMessage && !CXEMU_PLANT(long_write_accepted)) {
    request_refuse(qp, kNakInvalidRequest, IBV_EVENT_QP_REQ_ERR);
    return;
  }
  // The check at the first packet covers the whole message, so that nothing of it is placed if it
  // must fail.
  const bool piecemeal = CXEMU_PLANT(write_checked_by_packet);
  if (remote_find(qp, rkey, piecemeal ? address + r.received : address, piecemeal ? size : length,
                  IBV_ACCESS_REMOTE_WRITE) == nullptr) {
    request_refuse(qp, kNakRemoteAccess, IBV_EVENT_QP_ACCESS_ERR);
    return;
  }
  const uint64_t received = uint64_t{r.received} + size;
  const bool length_ok = last ? received == length : received < length;
  if (!length_ok && !CXEMU_PLANT(message_length_unchecked)) {
    request_refuse(qp, kNakInvalidRequest, IBV_EVENT_QP_REQ_ERR);
    return;
  }
  const bool imm = opcode_has_imm(packet.opcode);
  const bool needs_receive = imm || (CXEMU_PLANT(write_takes_receive) && last);
  if ((needs_receive || CXEMU_PLANT(write_imm_takes_receive_early)) && !recv_demand(qp)) return;
  qp.nic.held_writes().write(
      remote_find(qp, rkey, address + r.received, size, IBV_ACCESS_REMOTE_WRITE), packet.payload,
      size, transport.wall_ns);
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

// READs and atomics in progress never exceed the agreed number (IBA 9.7.4.1.3).
bool resources_left(const Qp& qp) {
  return qp.responder.jobs.size() < qp.attr.max_dest_rd_atomic || CXEMU_PLANT(resources_unlimited);
}

// Makes room for a new request. A requester that sends one has its earlier answers already, perhaps
// late ones that crossed its repetition. So answers to repetitions are dropped; the requester asks
// again if it needs them.
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
                               .pd = request_pd(qp),
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
                               .pd = 0,
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
  const bool length_ok = packet.dma_length <= kMaxMessage || CXEMU_PLANT(long_read_accepted);
  if (!resources_for_new(qp) || !length_ok) {
    request_refuse(qp, kNakInvalidRequest, IBV_EVENT_QP_REQ_ERR);
    return;
  }
  message_done(qp);
  read_queue(qp, packet, r.msn);
  packet_done(qp, packet,
              CXEMU_PLANT(read_counts_one_psn) ? 1 : response_packets(qp, packet.dma_length));
  r.ack_pending = false;  // the response acknowledges this request and everything before it
}

void atomic_execute(Qp& qp, const Packet& packet) {
  Responder& r = qp.responder;
  uint8_t* at = remote_find(qp, packet.rkey, packet.remote_address, sizeof(uint64_t),
                            IBV_ACCESS_REMOTE_ATOMIC);
  if (at == nullptr) {
    request_refuse(qp, kNakRemoteAccess, IBV_EVENT_QP_ACCESS_ERR);
    return;
  }
  const bool aligned = reinterpret_cast<uintptr_t>(at) % sizeof(uint64_t) == 0;
  if (!resources_for_new(qp) || (!aligned && !CXEMU_PLANT(atomic_alignment_unchecked))) {
    request_refuse(qp, kNakInvalidRequest, IBV_EVENT_QP_REQ_ERR);
    return;
  }
  auto* word = reinterpret_cast<uint64_t*>(at);
  uint64_t original = packet.compare;
  if (packet.opcode == Operation::kFetchAdd) {
    original = __atomic_fetch_add(word, packet.swap_or_add, __ATOMIC_SEQ_CST);
  } else {
    __atomic_compare_exchange_n(word, &original, packet.swap_or_add, false, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
  }
  message_done(qp);
  r.atomics.push_back({packet.psn, r.msn, original});
  const size_t kept = CXEMU_PLANT(atomic_results_few) ? 1 : qp.attr.max_dest_rd_atomic;
  if (r.atomics.size() > kept) r.atomics.pop_front();
  atomic_queue(qp, r.atomics.back());
  packet_done(qp, packet, 1);
  r.ack_pending = false;
}

// Answers a request that was executed before. Reading again does no harm, an atomic returns its
// first result again, and everything else is only acknowledged (IBA 9.7.5.1.4).
void duplicate_answer(Qp& qp, const Packet& packet) {
  Responder& r = qp.responder;
  const bool atomic =
      packet.opcode == Operation::kFetchAdd || packet.opcode == Operation::kCompareSwap;
  if (packet.opcode != Operation::kReadRequest && !atomic) {
    r.ack_pending = !CXEMU_PLANT(duplicate_not_acknowledged);
    return;
  }
  if (CXEMU_PLANT(duplicate_read_dropped) && !atomic) return;
  // The requester went back to this packet and will ask again for everything after it.
  while (!r.jobs.empty() && psn_diff(r.jobs.back().first_psn, packet.psn) >= 0) r.jobs.pop_back();
  if (!r.jobs.empty()) {
    ResponseJob& job = r.jobs.back();
    const auto wanted = static_cast<uint32_t>(psn_diff(packet.psn, job.first_psn));
    if (wanted < job.packets) r.jobs.pop_back();
  }
  if (!resources_left(qp)) return;
  if (atomic) {
    const auto same = [&](const AtomicRecord& record) { return record.psn == packet.psn; };
    // The newest comes first: an old one may have had the same number, one round of all numbers
    // ago.
    const auto found = std::find_if(r.atomics.rbegin(), r.atomics.rend(), same);
    if (found == r.atomics.rend()) return;
    atomic_queue(qp, *found);
    r.jobs.back().again = true;
    return;
  }
  const uint32_t end = psn_add(packet.psn, response_packets(qp, packet.dma_length));
  if (psn_diff(end, r.psn_expected) > 0) return;  // not a part of an earlier request
  if (remote_find(qp, packet.rkey, packet.remote_address, packet.dma_length,
                  IBV_ACCESS_REMOTE_READ) == nullptr) {
    const uint32_t psn = CXEMU_PLANT(duplicate_refused_at_expected) ? r.psn_expected : packet.psn;
    request_refuse_at(qp, psn, kNakRemoteAccess, IBV_EVENT_QP_ACCESS_ERR);
    return;
  }
  read_queue(qp, packet, r.msn);
  r.jobs.back().again = true;
}

// Whether a planted bug takes this duplicate for a new request.
bool duplicate_planted(Operation opcode) {
  return (CXEMU_PLANT(duplicate_send_executed) && opcode_is_send(opcode)) ||
         (CXEMU_PLANT(duplicate_write_executed) && opcode_is_write(opcode)) ||
         (CXEMU_PLANT(duplicate_atomic_executed) &&
          (opcode == Operation::kFetchAdd || opcode == Operation::kCompareSwap));
}

// Writes and sends one packet without payload, which waits for no turn, since it lets the peer go
// on. Returns false if the way is full.
bool plain_send(Qp& qp, const Packet& packet, const Transport& transport) {
  uint8_t* out =
      transport.wire.reserve(packet.dest_qpn, header_size(packet.opcode, packet.service), true);
  if (out == nullptr) return false;
  const size_t size = headers_encode(packet, 0, out);
  transport.wire.commit(qp.nic.fabric(), qp.remote_ipv4_be, packet.opcode, size, transport.wall_ns);
  return true;
}

Operation read_response_opcode(uint32_t index, uint32_t packets) {
  if (packets == 1 || CXEMU_PLANT(every_response_only)) return Operation::kReadResponseOnly;
  if (index == 0) return Operation::kReadResponseFirst;
  return index + 1 == packets ? Operation::kReadResponseLast : Operation::kReadResponseMiddle;
}

struct Answer {
  bool done;
  uint32_t bytes;
};

Answer response_send(Qp& qp, ResponseJob& job, const Transport& transport) {
  Packet packet = {.opcode = job.atomic ? Operation::kAtomicAcknowledge
                                        : read_response_opcode(job.sent, job.packets),
                   .service = qp.service};
  packet.dest_qpn = qp.attr.dest_qp_num;
  packet.psn = psn_add(job.first_psn, job.sent);
  packet.syndrome = kAethAck;
  packet.msn = job.msn;
  packet.original = job.original;
  if (job.atomic) return {plain_send(qp, packet, transport), kMaxHeader};

  const uint64_t offset = uint64_t{job.sent} * qp.mtu;
  const auto size = static_cast<uint32_t>(std::min<uint64_t>(job.length - offset, qp.mtu));
  // The memory is looked up for each packet: the region may have been removed since the request
  // came.
  const uint8_t* from =
      remote_find_in(qp, job.pd, job.rkey, job.address + offset, size, IBV_ACCESS_REMOTE_READ);
  if (from == nullptr) {
    Responder& r = qp.responder;
    r.jobs.clear();
    r.nak_pending = true;
    r.nak_syndrome = kAethNak | kNakRemoteAccess;
    r.nak_psn = CXEMU_PLANT(late_refusal_at_expected) ? r.psn_expected : packet.psn;
    qp_fail(qp, IBV_EVENT_QP_ACCESS_ERR);
    return {false, 0};
  }
  const size_t pad = pad_size(size);
  uint8_t* out = transport.wire.reserve(packet.dest_qpn,
                                        header_size(packet.opcode, packet.service) + size + pad);
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
  if (!qp.receives() && !CXEMU_PLANT(err_still_receives)) return;
  Responder& r = qp.responder;
  const bool xrc = qp.service == Service::kXrc;
  if (xrc) r.request_srq = qp.nic.srq_find(packet.srqn, qp.config.xrcd);
  const int32_t distance = psn_diff(packet.psn, r.psn_expected);
  if (distance > 0 && !CXEMU_PLANT(gap_ignored)) {
    qp.nic.fabric().add(HwCounter::kOutOfSequence);
    if (!r.nak_sent || CXEMU_PLANT(nak_repeated)) request_ask_again(qp, kAethNak | kNakSequence);
    return;
  }
  if (distance < 0 && !duplicate_planted(packet.opcode)) {
    qp.nic.fabric().add(HwCounter::kDuplicateRequest);
    duplicate_answer(qp, packet);
    return;
  }
  if ((xrc && r.request_srq == nullptr) || !sequence_ok(qp, packet.opcode) ||
      (opcode_has_payload(packet.opcode) && !payload_length_ok(qp, packet))) {
    request_refuse(qp, kNakInvalidRequest, IBV_EVENT_QP_REQ_ERR);
  } else if (opcode_is_send(packet.opcode)) {
    send_execute(qp, packet, transport);
  } else if (opcode_is_write(packet.opcode)) {
    write_execute(qp, packet, transport);
  } else if (packet.opcode == Operation::kReadRequest) {
    qp.nic.held_writes().release();
    read_execute(qp, packet);
  } else {
    qp.nic.held_writes().release();
    atomic_execute(qp, packet);
  }
}

bool responder_run(Qp& qp, const Transport& transport, uint32_t budget_bytes) {
  Responder& r = qp.responder;
  bool any = false;
  for (uint32_t bytes = 0; !r.jobs.empty() && bytes < budget_bytes;) {
    ResponseJob& job = r.jobs.front();
    const Answer sent = response_send(qp, job, transport);
    if (!sent.done) break;
    bytes += sent.bytes;
    any = true;
    if (++job.sent == job.packets) r.jobs.pop_front();
  }
  if (!r.jobs.empty() && !CXEMU_PLANT(ack_overtakes_answers)) return any;
  if (!r.ack_pending && !r.nak_pending) return any;
  // A NAK acknowledges everything before it, so one packet is enough.
  Packet packet = {.opcode = Operation::kAcknowledge, .service = qp.service};
  packet.dest_qpn = qp.attr.dest_qp_num;
  packet.msn = r.msn;
  const uint32_t newest = psn_add(r.psn_expected, kPsnMask - CXEMU_PLANT(ack_not_of_newest));
  packet.psn = r.nak_pending ? r.nak_psn : newest;
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
