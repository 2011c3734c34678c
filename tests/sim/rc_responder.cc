// The receiving half of the fabric: what a packet does where it arrives, and its answer.
#include "sim/rc_fabric.h"

namespace shift::sim {

using group::is_atomic;
using group::is_notification;
using group::PostedRecv;

namespace {

bool names_memory(const ibv_send_wr& wr) {
  return wr.num_sge > 0 && wr.opcode != IBV_WR_SEND && wr.opcode != IBV_WR_SEND_WITH_IMM;
}
uint32_t rkey_of(const ibv_send_wr& wr) {
  return is_atomic(wr.opcode) ? wr.wr.atomic.rkey : wr.wr.rdma.rkey;
}

}  // namespace

// `connection` is the sender's; the answer goes to it.
void RcFabric::arrive(const Packet& packet, uint32_t connection) {
  const int host = 1 - packet.host;
  const int member = member_of(host, packet.to);
  if (dead_[static_cast<size_t>(host)] || member < 0 || !nic(host, member).port_up) return;
  Qp* q = qp(host, member);
  if (q == nullptr || q->qp.qp_num != packet.destination) return;
  look_at(host, member, *q);
  const bool answers = q->qp.state == IBV_QPS_RTR || q->qp.state == IBV_QPS_RTS;
  const bool fits = q->attr.dest_qp_num == packet.source && q->attr.rq_psn == packet.psn &&
                    wire::Gid::from_verbs(q->attr.ah_attr.grh.dgid) == packet.from;
  if (!answers || !fits) return;
  End& e = end(host, member);
  if (packet.index > e.expected) return;
  uint64_t data = 0;
  if (packet.index == e.expected) {
    if (!execute(packet, member, *q, e, &data)) {
      return answer(packet, member, connection, Answer::kNotReady, 0);
    }
    look_at(host, member, *q);
  } else if (packet.wr.opcode == IBV_WR_RDMA_READ) {
    data = observer_.read_again(packet);
  } else if (is_atomic(packet.wr.opcode)) {
    data = e.found.at(packet.index);
  }
  answer(packet, member, connection, Answer::kAck, data);
}

// Returns false when there is no receive for the packet.
bool RcFabric::execute(const Packet& packet, int member, Qp& q, End& e, uint64_t* data) {
  const int host = 1 - packet.host;
  if (names_memory(packet.wr) && rkey_of(packet.wr) != group::rkey_on(member, group::kRkey)) {
    observer_.fault_seen("keys: a request names memory by a foreign one", &packet, host, member);
  }
  const PostedRecv* receive = nullptr;
  // A SEND needs its receive from the first packet on, a WRITE with immediate only for the last.
  const bool needs_receive = packet.is_last() || packet.wr.opcode != IBV_WR_RDMA_WRITE_WITH_IMM;
  if (is_notification(packet.wr.opcode) && needs_receive) {
    if (q.pending_recvs.empty()) return false;
    if (packet.is_last()) receive = receive_take(packet, q);
  }
  *data = observer_.executed(packet, receive);
  if (is_atomic(packet.wr.opcode)) e.found[packet.index] = *data;
  e.expected += packet.numbers;
  return true;
}

const PostedRecv* RcFabric::receive_take(const Packet& packet, Qp& q) {
  const uint64_t wr_id = q.pending_recvs.front();
  const PostedRecv* receive = nullptr;
  for (size_t i = q.recvs.size(); i > 0 && receive == nullptr; i--) {
    if (q.recvs[i - 1].wr_id == wr_id) receive = &q.recvs[i - 1];
  }
  (void)q.complete_recv(packet.sge.length);
  ibv_wc& wc = q.recv_cq->waiting.back();
  if (packet.wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
  if (packet.wr.opcode != IBV_WR_SEND) {
    wc.wc_flags |= IBV_WC_WITH_IMM;
    wc.imm_data = packet.wr.imm_data;
  }
  return receive;
}

void RcFabric::answer(const Packet& packet, int from, uint32_t connection, Answer kind,
                      uint64_t data) {
  if (blocked(1 - packet.host, from, packet.member)) return;
  time_.in(delay(),
           [this, packet, connection, kind, data] { answered(packet, connection, kind, data); });
}

}  // namespace shift::sim
