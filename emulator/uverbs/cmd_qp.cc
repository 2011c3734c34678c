// Queue pairs. The NIC has the state machine itself; this file translates the ABI to ibv_qp_attr.
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <bit>
#include <cerrno>

#include "fabric/gid.h"
#include "uverbs/command.h"
#include "uverbs/limits.h"
#include "uverbs/memory_check.h"

namespace cxemu {
namespace {

// These flags permit the device to put small data into completions, but do not demand it. It does
// not matter which register page rings the doorbell, either.
constexpr uint32_t kFlagsKnown =
    MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE | MLX5_QP_FLAG_UAR_PAGE_INDEX;

// The attributes of all services on RoCE. Alternate paths and rate limits are not supported.
constexpr uint32_t kAttributesKnown =
    IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY | IBV_QP_ACCESS_FLAGS |
    IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT |
    IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC |
    IBV_QP_MIN_RNR_TIMER | IBV_QP_SQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_CAP | IBV_QP_DEST_QPN;

int driver_check(const mlx5_ib_create_qp& driver) {
  if (driver.flags & ~kFlagsKnown) return EOPNOTSUPP;
  if (driver.sq_wqe_count > kQueueEntriesMax || driver.rq_wqe_count > kQueueEntriesMax)
    return EINVAL;
  if (driver.sq_wqe_count != 0 && !std::has_single_bit(driver.sq_wqe_count)) return EINVAL;
  if (driver.rq_wqe_count != 0 &&
      (!std::has_single_bit(driver.rq_wqe_count) || driver.rq_wqe_shift < 4 ||
       1u << std::min(driver.rq_wqe_shift, 31u) > kRecvDescriptorMax))
    return EINVAL;
  if (driver.buf_addr % 64 != 0 || driver.db_addr % 8 != 0) return EINVAL;
  return 0;
}

int capabilities_check(const ibv_qp_cap& cap, const mlx5_ib_create_qp& driver) {
  if (cap.max_send_wr > kQueueEntriesMax || cap.max_recv_wr > kQueueEntriesMax ||
      cap.max_send_sge > kSgeMax || cap.max_recv_sge > kSgeMax ||
      cap.max_inline_data > kSendDescriptorMax)
    return EINVAL;
  // The rings must be large enough for the promised capacities.
  if (cap.max_send_wr > driver.sq_wqe_count || cap.max_recv_wr > driver.rq_wqe_count) return EINVAL;
  return 0;
}

// Finds the objects that make up the queue pair. Extended reliable connections have one end each:
// XRC_SEND has no receive queue; XRC_RECV has only a domain, whose handle is in the field of the
// PD's.
int parts_find(const HandleTable& objects, const ib_uverbs_create_qp& request, QpParts* parts) {
  if (request.qp_type == IBV_QPT_XRC_RECV) {
    parts->xrcd = objects.find<XrcdObject>(request.pd_handle);
    return parts->xrcd != nullptr ? 0 : EINVAL;
  }
  parts->pd = objects.find<PdObject>(request.pd_handle);
  parts->send_cq = objects.find<CqObject>(request.send_cq_handle);
  if (parts->pd == nullptr || parts->send_cq == nullptr) return EINVAL;
  if (request.qp_type == IBV_QPT_XRC_SEND) return request.is_srq == 0 ? 0 : EINVAL;
  parts->recv_cq = objects.find<CqObject>(request.recv_cq_handle);
  if (parts->recv_cq == nullptr) return EINVAL;
  if (request.is_srq == 0) return 0;
  parts->srq = objects.find<SrqObject>(request.srq_handle);
  return parts->srq != nullptr && parts->srq->xrcd == nullptr ? 0 : EINVAL;
}

bool type_known(uint8_t type) {
  return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD ||
         type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV;
}

// Queues that this type of queue pair lacks have no capacity, whatever was requested.
void absent_queues_clear(const QpParts& parts, ibv_qp_cap* cap) {
  if (!parts.own_receives()) cap->max_recv_wr = cap->max_recv_sge = 0;
  if (parts.send_cq == nullptr) cap->max_send_wr = cap->max_send_sge = cap->max_inline_data = 0;
}

// Size of the receive ring, which comes first in the buffer. Without a ring the shift is
// meaningless and was not checked.
uint64_t receive_ring_bytes(const mlx5_ib_create_qp& driver) {
  return driver.rq_wqe_count == 0 ? 0 : uint64_t{driver.rq_wqe_count} << driver.rq_wqe_shift;
}

int rings_check(const mlx5_ib_create_qp& driver) {
  const uint64_t bytes = receive_ring_bytes(driver) + uint64_t{driver.sq_wqe_count} * kSendBlock;
  if (bytes != 0)
    if (const int error = memory_check(driver.buf_addr, bytes, true)) return error;
  return memory_check(driver.db_addr, 8, true);
}

QpConfig config_make(const ib_uverbs_create_qp& request, const mlx5_ib_create_qp& driver,
                     QpObject* object) {
  auto* buffer = reinterpret_cast<uint8_t*>(driver.buf_addr);
  const QpParts& parts = object->parts;
  ibv_qp_cap cap = {request.max_send_wr, request.max_recv_wr, request.max_send_sge,
                    request.max_recv_sge, request.max_inline_data};
  absent_queues_clear(parts, &cap);
  return {
      .type = static_cast<ibv_qp_type>(request.qp_type),
      .rq_buffer = buffer,
      // The library may lay out a ring that the queue pair does not use.
      .rq_wqe_count = parts.own_receives() ? driver.rq_wqe_count : 0,
      .rq_wqe_shift = driver.rq_wqe_shift,
      .sq_buffer = buffer + receive_ring_bytes(driver),
      .sq_wqe_count = driver.sq_wqe_count,
      .db = reinterpret_cast<volatile uint32_t*>(driver.db_addr),
      .uidx = driver.uidx,
      .user_handle = request.user_handle,
      .send_cq = parts.send_cq != nullptr ? parts.send_cq->cq : nullptr,
      .recv_cq = parts.recv_cq != nullptr ? parts.recv_cq->cq : nullptr,
      .pd = parts.pd != nullptr ? parts.pd->number : 0,
      .sq_sig_all = request.sq_sig_all != 0,
      .cap = cap,
      .sink = object,
      .srq = parts.srq != nullptr ? parts.srq->srq : nullptr,
      .xrcd = parts.xrcd != nullptr ? parts.xrcd->number : 0,
  };
}

int qp_create(Context& context, const ib_uverbs_create_qp& request, const CommandIo& io,
              ib_uverbs_create_qp_resp* answer) {
  if (!type_known(request.qp_type)) return EOPNOTSUPP;
  mlx5_ib_create_qp driver;
  if (!request_read(io.driver_in, &driver)) return EOPNOTSUPP;
  QpParts parts;
  if (const int error = parts_find(context.objects(), request, &parts)) return error;
  if (const int error = driver_check(driver)) return error;

  auto object = std::make_unique<QpObject>(parts);
  QpConfig config = config_make(request, driver, object.get());
  if (const int error = capabilities_check(config.cap, driver)) return error;
  // As many receives as the ring holds can be posted, and programs rely on this number.
  config.cap.max_recv_wr = config.rq_wqe_count;
  if (const int error = rings_check(driver)) return error;
  object->qp_type = request.qp_type;
  object->user_handle = request.user_handle;
  object->async = context.async();
  if (const int error = context.nic().qp_create(config, &object->qp)) return error;

  answer->qpn = context.nic().qp_number(object->qp);
  answer->max_send_wr = config.cap.max_send_wr;
  answer->max_recv_wr = config.cap.max_recv_wr;
  answer->max_send_sge = config.cap.max_send_sge;
  answer->max_recv_sge = config.cap.max_recv_sge;
  answer->max_inline_data = config.cap.max_inline_data;
  answer->qp_handle = context.objects().add(std::move(object));
  mlx5_ib_create_qp_resp driver_answer{};
  driver_answer.bfreg_index = 1;
  answer_write(io.driver_out, driver_answer);
  return 0;
}

int create_qp(Context& context, const CommandIo& io) {
  ib_uverbs_create_qp request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  ib_uverbs_create_qp_resp answer{};
  if (const int error = qp_create(context, request, io, &answer)) return error;
  answer_write(io.core_out, answer);
  return 0;
}

int create_qp_ex(Context& context, const CommandIo& io) {
  ib_uverbs_ex_create_qp request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  // There is no multicast, so no packet comes back to its sender.
  const uint32_t flags_allowed =
      request.qp_type == IBV_QPT_UD ? uint32_t{IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK} : 0;
  if (request.comp_mask != 0 || (request.create_flags & ~flags_allowed) != 0 ||
      request.source_qpn != 0)
    return EOPNOTSUPP;
  ib_uverbs_create_qp plain{};
  plain.user_handle = request.user_handle;
  plain.pd_handle = request.pd_handle;
  plain.send_cq_handle = request.send_cq_handle;
  plain.recv_cq_handle = request.recv_cq_handle;
  plain.srq_handle = request.srq_handle;
  plain.max_send_wr = request.max_send_wr;
  plain.max_recv_wr = request.max_recv_wr;
  plain.max_send_sge = request.max_send_sge;
  plain.max_recv_sge = request.max_recv_sge;
  plain.max_inline_data = request.max_inline_data;
  plain.sq_sig_all = request.sq_sig_all;
  plain.qp_type = request.qp_type;
  plain.is_srq = request.is_srq;
  ib_uverbs_ex_create_qp_resp answer{};
  if (const int error = qp_create(context, plain, io, &answer.base)) return error;
  answer.response_length = sizeof answer;
  answer_write(io.core_out, answer);
  return 0;
}

void address_write(const ibv_ah_attr& from, ib_uverbs_qp_dest* to) {
  memcpy(to->dgid, from.grh.dgid.raw, sizeof to->dgid);
  to->flow_label = from.grh.flow_label;
  to->dlid = from.dlid;
  to->sgid_index = from.grh.sgid_index;
  to->hop_limit = from.grh.hop_limit;
  to->traffic_class = from.grh.traffic_class;
  to->sl = from.sl;
  to->src_path_bits = from.src_path_bits;
  to->static_rate = from.static_rate;
  to->is_global = from.is_global;
  to->port_num = from.port_num;
}

ibv_ah_attr address_read(const ib_uverbs_qp_dest& from) {
  ibv_ah_attr to{};
  memcpy(to.grh.dgid.raw, from.dgid, sizeof from.dgid);
  to.grh.flow_label = from.flow_label;
  to.dlid = from.dlid;
  to.grh.sgid_index = from.sgid_index;
  to.grh.hop_limit = from.hop_limit;
  to.grh.traffic_class = from.traffic_class;
  to.sl = from.sl;
  to.src_path_bits = from.src_path_bits;
  to.static_rate = from.static_rate;
  to.is_global = from.is_global;
  to.port_num = from.port_num;
  return to;
}

int query_qp(Context& context, const CommandIo& io) {
  ib_uverbs_query_qp request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  const auto* object = context.objects().find<QpObject>(request.qp_handle);
  if (object == nullptr) return EINVAL;
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  if (const int error = context.nic().qp_query(object->qp, &attr, &init)) return error;
  ib_uverbs_query_qp_resp answer{};
  address_write(attr.ah_attr, &answer.dest);
  answer.max_send_wr = init.cap.max_send_wr;
  answer.max_recv_wr = init.cap.max_recv_wr;
  answer.max_send_sge = init.cap.max_send_sge;
  answer.max_recv_sge = init.cap.max_recv_sge;
  answer.max_inline_data = init.cap.max_inline_data;
  answer.qkey = attr.qkey;
  answer.rq_psn = attr.rq_psn;
  answer.sq_psn = attr.sq_psn;
  answer.dest_qp_num = attr.dest_qp_num;
  answer.qp_access_flags = attr.qp_access_flags;
  answer.pkey_index = attr.pkey_index;
  answer.qp_state = static_cast<uint8_t>(attr.qp_state);
  answer.cur_qp_state = static_cast<uint8_t>(attr.qp_state);
  answer.path_mtu = static_cast<uint8_t>(attr.path_mtu);
  answer.path_mig_state = static_cast<uint8_t>(attr.path_mig_state);
  answer.sq_draining = attr.sq_draining;
  answer.max_rd_atomic = attr.max_rd_atomic;
  answer.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  answer.min_rnr_timer = attr.min_rnr_timer;
  answer.port_num = attr.port_num;
  answer.timeout = attr.timeout;
  answer.retry_cnt = attr.retry_cnt;
  answer.rnr_retry = attr.rnr_retry;
  answer.sq_sig_all = init.sq_sig_all != 0;
  answer_write(io.core_out, answer);
  return 0;
}

int address_check(const FabricNic& nic, const ib_uverbs_qp_dest& address) {
  // RoCE has no local identifiers: the address must be global, with a source from our own table.
  if (address.is_global == 0 || address.port_num != 1 || address.sgid_index >= kGidCount ||
      gid_is_empty(nic, address.sgid_index))
    return EINVAL;
  return 0;
}

// Programs treat both ends of extended reliable connections like complete ones; the kernel ignores
// the attributes of the missing end.
uint32_t attributes_of_end(uint8_t type, uint32_t mask) {
  if (type == IBV_QPT_XRC_SEND)
    return mask & ~uint32_t{IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER};
  if (type == IBV_QPT_XRC_RECV)
    return mask & ~uint32_t{IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY};
  return mask;
}

int qp_modify(Context& context, const ib_uverbs_modify_qp& request) {
  if (request.attr_mask & ~kAttributesKnown) return EOPNOTSUPP;
  const auto* object = context.objects().find<QpObject>(request.qp_handle);
  if (object == nullptr) return EINVAL;
  const uint32_t mask = attributes_of_end(object->qp_type, request.attr_mask);
  if ((mask & IBV_QP_STATE) && request.qp_state > IBV_QPS_ERR) return EINVAL;
  if ((mask & IBV_QP_CUR_STATE) && request.cur_qp_state > IBV_QPS_ERR) return EINVAL;
  if ((mask & IBV_QP_PATH_MTU) && request.path_mtu > IBV_MTU_4096) return EINVAL;
  if ((mask & IBV_QP_PORT) && request.port_num != 1) return EINVAL;
  if (mask & IBV_QP_AV)
    if (const int error = address_check(context.fabric_nic(), request.dest)) return error;
  ibv_qp_attr attr{};
  attr.qp_state = static_cast<ibv_qp_state>(request.qp_state);
  attr.cur_qp_state = static_cast<ibv_qp_state>(request.cur_qp_state);
  attr.path_mtu = static_cast<ibv_mtu>(request.path_mtu);
  attr.path_mig_state = static_cast<ibv_mig_state>(request.path_mig_state);
  attr.qkey = request.qkey;
  attr.rq_psn = request.rq_psn;
  attr.sq_psn = request.sq_psn;
  attr.dest_qp_num = request.dest_qp_num;
  attr.qp_access_flags = request.qp_access_flags;
  attr.ah_attr = address_read(request.dest);
  attr.pkey_index = request.pkey_index;
  attr.en_sqd_async_notify = request.en_sqd_async_notify;
  attr.max_rd_atomic = request.max_rd_atomic;
  attr.max_dest_rd_atomic = request.max_dest_rd_atomic;
  attr.min_rnr_timer = request.min_rnr_timer;
  attr.port_num = request.port_num;
  attr.timeout = request.timeout;
  attr.retry_cnt = request.retry_cnt;
  attr.rnr_retry = request.rnr_retry;
  return context.nic().qp_modify(object->qp, attr, static_cast<int>(mask));
}

int modify_qp(Context& context, const CommandIo& io) {
  ib_uverbs_modify_qp request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  return qp_modify(context, request);
}

int modify_qp_ex(Context& context, const CommandIo& io) {
  ib_uverbs_ex_modify_qp request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  if (const int error = qp_modify(context, request.base)) return error;
  ib_uverbs_ex_modify_qp_resp answer{};
  answer.response_length = sizeof answer;
  answer_write(io.core_out, answer);
  if (!io.driver_out.empty()) memset(io.driver_out.data(), 0, io.driver_out.size());
  return 0;
}

int destroy_qp(Context& context, const CommandIo& io) {
  ib_uverbs_destroy_qp request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  auto* object = context.objects().find<QpObject>(request.qp_handle);
  if (object == nullptr) return EINVAL;
  const int error = context.nic().qp_destroy(object->qp);
  if (error != 0 && !context.nic().dead()) return error;
  ib_uverbs_destroy_qp_resp answer{};
  answer.events_reported =
      object->async_events -
      object->async->purge(sizeof(ib_uverbs_async_event_desc), object->user_handle);
  context.objects().remove(request.qp_handle);
  answer_write(io.core_out, answer);
  return 0;
}

constexpr size_t kQpDriverIn = offsetof(mlx5_ib_create_qp, bfreg_index);

constexpr Command kQpCommands[] = {
    {IB_USER_VERBS_CMD_CREATE_QP, "create_qp", sizeof(ib_uverbs_create_qp),
     sizeof(ib_uverbs_create_qp_resp), kQpDriverIn, sizeof(uint32_t), create_qp},
    {IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_QP, "create_qp_ex",
     offsetof(ib_uverbs_ex_create_qp, create_flags), sizeof(ib_uverbs_ex_create_qp_resp),
     kQpDriverIn, sizeof(uint32_t), create_qp_ex},
    {IB_USER_VERBS_CMD_QUERY_QP, "query_qp", sizeof(ib_uverbs_query_qp),
     sizeof(ib_uverbs_query_qp_resp), 0, 0, query_qp},
    {IB_USER_VERBS_CMD_MODIFY_QP, "modify_qp", sizeof(ib_uverbs_modify_qp), 0, 0, 0, modify_qp},
    {IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_MODIFY_QP, "modify_qp_ex",
     sizeof(ib_uverbs_modify_qp), 0, 0, 0, modify_qp_ex},
    {IB_USER_VERBS_CMD_DESTROY_QP, "destroy_qp", sizeof(ib_uverbs_destroy_qp),
     sizeof(ib_uverbs_destroy_qp_resp), 0, 0, destroy_qp, kWorksWhenDead},
};

}  // namespace

std::span<const Command> qp_commands() {
  return kQpCommands;
}

}  // namespace cxemu
