#include "sim/rc_fabric.h"

#include <algorithm>

#include "group/completion.h"
#include "group/packets.h"

namespace shift::sim {

using group::PostedRecv;
using group::PostedSend;

void RcFabric::block(int host, int from, int to, bool blocked) {
  blocked_[static_cast<size_t>(host)][from][to] = blocked;
}

bool RcFabric::carries(int a, int b) const {
  return nic(0, a).port_up && nic(1, b).port_up && !blocked(0, a, b) && !blocked(1, b, a);
}

int RcFabric::member_of(int host, const wire::Gid& gid) const {
  for (int m = 0; m < worlds_[static_cast<size_t>(host)]->context.member_count; m++) {
    if (nic(host, m).gid == gid) return m;
  }
  return -1;
}

void RcFabric::look() {
  for (int host = 0; host < 2; host++) {
    if (dead_[static_cast<size_t>(host)]) continue;
    const int members = worlds_[static_cast<size_t>(host)]->context.member_count;
    for (int m = 0; m < members; m++) {
      if (Qp* made = qp(host, m)) look_at(host, m, *made);
    }
  }
}

void RcFabric::look_at(int host, int member, Qp& qp) {
  End& e = end(host, member);
  // This is what query_qp returns.
  qp.expected_psn = (qp.attr.rq_psn + e.expected) & group::kPsnMask;
  const auto seen = [&] {
    return End::Seen{qp.walk.size(), qp.sends.size(), qp.recvs.size(), qp.pending_sends.size(),
                     e.base,         e.next,          qp.qp.state};
  };
  if (seen() == e.seen) return;
  if (e.walked != qp.walk.size()) {
    for (; e.walked < qp.walk.size(); e.walked++) {
      if (qp.walk[e.walked] != IBV_QPS_RESET) continue;
      e.connection++;
      e.base = e.acked = e.next = e.expected = 0;
      e.answered = 0;
      e.repeats = 0;
      e.timer = false;
      e.found.clear();
    }
    e.fenced = qp.walk.back() == IBV_QPS_ERR;
  }
  qp.expected_psn = (qp.attr.rq_psn + e.expected) & group::kPsnMask;
  check_posted(host, member, qp, e);
  if (qp.qp.state == IBV_QPS_RTS) send_more(host, member, qp, e);
  e.seen = seen();
}

// The layer must post nothing on a path that it has left, and only with the keys of that NIC.
void RcFabric::check_posted(int host, int member, Qp& qp, End& e) {
  const group::Group& group = *groups_[static_cast<size_t>(host)];
  const auto is_own = [&](uint64_t wr_id) { return group::has_own_number(wr_id, group); };
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
      observer_.fault_seen("keys: a request with a foreign one", nullptr, host, member);
  }
  for (; e.receives_seen < qp.recvs.size(); e.receives_seen++) {
    const PostedRecv& receive = qp.recvs[e.receives_seen];
    if (is_own(receive.wr_id)) continue;
    if (e.fenced && e.receives_seen >= qp.recvs_at_error)
      observer_.fault_seen("C8: a receive on a path that was left", nullptr, host, member);
    if (!fits(receive.sges))
      observer_.fault_seen("keys: a receive with a foreign one", nullptr, host, member);
  }
}

}  // namespace shift::sim
