// A verbs program for tests, all inside one process: datagrams that are answered by means of their
// completions, and shared receive queues with their events. It prints "ok", or what went wrong.
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr uint32_t kQkey = 0x12345;
constexpr uint32_t kGrh = 40;
constexpr uint32_t kSize = 4096;

#define DEMAND(condition)                                             \
  do {                                                                \
    if (!(condition)) {                                               \
      printf("line %d: %s, errno %d\n", __LINE__, #condition, errno); \
      exit(1);                                                        \
    }                                                                 \
  } while (false)

struct Device {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  std::vector<uint8_t> memory = std::vector<uint8_t>(4 * kSize);

  ibv_sge sge(uint32_t offset, uint32_t length) const {
    return {reinterpret_cast<uint64_t>(memory.data() + offset), length, mr->lkey};
  }
};

Device device_open() {
  Device device;
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  DEMAND(count > 0);
  device.context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  DEMAND(device.context != nullptr);
  device.pd = ibv_alloc_pd(device.context);
  device.cq = ibv_create_cq(device.context, 64, nullptr, nullptr, 0);
  DEMAND(device.pd != nullptr && device.cq != nullptr);
  device.mr =
      ibv_reg_mr(device.pd, device.memory.data(), device.memory.size(), IBV_ACCESS_LOCAL_WRITE);
  DEMAND(device.mr != nullptr);
  return device;
}

void device_close(Device* device) {
  DEMAND(ibv_dereg_mr(device->mr) == 0);
  DEMAND(ibv_destroy_cq(device->cq) == 0);
  DEMAND(ibv_dealloc_pd(device->pd) == 0);
  DEMAND(ibv_close_device(device->context) == 0);
}

ibv_qp* qp_create(const Device& device, ibv_qp_type type, ibv_srq* srq = nullptr) {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = device.cq;
  init.srq = srq;
  init.cap = {16, srq == nullptr ? 16u : 0u, 1, srq == nullptr ? 2u : 0u, 0};
  init.qp_type = type;
  init.sq_sig_all = 1;
  ibv_qp* qp = ibv_create_qp(device.pd, &init);
  DEMAND(qp != nullptr);
  return qp;
}

ibv_wc completion_take(const Device& device, ibv_wc_status status = IBV_WC_SUCCESS) {
  ibv_wc wc{};
  while (ibv_poll_cq(device.cq, 1, &wc) == 0) {
  }
  if (wc.status != status) printf("status %s\n", ibv_wc_status_str(wc.status));
  DEMAND(wc.status == status);
  return wc;
}

// ---- Datagrams

ibv_qp* datagram_qp(const Device& device) {
  ibv_qp* qp = qp_create(device, IBV_QPT_UD);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = kQkey;
  DEMAND(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) ==
         0);
  attr.qp_state = IBV_QPS_RTR;
  DEMAND(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
  attr.qp_state = IBV_QPS_RTS;
  DEMAND(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
  return qp;
}

void receive_post(const Device& device, ibv_qp* qp, uint32_t offset) {
  ibv_sge sge = device.sge(offset, kSize);
  ibv_recv_wr wr{}, *bad;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  DEMAND(ibv_post_recv(qp, &wr, &bad) == 0);
}

void datagram_send(const Device& device, ibv_qp* qp, ibv_ah* ah, uint32_t qpn, uint32_t length) {
  ibv_sge sge = device.sge(0, length);
  ibv_send_wr wr{}, *bad;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  wr.imm_data = 0x01020304;
  wr.wr.ud.ah = ah;
  wr.wr.ud.remote_qpn = qpn;
  wr.wr.ud.remote_qkey = kQkey;
  DEMAND(ibv_post_send(qp, &wr, &bad) == 0);
}

// The completions of a send and of the receive that it reached, in any order.
ibv_wc received_take(const Device& device) {
  ibv_wc first = completion_take(device), second = completion_take(device);
  const ibv_wc& received = first.opcode == IBV_WC_RECV ? first : second;
  DEMAND(received.opcode == IBV_WC_RECV);
  DEMAND((received.wc_flags & IBV_WC_GRH) != 0);
  DEMAND((received.wc_flags & IBV_WC_WITH_IMM) != 0 && received.imm_data == 0x01020304);
  return received;
}

void datagram_answer(const Device& device, uint8_t gid_index) {
  ibv_qp *asker = datagram_qp(device), *answerer = datagram_qp(device);
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.sgid_index = gid_index;
  DEMAND(ibv_query_gid(device.context, 1, gid_index, &attr.grh.dgid) == 0);
  ibv_ah* ah = ibv_create_ah(device.pd, &attr);
  DEMAND(ah != nullptr);
  receive_post(device, answerer, kSize);
  datagram_send(device, asker, ah, answerer->qp_num, 100);
  ibv_wc wc = received_take(device);
  DEMAND(wc.byte_len == kGrh + 100);
  DEMAND(wc.src_qp == asker->qp_num && wc.qp_num == answerer->qp_num);

  auto* grh = reinterpret_cast<ibv_grh*>(const_cast<uint8_t*>(device.memory.data()) + kSize);
  ibv_ah_attr back{};
  DEMAND(ibv_init_ah_from_wc(device.context, 1, &wc, grh, &back) == 0);
  DEMAND(back.is_global == 1 && back.grh.sgid_index == gid_index);
  DEMAND(memcmp(&back.grh.dgid, &attr.grh.dgid, sizeof back.grh.dgid) == 0);
  ibv_ah* answer_ah = ibv_create_ah_from_wc(device.pd, &wc, grh, 1);
  DEMAND(answer_ah != nullptr);
  receive_post(device, asker, 2 * kSize);
  datagram_send(device, answerer, answer_ah, wc.src_qp, 7);
  wc = received_take(device);
  DEMAND(wc.byte_len == kGrh + 7 && wc.qp_num == asker->qp_num);
  DEMAND(memcmp(device.memory.data() + 2 * kSize + kGrh, device.memory.data(), 7) == 0);

  DEMAND(ibv_destroy_ah(answer_ah) == 0 && ibv_destroy_ah(ah) == 0);
  DEMAND(ibv_destroy_qp(asker) == 0 && ibv_destroy_qp(answerer) == 0);
}

// ---- Shared receive queues

void connect(const Device& device, ibv_qp* qp, ibv_qp* peer) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  DEMAND(ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer->qp_num;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.sgid_index = 3;
  DEMAND(ibv_query_gid(device.context, 1, 3, &attr.ah_attr.grh.dgid) == 0);
  DEMAND(ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  DEMAND(ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

void shared_receives_post(const Device& device, ibv_srq* srq, uint64_t first, uint64_t end) {
  for (uint64_t id = first; id < end; ++id) {
    ibv_sge sge = device.sge(kSize, 64);
    ibv_recv_wr wr{}, *bad;
    wr.wr_id = id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    DEMAND(ibv_post_srq_recv(srq, &wr, &bad) == 0);
  }
}

uint64_t message_pass(const Device& device, ibv_qp* qp) {
  ibv_sge sge = device.sge(0, 32);
  ibv_send_wr wr{}, *bad;
  wr.wr_id = 1000;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  DEMAND(ibv_post_send(qp, &wr, &bad) == 0);
  const ibv_wc first = completion_take(device), second = completion_take(device);
  return first.wr_id == 1000 ? second.wr_id : first.wr_id;
}

ibv_async_event event_take(const Device& device, ibv_event_type type) {
  ibv_async_event event{};
  DEMAND(ibv_get_async_event(device.context, &event) == 0);
  if (event.event_type != type) printf("event %s\n", ibv_event_type_str(event.event_type));
  DEMAND(event.event_type == type);
  ibv_ack_async_event(&event);
  return event;
}

void shared_queue(const Device& device) {
  ibv_srq_init_attr init{};
  init.attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0};
  ibv_srq* srq = ibv_create_srq(device.pd, &init);
  DEMAND(srq != nullptr && init.attr.max_wr >= 8);
  ibv_qp *sender[2], *receiver[2];
  for (int i = 0; i < 2; ++i) {
    sender[i] = qp_create(device, IBV_QPT_RC);
    receiver[i] = qp_create(device, IBV_QPT_RC, srq);
    connect(device, sender[i], receiver[i]);
    connect(device, receiver[i], sender[i]);
  }
  // Goes round the library's list many times; each entry must keep the identifier it was posted
  // with.
  for (uint64_t round = 0; round < 100; ++round) {
    shared_receives_post(device, srq, 3 * round, 3 * round + 3);
    for (uint64_t i = 0; i < 3; ++i)
      DEMAND(message_pass(device, sender[(round + i) % 2]) == 3 * round + i);
  }

  shared_receives_post(device, srq, 0, 4);
  ibv_srq_attr limit{};
  limit.srq_limit = 4;
  DEMAND(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0);
  DEMAND(ibv_query_srq(srq, &limit) == 0 && limit.srq_limit == 4);
  DEMAND(message_pass(device, sender[0]) == 0);
  DEMAND(event_take(device, IBV_EVENT_SRQ_LIMIT_REACHED).element.srq == srq);
  DEMAND(ibv_modify_srq(srq, &limit, IBV_SRQ_MAX_WR) == EINVAL);

  ibv_qp_attr error{};
  error.qp_state = IBV_QPS_ERR;
  DEMAND(ibv_modify_qp(receiver[0], &error, IBV_QP_STATE) == 0);
  DEMAND(event_take(device, IBV_EVENT_QP_LAST_WQE_REACHED).element.qp == receiver[0]);
  DEMAND(message_pass(device, sender[1]) == 1);
  DEMAND(ibv_destroy_srq(srq) == EBUSY);
  for (int i = 0; i < 2; ++i) {
    DEMAND(ibv_destroy_qp(sender[i]) == 0 && ibv_destroy_qp(receiver[i]) == 0);
  }
  DEMAND(ibv_destroy_srq(srq) == 0);
}

}  // namespace

int main() {
  alarm(50);  // in case something waits for ever
  Device device = device_open();
  for (size_t i = 0; i < device.memory.size(); ++i) device.memory[i] = static_cast<uint8_t>(i);
  for (uint8_t gid_index = 0; gid_index < 4; ++gid_index) datagram_answer(device, gid_index);
  shared_queue(device);
  device_close(&device);
  printf("ok\n");
  return 0;
}
