// Two of these programs exchange one of everything that a reliable connection supports. Each prints
// a line "address ..." and reads the other's line on its standard input. "run" makes it the
// requester; "write" is a single WRITE. "modify" and "create" give commands to the NIC in a thread
// of their own, "other" gives one to another NIC. "exit" or the end of its input ends it.
#include <infiniband/verbs.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <thread>

namespace {

constexpr uint32_t kSize = 8192;  // two packets
constexpr int kGidIndex = 3;
constexpr uint32_t kPsn = 0xfffffd;  // wraps

struct Address {
  uint32_t qpn, rkey;
  uint64_t memory;
  ibv_gid gid;
};

[[noreturn]] void fail(const char* what) {
  printf("failed: %s\n", what);
  exit(1);
}

ibv_context* device_open(const char* name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; i < count && context == nullptr; ++i)
    if (strcmp(ibv_get_device_name(list[i]), name) == 0) context = ibv_open_device(list[i]);
  ibv_free_device_list(list);
  if (context == nullptr) fail("device");
  return context;
}

class Probe {
 public:
  Probe() {
    pd_ = ibv_alloc_pd(context_);
    cq_ = ibv_create_cq(context_, 64, nullptr, nullptr, 0);
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                       IBV_ACCESS_REMOTE_ATOMIC;
    local_ = ibv_reg_mr(pd_, buffer_, kSize, access);
    remote_ = ibv_reg_mr(pd_, target_, kSize, access);
    qp_ = qp_create();
    spare_ = qp_create();
    if (qp_ == nullptr || spare_ == nullptr) fail("queue pair");
    if (to_init(qp_) != 0) fail("modify");
    for (int i = 0; i < 4; i++) receive_post();
  }

  void address_print() {
    ibv_gid gid;
    if (ibv_query_gid(context_, 1, kGidIndex, &gid) != 0) fail("gid");
    printf("address %u %u %lu", qp_->qp_num, remote_->rkey, reinterpret_cast<uint64_t>(target_));
    for (const uint8_t byte : gid.raw) printf(" %u", byte);
    printf("\n");
  }

  void connect(const Address& peer) {
    peer_ = peer;
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_4096;
    attr.dest_qp_num = peer.qpn;
    attr.rq_psn = kPsn;
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = peer.gid;
    attr.ah_attr.grh.sgid_index = kGidIndex;
    attr.ah_attr.grh.hop_limit = 64;
    modify(&attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = kPsn;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    modify(&attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    printf("connected\n");
  }

  void write() {
    expect(IBV_WR_RDMA_WRITE, kSize, peer_.rkey, IBV_WC_SUCCESS);
    printf("written\n");
  }

  // While the command has not come back, the thread is in the kernel, as it were.
  void modify_start() {
    std::thread([this] {
      const int error = to_init(spare_);
      printf("modified: %s\n", error == 0 ? "ok" : strerror(error));
    }).detach();
  }
  void create_start() {
    std::thread([this] {
      using Clock = std::chrono::steady_clock;
      const auto begin = Clock::now();
      const bool made = qp_create() != nullptr;
      const auto took = std::chrono::floor<std::chrono::microseconds>(Clock::now() - begin);
      printf("created: %s, %ld us\n", made ? "ok" : strerror(errno), took.count());
    }).detach();
  }

  void run() {
    for (uint32_t i = 0; i < kSize; i++) buffer_[i] = static_cast<uint8_t>(i * 7);
    expect(IBV_WR_SEND, 101, peer_.rkey, IBV_WC_SUCCESS);  // three bytes of padding
    expect(IBV_WR_SEND_WITH_IMM, 4096, peer_.rkey, IBV_WC_SUCCESS);
    expect(IBV_WR_RDMA_WRITE, kSize, peer_.rkey, IBV_WC_SUCCESS);
    expect(IBV_WR_RDMA_WRITE_WITH_IMM, 8, peer_.rkey, IBV_WC_SUCCESS);
    memset(buffer_, 0, kSize);
    expect(IBV_WR_RDMA_READ, kSize, peer_.rkey, IBV_WC_SUCCESS);
    for (uint32_t i = 0; i < kSize; i++)
      if (buffer_[i] != static_cast<uint8_t>(i * 7)) fail("data");
    expect(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, peer_.rkey, IBV_WC_SUCCESS);
    expect(IBV_WR_ATOMIC_CMP_AND_SWP, 8, peer_.rkey, IBV_WC_SUCCESS);
    expect(IBV_WR_RDMA_WRITE, 8, peer_.rkey ^ 0xff00, IBV_WC_REM_ACCESS_ERR);
    printf("done\n");
  }

 private:
  ibv_qp* qp_create() {
    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = cq_;
    init.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1};
    init.qp_type = IBV_QPT_RC;
    return ibv_create_qp(pd_, &init);
  }
  static int to_init(ibv_qp* qp) {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  }
  void modify(ibv_qp_attr* attr, int mask) {
    if (ibv_modify_qp(qp_, attr, mask) != 0) fail("modify");
  }
  void receive_post() {
    ibv_sge sge = {reinterpret_cast<uint64_t>(buffer_), kSize, local_->lkey};
    ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    if (ibv_post_recv(qp_, &wr, &bad) != 0) fail("post_recv");
  }
  void expect(ibv_wr_opcode opcode, uint32_t size, uint32_t rkey, ibv_wc_status status) {
    ibv_sge sge = {reinterpret_cast<uint64_t>(buffer_), size, local_->lkey};
    ibv_send_wr wr = {}, *bad;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
      wr.wr.atomic.remote_addr = peer_.memory;
      wr.wr.atomic.rkey = rkey;
      wr.wr.atomic.compare_add = 1;
    } else {
      wr.wr.rdma.remote_addr = peer_.memory;
      wr.wr.rdma.rkey = rkey;
    }
    if (ibv_post_send(qp_, &wr, &bad) != 0) fail("post_send");
    ibv_wc wc;
    int count;
    while ((count = ibv_poll_cq(cq_, 1, &wc)) == 0) {
    }
    if (count < 0 || wc.status != status) fail(ibv_wc_status_str(wc.status));
  }

  ibv_context* context_ = device_open("mlx5_0");
  ibv_pd* pd_;
  ibv_cq* cq_;
  ibv_mr *local_, *remote_;
  ibv_qp *qp_, *spare_;
  Address peer_ = {};
  alignas(8) uint8_t buffer_[kSize] = {}, target_[kSize] = {};
};

}  // namespace

int main() {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  static Probe probe;
  probe.address_print();
  std::string word;
  Address peer;
  std::cin >> word >> peer.qpn >> peer.rkey >> peer.memory;
  for (uint8_t& byte : peer.gid.raw) {
    unsigned value = 0;
    std::cin >> value;
    byte = static_cast<uint8_t>(value);
  }
  if (!std::cin) fail("address of the peer");
  probe.connect(peer);
  while (std::cin >> word && word != "exit") {
    if (word == "run") probe.run();
    if (word == "write") probe.write();
    if (word == "modify") probe.modify_start();
    if (word == "create") probe.create_start();
    if (word == "other") {
      ibv_context* other = device_open("mlx5_1");
      printf("other: %s\n", ibv_alloc_pd(other) != nullptr ? "ok" : strerror(errno));
    }
  }
  return 0;
}
