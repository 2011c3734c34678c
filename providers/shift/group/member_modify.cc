#include "group/member_modify.h"

#include <mutex>

#include "group/group.h"
#include "group/member_qp.h"
#include "group/stock.h"
#include "util/planted.h"

namespace shift::group {
namespace {

void remember(Group& group, const ibv_qp_attr& attr, int mask) {
  std::lock_guard lock(group.attr_mutex);
  ibv_qp_attr& to = group.life.asked.attr;
  if (mask & IBV_QP_STATE) to.qp_state = to.cur_qp_state = attr.qp_state;
  if (mask & IBV_QP_PKEY_INDEX) to.pkey_index = attr.pkey_index;
  if (mask & IBV_QP_PORT) to.port_num = attr.port_num;
  if (mask & IBV_QP_ACCESS_FLAGS) to.qp_access_flags = attr.qp_access_flags;
  if (mask & IBV_QP_AV) to.ah_attr = attr.ah_attr;
  if (mask & IBV_QP_PATH_MTU) to.path_mtu = attr.path_mtu;
  if (mask & IBV_QP_DEST_QPN) to.dest_qp_num = attr.dest_qp_num;
  if (mask & IBV_QP_RQ_PSN) to.rq_psn = attr.rq_psn;
  if (mask & IBV_QP_SQ_PSN) to.sq_psn = attr.sq_psn;
  if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) to.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  if (mask & IBV_QP_MAX_QP_RD_ATOMIC) to.max_rd_atomic = attr.max_rd_atomic;
  if (mask & IBV_QP_MIN_RNR_TIMER) to.min_rnr_timer = attr.min_rnr_timer;
  if (mask & IBV_QP_TIMEOUT) to.timeout = attr.timeout;
  if (mask & IBV_QP_RETRY_CNT) to.retry_cnt = attr.retry_cnt;
  if (mask & IBV_QP_RNR_RETRY) to.rnr_retry = attr.rnr_retry;
  group.life.asked.mask |= mask;
}

}  // namespace

int application_modify(Group& group, int member, const ibv_qp_attr& attr, int mask) {
  std::lock_guard lock(group.modify_mutex[member]);
  const bool to_rts =
      (mask & IBV_QP_STATE) && attr.qp_state == IBV_QPS_RTS && (mask & IBV_QP_SQ_PSN);
  bool ours;
  {
    std::lock_guard attr_lock(group.attr_mutex);
    ours = group.life.members[member].last_psn.has_value();
  }
  if (to_rts && ours) {
    // The path was changed before the application brought its QP to RTS. The QP has a connection
    // that the layer made, with a start PSN of its own.
    remember(group, attr, mask);
    return start_sending(group, member);
  }
  if (member == kDefault && group.life.unconnected) {
    remember(group, attr, mask);
    return 0;
  }
  ibv_qp_attr real = attr;
  // A peer without SHIFT has no other path, so the application's own patience counts.
  if (group.life.peer_present || SHIFT_PLANT(patience_always_bounded)) bound_patience(real);
  if (int error = stock->modify_qp(group.real[member], &real, mask)) return error;
  remember(group, attr, mask);
  if (to_rts) group.life.members[member].can_send = true;
  return 0;
}

void application_note(Group& group, const ibv_qp_attr& attr, int mask) {
  remember(group, attr, mask);
}

void count_packets(Group& group) {
  SendQueue& send = group.send;
  std::lock_guard lock(group.attr_mutex);
  if (!group.asks_responder() || send.journal.head() != 0) return;  // too late to count
  send.journal.count_packets(mtu_bytes(group.life.asked.attr.path_mtu));
  const uint32_t psn = group.life.asked.attr.sq_psn & kPsnMask;
  // The connection is unknown if the group has left its first path before it sent anything; then
  // the next round sets it.
  const bool is_original = !group.life.members[kDefault].last_psn &&
                           group.life.path.member == kDefault && !group.life.unconnected;
  send.sent = {.known = is_original, .begin = psn, .psn = psn};
}

}  // namespace shift::group
