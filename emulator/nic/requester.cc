// The half of the reliable transport (RC, XRC) that sends requests: starts WQEs, cuts messages into
// packets, takes acknowledgements and responses, and goes back to the first unacknowledged packet
// when one is missing (go-back-N, IBA 9.7.5 and 9.7.6).
#include <algorithm>

#include "nic/nic_model.h"
#include "nic/outbound.h"
#include "nic/planted.h"
#include "nic/transport.h"

namespace cxemu {

namespace {

// Whether the request's payload travels in the request packets.
bool carries_payload(uint8_t opcode) {
  return opcode == kWqeSend || opcode == kWqeSendImm || opcode == kWqeWrite ||
         opcode == kWqeWriteImm || opcode == kWqeSendInvalidate;
}

void error_set(Qp& qp, Syndrome syndrome) {
  Requester& r = qp.requester;
  r.error = syndrome;
  r.error_entry = r.entry_tx;
}

// Reports a local error once everything before its WQE is completed.
bool error_report(Qp& qp, const Transport& transport) {
  Requester& r = qp.requester;
  if (r.error == kSyndromeNone) return false;
  if (r.entry_first != r.error_entry && !CXEMU_PLANT(local_error_overtakes)) return false;
  qp_fail_send(qp, r.error, transport);
  return true;
}

// Decodes the next posted WQE and makes it an entry. Returns false if nothing can be started now.
bool wqe_start(Qp& qp, const Transport& transport) {
  Requester& r = qp.requester;
  // In SQD only what was started is finished.
  if (qp.state != IBV_QPS_RTS && !CXEMU_PLANT(sqd_starts_new)) return false;
  const uint16_t producer = qp.send_producer();
  const uint16_t posted = static_cast<uint16_t>(producer - r.ring_next);
  if (posted == 0) return false;

  // The check covers the whole ring, not only new WQEs: started ones still occupy it.
  const uint16_t occupied = static_cast<uint16_t>(producer - r.ring_consumed);
  SendWqe& wqe = r.tx_wqe;
  r.tx_wqe_valid = false;
  WqeError error = WqeError::kBadLength;
  if (occupied <= qp.config.sq_wqe_count || CXEMU_PLANT(doorbell_unchecked)) {
    error = send_wqe_decode(qp.send_ring(), r.ring_next, posted, &wqe);
  } else {
    wqe = SendWqe{.index = r.ring_next};
  }
  const bool fenced = wqe.fence_reads && !CXEMU_PLANT(fence_ignored);
  if (error == WqeError::kNone && fenced && r.reads_outstanding > 0) return false;
  if (!transport.wire.event(qp.nic.fabric(), FaultTick::kWqe, qp.number, qp.remote_ipv4_be,
                            transport.wall_ns)) {
    return false;  // a fault waited for this WQE and killed the NIC
  }

  const bool response = wqe.is_read_or_atomic();
  const bool none = error != WqeError::kNone || wqe.is_local();
  const bool one = wqe.is_atomic() || (response && CXEMU_PLANT(read_takes_one_psn));
  const uint32_t packets = none ? 0 : (one ? 1 : packet_count(wqe.length, qp.mtu));
  r.tx_wqe_entry = r.entry_end;
  r.tx_wqe_valid = error == WqeError::kNone;
  r.entry_add({.first_psn = r.psn_next,
               .packets = packets,
               .length = static_cast<uint32_t>(wqe.length),
               .index = r.ring_next,
               .blocks = wqe.blocks,
               .opcode = wqe.opcode,
               .signaled = wqe.signaled,
               .needs_response = response && !none,
               .counted = false});
  r.psn_next = psn_add(r.psn_next, packets);
  if (error != WqeError::kNone) {
    // Without a length the rest of the ring cannot be walked, so it fails together with this WQE.
    const uint16_t blocks = wqe.blocks != 0 ? wqe.blocks : posted;
    r.entry(r.tx_wqe_entry).blocks = blocks;
    r.ring_next = static_cast<uint16_t>(r.ring_next + blocks);
    error_set(qp, kSyndromeLocalQpOperation);
    return false;
  }
  r.ring_next = static_cast<uint16_t>(r.ring_next + wqe.blocks);
  // This happens once, even if packets are sent again later: started entries are never started
  // anew.
  if (wqe.opcode == kWqeUmr && !window_update(qp, wqe)) {
    error_set(qp, kSyndromeWindowBind);
    return false;
  }
  const uint32_t access = response ? IBV_ACCESS_LOCAL_WRITE : 0;
  if (!parts_check(qp, wqe.part, wqe.part_count, access) && !CXEMU_PLANT(local_rights_late)) {
    error_set(qp, kSyndromeLocalProtection);
    return false;
  }
  return true;
}

bool wqe_load(Qp& qp, uint32_t entry_number, SendWqe* wqe, uint32_t* loaded, bool* valid) {
  if (*valid && *loaded == entry_number) return true;
  const SendEntry& entry = qp.requester.entry(entry_number);
  // It was decoded without error before, and the application may not touch it until it completes.
  if (send_wqe_decode(qp.send_ring(), entry.index, entry.blocks, wqe) != WqeError::kNone ||
      wqe->opcode != entry.opcode || wqe->length != entry.length) {
    return false;
  }
  *loaded = entry_number;
  *valid = true;
  return true;
}

// psn_una moved: the retry counters start anew, and a cursor that was set back to send again
// follows.
void progress(Requester& r, const Transport& transport) {
  if (!CXEMU_PLANT(retries_never_restored)) r.retries = r.rnr_retries = 0;
  r.rewound = false;
  if (!CXEMU_PLANT(timer_not_restarted)) r.timer_start_ns = transport.now_ns;
  if (static_cast<int32_t>(r.entry_tx - r.entry_first) < 0) {
    r.entry_tx = r.entry_first;
    r.packet_tx = 0;
  }
  if (r.entry_tx != r.entry_first || r.entry_first == r.entry_end) return;
  const int32_t done = psn_diff(r.psn_una, r.entry(r.entry_first).first_psn);
  r.packet_tx = std::max(r.packet_tx, static_cast<uint32_t>(std::max(done, 0)));
}

// Completes entries whose packets are all before `psn`. It stops at an entry that still needs a
// response, and returns false if the acknowledgement covered that entry.
bool advance(Qp& qp, uint32_t psn, const Transport& transport) {
  Requester& r = qp.requester;
  const uint32_t before = r.psn_una;
  bool complete = true;
  while (r.entry_first != r.entry_end) {
    const SendEntry entry = r.entry(r.entry_first);
    // An entry without packets completes when it is the oldest and the sender has passed it.
    if (entry.packets == 0 && r.entry_tx == r.entry_first) break;
    const uint32_t end = psn_add(entry.first_psn, entry.packets);
    if (entry.packets > 0 && !psn_passed(psn, entry.first_psn)) break;
    if (CXEMU_PLANT(psn_compared_flat) && psn < entry.first_psn) break;
    if (entry.needs_response && psn_diff(r.psn_una, end) < 0 && !CXEMU_PLANT(ack_completes_read)) {
      if (psn_diff(entry.first_psn, r.psn_una) > 0) r.psn_una = entry.first_psn;
      complete = false;
      break;
    }
    if (psn_diff(psn, end) < 0) {
      if (psn_diff(psn, r.psn_una) > 0 && !CXEMU_PLANT(partial_ack_ignored)) r.psn_una = psn;
      break;
    }
    if (psn_diff(end, r.psn_una) > 0) r.psn_una = end;
    if (entry.counted) r.reads_outstanding--;
    r.entry_first++;
    r.ring_consumed = static_cast<uint16_t>(entry.index + entry.blocks);
    if (entry.signaled || CXEMU_PLANT(unsignaled_completes)) {
      send_complete(qp, entry, kSyndromeNone, transport);
    }
    if (CXEMU_PLANT(ack_completes_one)) break;
  }
  if (r.psn_una != before) progress(r, transport);
  return complete;
}

// Sends again from the first unacknowledged packet.
void rewind(Qp& qp) {
  Requester& r = qp.requester;
  for (uint32_t n = r.entry_first; n != r.entry_end; n++) r.entry(n).counted = false;
  r.reads_outstanding = 0;
  r.entry_tx = r.entry_first;
  r.packet_tx = 0;
  if (r.entry_first != r.entry_end) {
    const int32_t done = psn_diff(r.psn_una, r.entry(r.entry_first).first_psn);
    r.packet_tx = CXEMU_PLANT(goes_back_to_first) ? 0 : static_cast<uint32_t>(std::max(done, 0));
  }
}

void retry(Qp& qp, const Transport& transport) {
  Requester& r = qp.requester;
  if (r.retries >= qp.attr.retry_cnt + CXEMU_PLANT(retry_one_more)) {
    qp_fail_send(qp, kSyndromeRetryExceeded, transport);
    return;
  }
  r.retries++;
  r.timer_start_ns = transport.now_ns;
  rewind(qp);
}

// A packet or its response was lost: send again, but only once until there is progress or the timer
// ends. A second sign of the same loss, such as a doubled NAK, must not use up another retry.
void repeat_once(Qp& qp, const Transport& transport) {
  if (qp.requester.rewound && !CXEMU_PLANT(doubled_nak_counts)) return;
  retry(qp, transport);
  qp.requester.rewound = true;
}

// The peer's packet shows indirectly that a response is lost.
void response_missing(Qp& qp, const Transport& transport) {
  if (!qp.requester.rewound) qp.nic.fabric().add(HwCounter::kImpliedNakSeqErr);
  repeat_once(qp, transport);
}

struct Sent {
  bool done;
  uint32_t bytes;
};

// Whether the packet that was reserved last asks for an ACK. It does before a wait for the next
// turn, or the timer would count this wait. `due`: it asks in any case.
bool ack_wanted(uint32_t psn, bool due, const Transport& transport) {
  if (CXEMU_PLANT(no_ack_request)) return false;
  const bool closes = transport.wire.closes() && !CXEMU_PLANT(shape_no_ack_request);
  return due || closes || psn % transport.tuning.ack_request_packets == 0;
}

// Sends packet number packet_tx of entry_tx.
Sent packet_send(Qp& qp, const Transport& transport) {
  Requester& r = qp.requester;
  SendEntry& entry = r.entry(r.entry_tx);
  if (!wqe_load(qp, r.entry_tx, &r.tx_wqe, &r.tx_wqe_entry, &r.tx_wqe_valid)) {
    error_set(qp, kSyndromeLocalQpOperation);
    return {false, 0};
  }
  const SendWqe& wqe = r.tx_wqe;
  const bool payload = carries_payload(entry.opcode);
  const uint64_t offset = wqe.is_atomic() ? 0 : uint64_t{r.packet_tx} * qp.mtu;
  const uint32_t left = static_cast<uint32_t>(entry.length - offset);
  const uint32_t size = payload ? std::min(left, qp.mtu) : 0;
  const bool last = !payload || r.packet_tx + 1 == entry.packets;

  Packet packet = {.opcode = Operation::kReadRequest, .service = qp.service};
  if (payload) {
    packet.opcode = request_opcode(entry.opcode, r.packet_tx == 0, last);
    packet.dma_length = entry.length;
    packet.remote_address = wqe.remote_address;
    packet.solicited = wqe.solicited && (last || CXEMU_PLANT(solicited_in_every_packet));
  } else if (entry.opcode == kWqeRead) {
    // When a READ is sent again, it asks only for what is missing.
    packet.dma_length = left;
    packet.remote_address = wqe.remote_address + (CXEMU_PLANT(read_again_from_start) ? 0 : offset);
  } else {
    packet.opcode = entry.opcode == kWqeFetchAdd ? Operation::kFetchAdd : Operation::kCompareSwap;
    packet.remote_address = wqe.remote_address;
    packet.swap_or_add = wqe.swap_or_add;
    packet.compare = wqe.compare;
  }
  packet.rkey = wqe.rkey;
  packet.imm_be = wqe.imm_be;
  packet.dest_qpn = qp.attr.dest_qp_num;
  packet.srqn = wqe.srqn;
  packet.psn = psn_add(entry.first_psn, r.packet_tx);
  const bool again = psn_diff(packet.psn, r.psn_sent) < 0;

  const size_t pad = pad_size(size);
  uint8_t* out = transport.wire.reserve(packet.dest_qpn,
                                        header_size(packet.opcode, packet.service) + size + pad);
  if (out == nullptr) return {false, 0};
  packet.ack_request = ack_wanted(packet.psn, last || again, transport);
  const size_t headers = headers_encode(packet, size, out);
  if (!parts_read(qp, wqe.part, wqe.part_count, offset, size, out + headers)) {
    error_set(qp, kSyndromeLocalProtection);
    return {false, 0};
  }
  std::fill_n(out + headers + size, pad, uint8_t{0});
  FabricNic& nic = qp.nic.fabric();
  transport.wire.commit(nic, qp.remote_ipv4_be, packet.opcode, headers + size + pad,
                        transport.wall_ns);
  if (again) nic.retransmits.fetch_add(1, std::memory_order_relaxed);

  if (!r.outstanding()) r.timer_start_ns = transport.now_ns;
  if (entry.needs_response && !entry.counted) {
    entry.counted = true;
    r.reads_outstanding++;
  }
  const uint32_t end = payload ? psn_add(packet.psn, 1) : psn_add(entry.first_psn, entry.packets);
  if (psn_ahead(end, r.psn_una) > psn_ahead(r.psn_sent, r.psn_una)) r.psn_sent = end;
  if (last) {
    r.entry_tx++;
    r.packet_tx = 0;
  } else {
    r.packet_tx++;
  }
  if (CXEMU_PLANT(complete_when_sent) && last && payload) advance(qp, end, transport);
  return {true, static_cast<uint32_t>(headers) + size};
}

// Whether a packet may be sent now: the window, the READ limit and errors allow it.
bool send_allowed(Qp& qp, const Transport& transport) {
  Requester& r = qp.requester;
  if (r.error != kSyndromeNone && r.entry_tx == r.error_entry) return false;
  const SendEntry& entry = r.entry(r.entry_tx);
  if (entry.needs_response) {
    // Half of the numbers must stay free, or old and new packets could not be told apart (IBA
    // 9.7.5.1.1). The longest message in the smallest packets takes the other half, so it is always
    // sent alone.
    const uint32_t span = psn_ahead(entry.first_psn, r.psn_una) + entry.packets;
    const bool too_far = span > kPsnHalf && !CXEMU_PLANT(psn_space_overrun);
    if (too_far && r.entry_tx != r.entry_first) return false;
    return r.reads_outstanding < qp.attr.max_rd_atomic || CXEMU_PLANT(reads_unlimited);
  }
  const uint32_t psn = psn_add(entry.first_psn, r.packet_tx);
  return psn_ahead(psn, r.psn_una) < transport.tuning.window_packets;
}

void read_response(Qp& qp, const Packet& packet, const Transport& transport) {
  Requester& r = qp.requester;
  // The READ or atomic that this answers: the response acknowledges everything before it.
  if (!CXEMU_PLANT(response_acknowledges_nothing)) advance(qp, packet.psn, transport);
  if (r.entry_first == r.entry_end) return;
  const SendEntry& entry = r.entry(r.entry_first);
  const bool next = packet.psn == r.psn_una || CXEMU_PLANT(response_gap_ignored);
  if (!entry.needs_response || !next) {
    if (psn_diff(packet.psn, r.psn_una) > 0) response_missing(qp, transport);
    return;
  }
  const bool atomic = packet.opcode == Operation::kAtomicAcknowledge;
  const uint32_t index = static_cast<uint32_t>(psn_diff(packet.psn, entry.first_psn));
  const uint64_t offset = uint64_t{index} * qp.mtu;
  const uint32_t expected =
      static_cast<uint32_t>(std::min<uint64_t>(entry.length - offset, qp.mtu));
  const bool size_ok = packet.payload_size == expected || CXEMU_PLANT(response_length_unchecked);
  const bool end_ok = opcode_ends_message(packet.opcode) == (index + 1 == entry.packets) ||
                      CXEMU_PLANT(response_end_unchecked);
  if (!wqe_load(qp, r.entry_first, &r.rx_wqe, &r.rx_wqe_entry, &r.rx_wqe_valid) ||
      (atomic != r.rx_wqe.is_atomic() && !CXEMU_PLANT(response_kind_unchecked)) ||
      (!atomic && !(size_ok && end_ok))) {
    qp_fail_send(qp, kSyndromeBadResponse, transport);
    return;
  }
  const auto* data = atomic ? reinterpret_cast<const uint8_t*>(&packet.original) : packet.payload;
  const uint32_t size = atomic ? sizeof packet.original : expected;
  if (!parts_write(qp, qp.config.pd, r.rx_wqe.part, r.rx_wqe.part_count, atomic ? 0 : offset, data,
                   size)) {
    qp_fail_send(qp, kSyndromeLocalProtection, transport);
    return;
  }
  r.psn_una = psn_add(packet.psn, 1);
  advance(qp, r.psn_una, transport);
  progress(r, transport);
}

void nak_received(Qp& qp, const Packet& packet, const Transport& transport) {
  Requester& r = qp.requester;
  const uint8_t type = packet.syndrome & kAethTypeMask;
  const uint8_t value = packet.syndrome & kAethValueMask;
  if (type != kAethRnr && type != kAethNak) return;  // reserved: treat it as if it never came
  const uint32_t before = r.psn_una;
  // A READ may be refused in the middle, after everything before that came.
  if (!CXEMU_PLANT(nak_acknowledges_nothing) && !advance(qp, packet.psn, transport) &&
      r.psn_una != packet.psn) {
    response_missing(qp, transport);
    return;
  }
  if (r.entry_first == r.entry_end) return;
  FabricNic& nic = qp.nic.fabric();
  if (type == kAethRnr) {
    nic.add(HwCounter::kRnrNakRetryErr);
    // The QP already waits because of this packet: the request or its NAK came twice.
    if (r.rnr_until_ns != 0 && r.psn_una == before && !CXEMU_PLANT(doubled_rnr_counts)) return;
    const bool for_ever = qp.attr.rnr_retry == 7 && !CXEMU_PLANT(rnr_retry_seven_ends);
    if (!for_ever && r.rnr_retries >= qp.attr.rnr_retry + CXEMU_PLANT(rnr_retry_one_more)) {
      qp_fail_send(qp, kSyndromeRnrRetryExceeded, transport);
      return;
    }
    r.rnr_retries++;
    r.rnr_until_ns = transport.now_ns + rnr_timer_ns(CXEMU_PLANT(rnr_wait_ignored) ? 1 : value);
    rewind(qp);
    return;
  }
  switch (value) {
    case kNakSequence:
      nic.add(HwCounter::kPacketSeqErr);
      repeat_once(qp, transport);
      return;
    case kNakInvalidRequest:
      nic.add(HwCounter::kReqRemoteInvalidRequest);
      qp_fail_send(qp, kSyndromeRemoteInvalidRequest, transport);
      return;
    case kNakRemoteAccess:
      nic.add(HwCounter::kReqRemoteAccessErrors);
      qp_fail_send(
          qp, CXEMU_PLANT(nak_code_mixed_up) ? kSyndromeRemoteOperation : kSyndromeRemoteAccess,
          transport);
      return;
    case kNakRemoteOperation:
      qp_fail_send(qp, kSyndromeRemoteOperation, transport);
      return;
    default:  // reserved code: treat it as if it never came
      if (CXEMU_PLANT(reserved_nak_taken)) retry(qp, transport);
      return;
  }
}

uint64_t ack_timeout_ns(const Qp& qp, const TransportTuning& tuning) {
  if (qp.attr.timeout == 0 && !CXEMU_PLANT(timeout_zero_ends)) return UINT64_MAX;
  const uint64_t unit_ns = CXEMU_PLANT(timeout_doubled) ? 8192 : 4096;
  return std::max(unit_ns << qp.attr.timeout, tuning.ack_timeout_min_ns);
}

}  // namespace

bool requester_run(Qp& qp, const Transport& transport, uint32_t budget_bytes) {
  Requester& r = qp.requester;
  if (r.rnr_until_ns != 0) {
    if (transport.now_ns < r.rnr_until_ns) return false;
    r.rnr_until_ns = 0;
    r.timer_start_ns = transport.now_ns;
  }
  bool any = false;
  for (uint32_t bytes = 0; bytes < budget_bytes && qp.sends();) {
    if (r.entry_tx == r.entry_end && (r.error != kSyndromeNone || !wqe_start(qp, transport))) break;
    const bool failed = r.error != kSyndromeNone && r.entry_tx == r.error_entry;
    if (r.entry(r.entry_tx).packets == 0 && !failed) {
      r.entry_tx++;
      advance(qp, r.psn_una, transport);
      any = true;
      continue;
    }
    if (!send_allowed(qp, transport)) break;
    const Sent sent = packet_send(qp, transport);
    if (!sent.done) break;
    bytes += sent.bytes;
    any = true;
  }
  any |= error_report(qp, transport);
  if (qp.state == IBV_QPS_SQD && qp.drained_notify && r.entry_first == r.entry_end) {
    qp.drained_notify = false;
    if (!CXEMU_PLANT(drained_not_told)) qp_event(qp, IBV_EVENT_SQ_DRAINED);
  }
  return any;
}

void requester_response(Qp& qp, const Packet& packet, const Transport& transport) {
  Requester& r = qp.requester;
  if (!qp.sends()) return;
  // Only outstanding requests can be answered; any other response is a ghost or a duplicate.
  if (psn_diff(packet.psn, r.psn_una) < 0) return;
  if (psn_diff(packet.psn, r.psn_sent) >= 0 && !CXEMU_PLANT(ghost_accepted)) return;
  if (packet.opcode != Operation::kAcknowledge) {
    read_response(qp, packet, transport);
  } else if ((packet.syndrome & kAethTypeMask) == 0) {
    if (!advance(qp, psn_add(packet.psn, 1), transport) && !CXEMU_PLANT(missing_response_waits)) {
      response_missing(qp, transport);
    }
  } else {
    nak_received(qp, packet, transport);
  }
  if (qp.sends()) error_report(qp, transport);
}

bool requester_timer(Qp& qp, const Transport& transport) {
  Requester& r = qp.requester;
  if (!qp.sends() || !r.outstanding() || r.rnr_until_ns != 0) return false;
  const uint64_t timeout_ns = ack_timeout_ns(qp, transport.tuning);
  if (timeout_ns == UINT64_MAX || transport.now_ns - r.timer_start_ns < timeout_ns) return false;
  r.rewound = false;
  qp.nic.fabric().add(HwCounter::kLocalAckTimeoutErr);
  retry(qp, transport);
  return true;
}

uint64_t requester_deadline_ns(const Qp& qp, const TransportTuning& tuning) {
  const Requester& r = qp.requester;
  if (!qp.sends()) return UINT64_MAX;
  if (r.rnr_until_ns != 0) return r.rnr_until_ns;
  if (!r.outstanding()) return UINT64_MAX;
  const uint64_t timeout_ns = ack_timeout_ns(qp, tuning);
  return timeout_ns == UINT64_MAX ? UINT64_MAX : r.timer_start_ns + timeout_ns;
}

}  // namespace cxemu
