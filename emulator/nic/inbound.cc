// What the receiving halves of all services share.
#include "nic/inbound.h"

#include "nic/nic_model.h"
#include "nic/planted.h"
#include "nic/transport.h"

namespace cxemu {

namespace {

bool own_ring_take(Qp& qp) {
  Responder& r = qp.responder;
  const uint16_t posted = static_cast<uint16_t>(qp.recv_producer() - r.ring_next);
  if (posted == 0 || posted > qp.config.rq_wqe_count) return false;
  recv_wqe_decode(qp.recv_ring(), r.ring_next++, &r.recv);
  return true;
}

}  // namespace

bool recv_take(Qp& qp) {
  Responder& r = qp.responder;
  if (r.recv_taken) return true;
  Srq* srq = qp.service == Service::kXrc ? r.request_srq : qp.config.srq;
  if (srq == nullptr ? !own_ring_take(qp) : !srq->take(&r.recv)) return false;
  r.recv_srq = srq;
  r.recv_taken = true;
  return true;
}

bool recv_write(const Qp& qp, uint64_t offset, const uint8_t* from, uint32_t size) {
  const Responder& r = qp.responder;
  const bool shared = r.recv_srq != nullptr && !CXEMU_PLANT(srq_domain_of_qp);
  const uint32_t pd = shared ? r.recv_srq->config.pd : qp.config.pd;
  return parts_write(qp, pd, r.recv.part, r.recv.part_count, offset, from, size);
}

bool payload_length_ok(const Qp& qp, const Packet& packet) {
  if (CXEMU_PLANT(packet_length_unchecked)) return true;
  if (!opcode_ends_message(packet.opcode)) return packet.payload_size == qp.mtu;
  if (!opcode_starts_message(packet.opcode) && packet.payload_size == 0) return false;
  return packet.payload_size <= qp.mtu;
}

uint32_t request_pd(const Qp& qp) {
  const Srq* srq = qp.responder.request_srq;
  return srq != nullptr ? srq->config.pd : qp.config.pd;
}

uint8_t* remote_find(const Qp& qp, uint32_t rkey, uint64_t address, uint64_t length,
                     uint32_t access) {
  return remote_find_in(qp, request_pd(qp), rkey, address, length, access);
}

uint8_t* remote_find_in(const Qp& qp, uint32_t pd, uint32_t rkey, uint64_t address, uint64_t length,
                        uint32_t access) {
  if ((qp.attr.qp_access_flags & access) == 0 && !CXEMU_PLANT(qp_access_unchecked)) return nullptr;
  return qp.nic.memory().find_remote(rkey, pd, qp.number, address, length, access);
}

}  // namespace cxemu
