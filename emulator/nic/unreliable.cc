// The requester of UC and UD: starts WQEs one after the other and forgets each as soon as its last
// packet is sent (IBA 9.8.3 and 9.8.4). An error stops the send queue only (SQE).
#include "nic/unreliable.h"

#include "nic/nic_model.h"
#include "nic/planted.h"
#include "nic/qp_publish.h"

namespace cxemu {

namespace {

// The WQE being sent, in the form that the completion functions take.
SendEntry entry_of(const SendWqe& wqe) {
  return {.length = static_cast<uint32_t>(wqe.length),
          .index = wqe.index,
          .blocks = wqe.blocks,
          .opcode = wqe.opcode,
          .signaled = wqe.signaled};
}

void wqe_done(Qp& qp, Syndrome syndrome, const Transport& transport) {
  Requester& r = qp.requester;
  const SendWqe& wqe = r.tx_wqe;
  r.tx_wqe_valid = false;
  r.packet_tx = 0;
  r.ring_next = r.ring_consumed = static_cast<uint16_t>(wqe.index + wqe.blocks);
  if (wqe.signaled || syndrome != kSyndromeNone) {
    send_complete(qp, entry_of(wqe), syndrome, transport);
  }
}

void wqe_fail(Qp& qp, Syndrome syndrome, const Transport& transport) {
  wqe_done(qp, syndrome, transport);
  qp.state = CXEMU_PLANT(sqe_is_err) ? IBV_QPS_ERR : IBV_QPS_SQE;
  qp.nic.fabric().qp_errors.fetch_add(1, std::memory_order_relaxed);
  qp_error_publish(qp, syndrome, 0);
}

// Decodes the next posted WQE. Returns false if there is none, or none that can be sent.
bool unreliable_start(Qp& qp, const Transport& transport) {
  Requester& r = qp.requester;
  if (qp.state != IBV_QPS_RTS) return false;  // in SQD only what was started is finished
  const uint16_t posted = static_cast<uint16_t>(qp.send_producer() - r.ring_next);
  if (posted == 0) return false;
  if (!transport.wire.event(qp.nic.fabric(), FaultTick::kWqe, qp.number, qp.remote_ipv4_be,
                            transport.wall_ns)) {
    return false;  // a fault waited for this WQE and killed the NIC
  }
  SendWqe& wqe = r.tx_wqe;
  WqeError error = WqeError::kBadLength;
  if (posted <= qp.config.sq_wqe_count) {
    error = send_wqe_decode(qp.send_ring(), r.ring_next, posted, &wqe);
  } else {
    wqe = SendWqe{.index = r.ring_next};
  }
  if (error != WqeError::kNone) {
    // Without a length the rest of the ring cannot be walked, so it fails together with this WQE.
    if (wqe.blocks == 0) wqe.blocks = posted;
    wqe_fail(qp, kSyndromeLocalQpOperation, transport);
    return false;
  }
  if (!parts_check(qp, wqe.part, wqe.part_count, 0)) {
    wqe_fail(qp, kSyndromeLocalProtection, transport);
    return false;
  }
  if (wqe.opcode == kWqeUmr && !window_update(qp, wqe)) {
    wqe_fail(qp, kSyndromeWindowBind, transport);
    return false;
  }
  r.tx_wqe_valid = true;
  return true;
}

// Work that was posted before the QP left SQE never runs.
bool leftovers_flush(Qp& qp, const Transport& transport) {
  Requester& r = qp.requester;
  bool any = false;
  while (r.ring_consumed != r.flush_end && !CXEMU_PLANT(sqe_leftovers_run) &&
         send_flush_one(qp, transport))
    any = true;
  r.flush_left = false;
  r.ring_next = r.ring_consumed;
  return any;
}

}  // namespace

bool unreliable_run(Qp& qp, const Transport& transport, uint32_t budget_bytes) {
  Requester& r = qp.requester;
  bool any = r.flush_left && leftovers_flush(qp, transport);
  for (uint32_t bytes = 0; bytes < budget_bytes;) {
    if (!r.tx_wqe_valid && !unreliable_start(qp, transport)) break;
    if (r.tx_wqe.is_local()) {
      wqe_done(qp, kSyndromeNone, transport);
      any = true;
      continue;
    }
    const SentPacket packet =
        qp.service == Service::kUd ? ud_packet_send(qp, transport) : uc_packet_send(qp, transport);
    if (packet.error != kSyndromeNone) {
      wqe_fail(qp, packet.error, transport);
      any = true;
      break;
    }
    if (!packet.sent) break;
    any = true;
    bytes += packet.bytes;
    r.psn_una = r.psn_sent = r.psn_next = psn_add(r.psn_next, 1);
    if (packet.last) {
      wqe_done(qp, kSyndromeNone, transport);
    } else {
      r.packet_tx++;
    }
  }
  if (qp.state == IBV_QPS_SQD && qp.drained_notify && !r.tx_wqe_valid) {
    qp.drained_notify = false;
    qp_event(qp, IBV_EVENT_SQ_DRAINED);
  }
  return any;
}

}  // namespace cxemu
