#include "sim/rc_fabric.h"

#include <algorithm>

#include "group/completion.h"
#include "group/journal.h"

namespace shift::sim {

using group::FakeNic;
using group::is_atomic;
using group::is_notification;
using group::PostedRecv;
using group::PostedSend;

namespace {

bool has_answer(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
}
bool names_memory(const ibv_send_wr& wr) {
  return wr.num_sge > 0 && wr.opcode != IBV_WR_SEND && wr.opcode != IBV_WR_SEND_WITH_IMM;
}
uint32_t rkey_of(const ibv_send_wr& wr) {
  return is_atomic(wr.opcode) ? wr.wr.atomic.rkey : wr.wr.rdma.rkey;
}
uint64_t bit(uint32_t index) {
  return uint64_t{1} << (index % 64);
}

}  // namespace

void RcFabric::block(int host, int from, int to, bool blocked) {
  blocked_[static_cast<size_t>(host)][static_cast<size_t>(from)][static_cast<size_t>(to)] = blocked;
}

bool RcFabric::carries(int a, int b) const {
  return nic(0, a).port_up && nic(1, b).port_up && !blocked(0, a, b) && !blocked(1, b, a);
}

RcFabric::Qp* RcFabric::qp(int host, int member) const {
  const auto& qps = nic(host, member).qps;
  return qps.empty() ? nullptr : qps.begin()->second.get();
}

int RcFabric::member_of(int host, const wire::Gid& gid) const {
  for (int m = 0; m < worlds_[static_cast<size_t>(host)]->context.members; m++) {
    if (nic(host, m).gid == gid) return m;
  }
  return -1;
}

void RcFabric::look() {
  for (int host = 0; host < 2; host++) {
    if (dead_[static_cast<size_t>(host)]) continue;
    const int members = worlds_[static_cast<size_t>(host)]->context.members;
    for (int m = 0; m < members; m++) {
      if (Qp* made = qp(host, m)) look_at(host, m, *made);
    }
  }
}

void RcFabric::look_at(int host, int member, Qp& qp) {
  End& e = end(host, member);
  if (e.walked != qp.walk.size()) {
    for (; e.walked < qp.walk.size(); e.walked++) {
      if (qp.walk[e.walked] != IBV_QPS_RESET) continue;
      e.connection++;
      e.base = e.next = e.expected = 0;
      e.answered = 0;
      e.repeats = 0;
      e.timer = false;
    }
    e.fenced = qp.walk.back() == IBV_QPS_ERR;
  }
  check_posted(host, member, qp, e);
  if (qp.qp.state != IBV_QPS_RTS) return;
  const auto end_of_queue = e.base + static_cast<uint32_t>(qp.pending_sends.size());
  while (e.next < end_of_queue) transmit(host, member, qp, e, e.next++);
}

// What the layer gives to a NIC: never anything on a path it has left, always that NIC's keys.
void RcFabric::check_posted(int host, int member, Qp& qp, End& e) {
  const uint64_t tag = worlds_[static_cast<size_t>(host)]->context.groups.front()->tag;
  const auto is_own = [&](uint64_t wr_id) { return wr_id - tag <= group::kProbeTag; };
  const auto fits = [&](const std::vector<ibv_sge>& sges) {
    return std::ranges::all_of(
        sges, [&](const ibv_sge& sge) { return sge.lkey == group::lkey_on(member, group::kLkey); });
  };
  for (; e.sends_seen < qp.sends.size(); e.sends_seen++) {
    const PostedSend& send = qp.sends[e.sends_seen];
    if (is_own(send.wr.wr_id)) continue;
    if (e.fenced && e.sends_seen >= qp.sends_at_error)
      observer_.fault_seen("C8: a request on a path that was left", nullptr, host, member);
    if (!fits(send.sges))
      observer_.fault_seen("a request with a foreign key", nullptr, host, member);
  }
  for (; e.receives_seen < qp.recvs.size(); e.receives_seen++) {
    const PostedRecv& receive = qp.recvs[e.receives_seen];
    if (is_own(receive.wr_id)) continue;
    if (e.fenced && e.receives_seen >= qp.recvs_at_error)
      observer_.fault_seen("C8: a receive on a path that was left", nullptr, host, member);
    if (!fits(receive.sges))
      observer_.fault_seen("a receive with a foreign key", nullptr, host, member);
  }
}

void RcFabric::transmit(int host, int member, Qp& qp, End& e, uint32_t index) {
  const Qp::Pending& pending = qp.pending_sends[index - e.base];
  const PostedSend& posted = qp.sends[pending.index];
  Packet packet{host,
                member,
                qp.qp.qp_num,
                qp.attr.dest_qp_num,
                nic(host, member).gid,
                wire::Gid::from_verbs(qp.attr.ah_attr.grh.dgid),
                qp.attr.sq_psn,
                index,
                posted.wr,
                posted.sges.empty() ? ibv_sge{} : posted.sges.front()};
  packet.wr.next = nullptr;
  packet.wr.sg_list = nullptr;
  if (e.next == e.base + 1 || index == e.base) e.progress = time_.now();
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
    e.next = e.base;  // look() sends them again
  }
  timer_arm(host, member, e);
}

