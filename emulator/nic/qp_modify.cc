// The state machine of ibv_modify_qp: which attributes each transition of each service requires and
// allows (IBA 11.2.5.2, table 91, as in the kernel's check), and their ranges.
#include <cerrno>
#include <span>

#include "nic/nic_model.h"
#include "nic/planted.h"

namespace cxemu {

namespace {

struct Transition {
  ibv_qp_state from, to;
  int required, optional;
};

constexpr int kPath = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kConnect = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kRtrOptional = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
// Attributes of the side that executes requests, and of the side that sends them.
constexpr int kResponds = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRequests =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kRts = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | kPath;
constexpr int kSqd = IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_AV | kPath;

// Every state may also change to RESET and to ERR, without attributes.
constexpr Transition kRcTransitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kInit, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kInit},
    {IBV_QPS_INIT, IBV_QPS_RTR, kConnect | kResponds, kRtrOptional},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN | kRequests, kRts | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, kRts | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, kRts | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, kSqd | IBV_QP_PORT | kRequests | kResponds},
};

constexpr Transition kUcTransitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kInit, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kInit},
    {IBV_QPS_INIT, IBV_QPS_RTR, kConnect, kRtrOptional},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, kRts},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, kRts},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, kRts},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, kSqd},
    {IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},
};

constexpr int kUdInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
constexpr int kUdRts = IBV_QP_CUR_STATE | IBV_QP_QKEY;
constexpr Transition kUdTransitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kUdInit, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kUdInit},
    {IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, kUdRts},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, kUdRts},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, kUdRts},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_SQE, IBV_QPS_RTS, 0, kUdRts},
};

constexpr Transition kXrcSendTransitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kInit, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kInit},
    {IBV_QPS_INIT, IBV_QPS_RTR, kConnect, kRtrOptional},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN | kRequests, kRts},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, kRts},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, kRts},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, kSqd | IBV_QP_PORT | kRequests},
};

constexpr Transition kXrcRecvTransitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kInit, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kInit},
    {IBV_QPS_INIT, IBV_QPS_RTR, kConnect | kResponds, kRtrOptional},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT, kRts | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, kRts | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, kRts | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, kSqd | IBV_QP_PORT | IBV_QP_TIMEOUT | kResponds},
};

std::span<const Transition> transitions_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_UC:
      return kUcTransitions;
    case IBV_QPT_UD:
      return kUdTransitions;
    case IBV_QPT_XRC_SEND:
      return kXrcSendTransitions;
    case IBV_QPT_XRC_RECV:
      return kXrcRecvTransitions;
    default:
      return kRcTransitions;
  }
}

bool mask_ok(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) {
  const int given = mask & ~IBV_QP_STATE;
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) {
    return (given & ~IBV_QP_CUR_STATE) == 0;
  }
  for (const Transition& transition : transitions_of(type)) {
    if (transition.to != to) continue;
    if (transition.from != from && !CXEMU_PLANT(transitions_from_anywhere)) continue;
    if (CXEMU_PLANT(attributes_unneeded)) return true;
    return (given & transition.required) == transition.required &&
           (given & ~(transition.required | transition.optional)) == 0;
  }
  return false;
}

bool values_ok(const ibv_qp_attr& attr, int mask) {
  const auto has = [mask](int bit) { return (mask & bit) != 0; };
  constexpr int kMaxReads = 16;
  if (CXEMU_PLANT(attribute_ranges_unchecked)) return true;
  if (has(IBV_QP_PORT) && attr.port_num != 1) return false;
  if (has(IBV_QP_PKEY_INDEX) && attr.pkey_index != 0) return false;
  if (has(IBV_QP_PATH_MTU) && (attr.path_mtu < IBV_MTU_256 || attr.path_mtu > IBV_MTU_4096)) {
    return false;
  }
  if (has(IBV_QP_MAX_QP_RD_ATOMIC) && attr.max_rd_atomic > kMaxReads) return false;
  if (has(IBV_QP_MAX_DEST_RD_ATOMIC) && attr.max_dest_rd_atomic > kMaxReads) return false;
  if (has(IBV_QP_TIMEOUT) && attr.timeout > 31) return false;
  if (has(IBV_QP_RETRY_CNT) && attr.retry_cnt > 7) return false;
  if (has(IBV_QP_RNR_RETRY) && attr.rnr_retry > 7) return false;
  if (has(IBV_QP_MIN_RNR_TIMER) && attr.min_rnr_timer > 31) return false;
  if (has(IBV_QP_DEST_QPN) && attr.dest_qp_num > 0xffffff) return false;
  // RoCE addresses always have a GRH.
  if (has(IBV_QP_AV) && attr.ah_attr.is_global == 0) return false;
  return true;
}

}  // namespace

int qp_modify_check(const Qp& qp, const ibv_qp_attr& attr, int mask, ibv_qp_state* next) {
  if ((mask & IBV_QP_CUR_STATE) != 0 && attr.cur_qp_state != qp.state) return EINVAL;
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr.qp_state : qp.state;
  if (!mask_ok(qp.config.type, qp.state, to, mask) || !values_ok(attr, mask)) return EINVAL;
  *next = to;
  return 0;
}

}  // namespace cxemu
