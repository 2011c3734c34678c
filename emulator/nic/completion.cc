// How WQEs end: completions, errors, and the flush of everything that is left in a QP's rings.
#include <algorithm>

#include "nic/nic_model.h"
#include "nic/planted.h"
#include "nic/qp_publish.h"
#include "nic/transport.h"

namespace cxemu {

namespace {

// Tells that a queue pair in ERR took its last entry of a shared queue, and all that it took are
// completed.
bool last_wqe_tell(Qp& qp) {
  if (qp.last_wqe_told || CXEMU_PLANT(last_wqe_not_told)) return false;
  qp.last_wqe_told = true;
  qp_event(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
  return true;
}

bool recv_flush_one(Qp& qp, const Transport& transport) {
  Responder& r = qp.responder;
  if (r.recv_taken) {
    r.recv_taken = false;
    if (CXEMU_PLANT(taken_receive_forgotten)) return true;
    recv_complete(qp, {.opcode = kCqeResponderError, .syndrome = kSyndromeFlush}, transport);
    return true;
  }
  if (qp.config.srq != nullptr) return last_wqe_tell(qp);
  const uint16_t posted = static_cast<uint16_t>(qp.recv_producer() - r.ring_next);
  if (posted == 0) return false;
  if (posted > qp.config.rq_wqe_count) {  // a correct library never rings such a doorbell
    r.ring_next = qp.recv_producer();
    return false;
  }
  r.recv.index = r.ring_next++;
  r.recv_srq = nullptr;
  recv_complete(qp, {.opcode = kCqeResponderError, .syndrome = kSyndromeFlush}, transport);
  return true;
}

void error_count(Qp& qp, Syndrome syndrome, HwCounter any, HwCounter flush) {
  FabricNic& nic = qp.nic.fabric();
  nic.add(any);
  if (syndrome == kSyndromeFlush) nic.add(flush);
  if (syndrome == kSyndromeLocalLength) nic.add(HwCounter::kRespLocalLengthError);
}

// A fault may wait for the n-th completion, and may kill the NIC before that is written.
bool completion_allowed(const Qp& qp, const Transport& transport) {
  return transport.wire.event(qp.nic.fabric(), FaultTick::kCqe, qp.number, qp.remote_ipv4_be,
                              transport.wall_ns);
}

}  // namespace

bool send_flush_one(Qp& qp, const Transport& transport) {
  Requester& r = qp.requester;
  const uint16_t posted = static_cast<uint16_t>(qp.send_producer() - r.ring_consumed);
  if (posted == 0) return false;
  SendWqe& wqe = r.tx_wqe;
  r.tx_wqe_valid = false;
  const uint32_t walkable = std::min<uint32_t>(posted, qp.config.sq_wqe_count);
  send_wqe_decode(qp.send_ring(), r.ring_consumed, walkable, &wqe);
  const SendEntry entry = {.index = r.ring_consumed,
                           .blocks = wqe.blocks != 0 ? wqe.blocks : posted,
                           .opcode = wqe.opcode};
  r.ring_consumed = static_cast<uint16_t>(r.ring_consumed + entry.blocks);
  if (wqe.signaled || !CXEMU_PLANT(unsignaled_flushed_silently)) {
    send_complete(qp, entry, kSyndromeFlush, transport);
  }
  return true;
}

void send_complete(Qp& qp, const SendEntry& entry, Syndrome syndrome, const Transport& transport) {
  const bool error = syndrome != kSyndromeNone;
  if (error) error_count(qp, syndrome, HwCounter::kReqCqeError, HwCounter::kReqCqeFlushError);
  if (!completion_allowed(qp, transport)) return;
  qp.config.send_cq->write({.opcode = error ? kCqeRequesterError : kCqeRequester,
                            .wqe_opcode = entry.opcode,
                            .wqe_counter = entry.index,
                            .qpn = qp.number,
                            .uidx = qp.config.uidx,
                            .byte_count = error ? 0 : entry.length,
                            .syndrome = syndrome},
                           transport.wall_ns);
}

void recv_complete(Qp& qp, Cqe cqe, const Transport& transport) {
  if (cqe.syndrome != kSyndromeNone)
    error_count(qp, cqe.syndrome, HwCounter::kRespCqeError, HwCounter::kRespCqeFlushError);
  if (!completion_allowed(qp, transport)) return;
  const Srq* srq = qp.responder.recv_srq;
  const bool xrc = srq != nullptr && srq->is_xrc() && !CXEMU_PLANT(xrc_completes_at_qp);
  cqe.wqe_counter = qp.responder.recv.index;
  cqe.qpn = qp.number;
  cqe.uidx = xrc ? srq->config.uidx : qp.config.uidx;
  if (qp.service != Service::kUd) cqe.remote_qpn = qp.attr.dest_qp_num;
  (xrc ? srq->config.cq : qp.config.recv_cq)->write(cqe, transport.wall_ns);
}

void qp_event(Qp& qp, ibv_event_type type) {
  qp.async_events++;
  qp.config.sink->async_event(type, qp.config.user_handle);
}

void qp_stop(Qp& qp) {
  if (qp.state == IBV_QPS_ERR) return;
  qp.state = IBV_QPS_ERR;
  Requester& r = qp.requester;
  r.entry_first = r.entry_end = r.entry_tx = 0;
  r.packet_tx = 0;
  r.reads_outstanding = 0;
  r.rnr_until_ns = 0;
  r.error = kSyndromeNone;
  r.tx_wqe_valid = r.rx_wqe_valid = false;
  // A refusal is still sent, after the answers that precede it. Otherwise the QP sends nothing.
  qp.responder.ack_pending = false;
  if (!qp.responder.nak_pending || CXEMU_PLANT(refusal_forgets_answers)) qp.responder.jobs.clear();
}

void qp_fail(Qp& qp, int event, Syndrome syndrome) {
  if (qp.state == IBV_QPS_ERR) return;
  qp_stop(qp);
  qp.nic.fabric().qp_errors.fetch_add(1, std::memory_order_relaxed);
  qp_error_publish(qp, syndrome, event);
  if (event != 0 && !CXEMU_PLANT(refusal_without_event))
    qp_event(qp, static_cast<ibv_event_type>(event));
}

void recv_fail(Qp& qp, Syndrome syndrome, const Transport& transport) {
  qp.responder.recv_taken = false;
  recv_complete(qp, {.opcode = kCqeResponderError, .syndrome = syndrome}, transport);
  qp_fail(qp, 0, syndrome);
}

void qp_fail_send(Qp& qp, Syndrome syndrome, const Transport& transport) {
  Requester& r = qp.requester;
  if (r.entry_first != r.entry_end) {
    const SendEntry& entry = r.entry(r.entry_first);
    r.ring_consumed = static_cast<uint16_t>(entry.index + entry.blocks);
    send_complete(qp, entry, syndrome, transport);
  }
  qp_fail(qp, 0, syndrome);
}

bool qp_flush(Qp& qp, const Transport& transport, uint32_t max) {
  uint32_t done = 0;
  while (done < max && send_flush_one(qp, transport)) done++;
  if (qp.state == IBV_QPS_SQE) return done > 0;
  while (done < max && recv_flush_one(qp, transport)) done++;
  return done > 0;
}

}  // namespace cxemu
