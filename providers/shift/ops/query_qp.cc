// Answers queries about a QP.
#include "ops/query_qp.h"

#include <cerrno>
#include <memory>
#include <mutex>

#include "ops/entry.h"

namespace shift::ops {

using group::Group;
using group::kDefault;

group::Route send_route(Group* g) {
  std::lock_guard send(g->send.mutex);
  return g->send.route;
}

int carrying_member(Group* g) {
  std::lock_guard lock(g->recv.mutex);
  if (g->recv.route == group::Route::kParked && !group::builds_on(&g->send))
    return group::kNoMember;
  return std::max<int>(g->life.path.member, kDefault);
}

namespace {

// Answers for a NIC: with what the application has asked for.
void answer_as_asked(Group* g, ibv_qp_attr* attr, ibv_qp_init_attr* init) {
  std::lock_guard lock(g->attr_mutex);
  *attr = g->life.asked.attr;
  attr->qp_state = attr->cur_qp_state = g->handle()->state;
  *init = {};
  init->qp_type = IBV_QPT_RC;
  init->sq_sig_all = g->sq_sig_all;
}

// Asks the NIC that carries the group's data. The call does not wait for a path: an outage has no
// bound while nothing waits for its end.
int ask_nic(Group* g, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
  const int member = carrying_member(g);
  if (member == group::kNoMember) {
    answer_as_asked(g, attr, init);
    return 0;
  }
  if (member == kDefault && !group::is_late(*g->context, member))
    return stock->query_qp(g->real[member], attr, mask, init);
  struct Answer {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    int error = 0;
  };
  const auto answer = std::make_shared<Answer>();
  const auto ask = [answer, mask, member, held = group::Held(g)] {
    answer->error = stock->query_qp(held->real[member], &answer->attr, mask, &answer->init);
  };
  if (!on_command_thread(g, member, ask)) {
    answer_as_asked(g, attr, init);
    return 0;
  }
  *attr = answer->attr;
  *init = answer->init;
  return answer->error;
}

// Whether errors of the group's path are held back. The NIC may have brought its QP to ERR then, or
// the layer may do so while the NIC is asked.
bool holds_errors_back(Group* g) {
  if (send_route(g) == group::Route::kError) return false;
  const group::CqLock lock(*g);
  const int member = g->life.path.member;
  return member == group::kNoMember ||
         g->life.errors.members[member].accept == group::Accept::kGuard;
}

}  // namespace

int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) noexcept {
  Group* g = Group::from(qp);
  const int error = ask_nic(g, attr, mask, init);
  const bool is_gone = error == EIO || error == ENODEV;
  const bool holds_back = holds_errors_back(g);
  if (error != 0 && !(is_gone && holds_back)) return error;
  if (error != 0) answer_as_asked(g, attr, init);
  if (send_route(g) == group::Route::kError) attr->qp_state = attr->cur_qp_state = IBV_QPS_ERR;
  // The application sees the state that it has set, and no sign of a fault that is masked (C9).
  if (holds_back) attr->qp_state = attr->cur_qp_state = qp->state;
  qp->state = attr->qp_state;
  {
    // The application sees what it set, and not what the layer made of it (C9).
    std::lock_guard lock(g->attr_mutex);
    const ibv_qp_attr& asked = g->life.asked.attr;
    if (g->life.asked.mask & IBV_QP_TIMEOUT) attr->timeout = asked.timeout;
    if (g->life.asked.mask & IBV_QP_RETRY_CNT) attr->retry_cnt = asked.retry_cnt;
    if (g->life.path.off_default) {
      attr->dest_qp_num = asked.dest_qp_num;
      attr->ah_attr = asked.ah_attr;
      attr->path_mtu = asked.path_mtu;
      attr->rq_psn = asked.rq_psn;
      attr->sq_psn = asked.sq_psn;
    }
  }
  attr->cap = g->cap;
  init->qp_context = qp->qp_context;
  init->send_cq = qp->send_cq;
  init->recv_cq = qp->recv_cq;
  init->srq = qp->srq;
  init->cap = g->cap;
  return 0;
}

// Off the default, faults of the default NIC do not concern the group, protected or not.
bool is_masked(Group& g) {
  return holds_errors_back(&g) ||
         (g.life.path.off_default && send_route(&g) != group::Route::kError);
}

}  // namespace shift::ops