// `connection` is the sender's own, to which the answer goes.
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
    if (!execute(packet, member, *q, &data)) {
      return answer(packet, member, connection, Answer::kNotReady, 0);
    }
    e.expected++;
  } else if (packet.wr.opcode == IBV_WR_RDMA_READ) {
    data = observer_.memory_read(host, packet.wr.wr.rdma.remote_addr);
  }
  answer(packet, member, connection, Answer::kAck, data);
}

// False: there is no receive for it.
bool RcFabric::execute(const Packet& packet, int member, Qp& q, uint64_t* data) {
  const int host = 1 - packet.host;
  if (names_memory(packet.wr) && rkey_of(packet.wr) != group::rkey_on(member, group::kRkey)) {
    observer_.fault_seen("a request names memory by a foreign key", &packet, host, member);
  }
  const PostedRecv* receive = nullptr;
  if (is_notification(packet.wr.opcode)) {
    if (q.pending_recvs.empty()) return false;
    const uint64_t wr_id = q.pending_recvs.front();
    for (size_t i = q.recvs.size(); i > 0 && receive == nullptr; i--) {
      if (q.recvs[i - 1].wr_id == wr_id) receive = &q.recvs[i - 1];
    }
    (void)q.complete_recv(8);
    ibv_wc& wc = q.recv_cq->waiting.back();
    if (packet.wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    if (packet.wr.opcode != IBV_WR_SEND) {
      wc.wc_flags |= IBV_WC_WITH_IMM;
      wc.imm_data = packet.wr.imm_data;
    }
  }
  observer_.executed(packet, receive);
  if (packet.wr.opcode == IBV_WR_RDMA_READ) {
    *data = observer_.memory_read(host, packet.wr.wr.rdma.remote_addr);
  }
  return true;
}

void RcFabric::answer(const Packet& packet, int from, uint32_t connection, Answer kind,
                      uint64_t data) {
  if (blocked(1 - packet.host, from, packet.member)) return;
  time_.in(delay(),
           [this, packet, connection, kind, data] { answered(packet, connection, kind, data); });
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
    time_.in(kNotReady, [this, packet, connection] {
      End& waiting = end(packet.host, packet.member);
      if (waiting.connection != connection || packet.index < waiting.base) return;
      waiting.next = std::min(waiting.next, packet.index);
      waiting.progress = time_.now();
    });
    return;
  }
  if (has_answer(packet.wr.opcode)) {
    e.answered |= bit(packet.index);
    observer_.read_done(packet, data);
  }
  complete(*q, e, packet.index + 1);
}

// Everything before `upto` is acknowledged; but a READ is over only when its data is here.
void RcFabric::complete(Qp& q, End& e, uint32_t upto) {
  while (e.base < upto && !q.pending_sends.empty()) {
    const Qp::Pending& oldest = q.pending_sends.front();
    if (has_answer(q.sends[oldest.index].wr.opcode) && !(e.answered & bit(e.base))) return;
    e.answered &= ~bit(e.base);
    if (oldest.signaled) {
      (void)q.complete_send();
    } else {
      q.pending_sends.pop_front();
    }
    e.base++;
    e.next = std::max(e.next, e.base);
  }
}

}  // namespace shift::sim
