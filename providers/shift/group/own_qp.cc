#include "group/own_qp.h"

#include "group/port.h"
#include "group/stock.h"

namespace shift::group {

void own_qp_to_state(ibv_qp* qp, ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  (void)stock->modify_qp(qp, &attr, IBV_QP_STATE);
}

bool own_qp_connect(ibv_qp* qp, const OwnQpLink& link) {
  own_qp_to_state(qp, IBV_QPS_RESET);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = kPortNumber;
  attr.qp_access_flags = link.access;
  if (stock->modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0) {
    return false;
  }
  attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = link.mtu;
  attr.dest_qp_num = link.peer_qpn;
  attr.rq_psn = link.rq_psn;
  attr.min_rnr_timer = 1;
  attr.max_dest_rd_atomic = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = kPortNumber;
  attr.ah_attr.grh.dgid = link.peer_gid.to_verbs();
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(link.gid_index);
  attr.ah_attr.grh.hop_limit = 64;
  if (stock->modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0) {
    return false;
  }
  if (!link.sends) return true;
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = link.sq_psn;
  attr.timeout = link.timeout;
  attr.retry_cnt = link.retries;
  attr.rnr_retry = 1;
  attr.max_rd_atomic = 1;
  return stock->modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0;
}

bool own_qp_connect(ibv_qp* qp, const ibv_qp* peer, const wire::Gid& gid, int gid_index,
                    unsigned access) {
  OwnQpLink link;
  link.peer_qpn = peer->qp_num;
  link.peer_gid = gid;
  link.gid_index = gid_index;
  link.access = access;
  return own_qp_connect(qp, link);
}

}  // namespace shift::group
