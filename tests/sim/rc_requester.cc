// The sending half of the fabric: it sends packets, repeats them, and takes acknowledgements.
#include <algorithm>
#include <utility>

#include "sim/rc_fabric.h"

namespace shift::sim {

using group::is_atomic;
using group::PostedSend;

namespace {

bool has_answer(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
}
uint32_t numbers_of(const PostedSend& send) {
  if (send.sges.empty() || is_atomic(send.wr.opcode)) return 1;
  return std::max(1u, (send.sges.front().length + kMtu - 1) / kMtu);
}
uint64_t bit(uint32_t index) {
  return uint64_t{1} << (index % 64);
}

}  // namespace

void RcFabric::send_more(int host, int member, Qp& qp, End& e) {
  uint32_t begin = e.base;
  for (const Qp::Pending& pending : qp.pending_sends) {
    const PostedSend& posted = qp.sends[pending.index];
    const uint32_t numbers = numbers_of(posted), end = begin + numbers;
    const bool is_read = posted.wr.opcode == IBV_WR_RDMA_READ;
    while (e.next < end) {
      Packet packet{.host = host,
                    .member = member,
                    .source = qp.qp.qp_num,
                    .destination = qp.attr.dest_qp_num,
                    .from = nic(host, member).gid,
                    .to = wire::Gid::from_verbs(qp.attr.ah_attr.grh.dgid),
                    .psn = qp.attr.sq_psn,
                    .index = is_read ? begin : e.next,
                    .numbers = is_read ? numbers : 1,
                    .part = is_read ? 0 : e.next - begin,
                    .parts = is_read ? 1 : numbers,
                    .wr = posted.wr,
                    .sge = posted.sges.empty() ? ibv_sge{} : posted.sges.front()};
      packet.wr.next = nullptr;
      packet.wr.sg_list = nullptr;
      e.next = packet.index + packet.numbers;
      transmit(host, member, qp, e, packet);
    }
    begin = end;
  }
}

void RcFabric::transmit(int host, int member, Qp& qp, End& e, Packet packet) {
  if (packet.index == e.base || packet.index == e.acked) e.progress = time_.now();
  timer_arm(host, member, e);
  const int to = member_of(1 - host, packet.to);
  if (to < 0 || !nic(host, member).port_up || blocked(host, member, to)) return;
  time_.in(delay(), [this, packet, connection = e.connection] { arrive(packet, connection); });
}

void RcFabric::timer_arm(int host, int member, End& e) {
  if (std::exchange(e.timer, true)) return;
  time_.in(kRepeat, [this, host, member, connection = e.connection] {
    timer_fired(host, member, connection);
  });
}

void RcFabric::timer_fired(int host, int member, uint32_t connection) {
  End& e = end(host, member);
  if (e.connection != connection) return;
  e.timer = false;
  Qp* q = qp(host, member);
  if (q == nullptr || q->qp.state != IBV_QPS_RTS || q->pending_sends.empty()) return;
  if (e.next == e.base) return;
  if (time_.now() - e.progress >= kRepeat) {
    e.progress = time_.now();
    if (++e.repeats > kRepeats) return q->break_with(IBV_WC_RETRY_EXC_ERR);
    const bool awaits_data = has_answer(q->sends[q->pending_sends.front().index].wr.opcode);
    e.next = awaits_data ? e.base : std::max(e.base, e.acked);  // look() sends these again
  }
  timer_arm(host, member, e);
}

void RcFabric::answered(const Packet& packet, uint32_t connection, Answer kind, uint64_t data) {
  End& e = end(packet.host, packet.member);
  Qp* q = qp(packet.host, packet.member);
  if (dead_[static_cast<size_t>(packet.host)] || q == nullptr) return;
  if (!nic(packet.host, packet.member).port_up) return;
  look_at(packet.host, packet.member, *q);
  if (e.connection != connection || q->qp.state != IBV_QPS_RTS || packet.index < e.base) return;
  e.progress = time_.now();
  e.repeats = 0;
  if (kind == Answer::kNotReady) {
    if (std::exchange(e.waits, true)) return;  // copies of a packet make the NIC wait once
    time_.in(kNotReady, [this, packet, connection] {
      End& waiting = end(packet.host, packet.member);
      if (waiting.connection != connection) return;
      waiting.waits = false;
      if (packet.index < waiting.base) return;
      waiting.next = std::min(waiting.next, packet.index);
      waiting.progress = time_.now();
    });
    return;
  }
  if (has_answer(packet.wr.opcode)) {
    e.answered |= bit(packet.index);
    observer_.data_came(packet, data);
  }
  e.acked = std::max(e.acked, packet.index + packet.numbers);
  complete(*q, e);
}

// A request is complete when all its packets are acknowledged, a READ or atomic when its data is
// here, too.
void RcFabric::complete(Qp& q, End& e) {
  while (!q.pending_sends.empty()) {
    const Qp::Pending& oldest = q.pending_sends.front();
    const uint32_t end = e.base + numbers_of(q.sends[oldest.index]);
    if (end > e.acked) return;
    if (has_answer(q.sends[oldest.index].wr.opcode) && !(e.answered & bit(e.base))) return;
    e.answered &= ~bit(e.base);
    if (oldest.signaled) {
      (void)q.complete_send();
    } else {
      q.pending_sends.pop_front();
    }
    e.base = end;
    e.next = std::max(e.next, e.base);
  }
}

}  // namespace shift::sim
