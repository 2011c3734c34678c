// Objects of all kinds on a virtual device over emulated NICs: protected and stock objects share
// domains and queues, and each one looks as the program made it.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>

namespace {

constexpr int kGidIndex = 3;  // RoCE v2, IPv4

ibv_qp_attr to_init() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
  return attr;
}
constexpr int kInitMask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

class Objects : public ::testing::Test {
 protected:
  void SetUp() override {
    list_ = ibv_get_device_list(nullptr);
    ASSERT_NE(list_, nullptr);
    ASSERT_NE(list_[0], nullptr) << "run this under cxemu exec";
    context_ = ibv_open_device(list_[0]);
    ASSERT_NE(context_, nullptr);
    pd_ = ibv_alloc_pd(context_);
    cq_ = ibv_create_cq(context_, 32, nullptr, nullptr, 0);
    ASSERT_NE(pd_, nullptr);
    ASSERT_NE(cq_, nullptr);
    mr_ = ibv_reg_mr(pd_, buffer_.data(), buffer_.size(),
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    ASSERT_NE(mr_, nullptr);
  }
  void TearDown() override {
    EXPECT_EQ(ibv_dereg_mr(mr_), 0);
    EXPECT_EQ(ibv_destroy_cq(cq_), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
    EXPECT_EQ(ibv_close_device(context_), 0);
    ibv_free_device_list(list_);
  }

  ibv_qp_attr to_rtr(uint32_t peer) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.sgid_index = kGidIndex;
    attr.ah_attr.grh.hop_limit = 64;
    EXPECT_EQ(ibv_query_gid(context_, 1, kGidIndex, &attr.ah_attr.grh.dgid), 0);
    return attr;
  }
  // Connects to another QP of this device. `sends`: also moves to RTS.
  void connect(ibv_qp* qp, uint32_t peer, bool sends = true) {
    ibv_qp_attr attr = to_init();
    ASSERT_EQ(ibv_modify_qp(qp, &attr, kInitMask), 0);
    attr = to_rtr(peer);
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (qp->qp_type != IBV_QPT_XRC_SEND) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, mask), 0);
    if (!sends) return;
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    ASSERT_EQ(ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
              0);
  }
  ibv_qp* make_rc(ibv_pd* pd, ibv_cq* cq, ibv_srq* srq = nullptr) {
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_RC;
    init.send_cq = init.recv_cq = cq;
    init.srq = srq;
    init.cap = {4, 4, 1, 1, 0};
    return ibv_create_qp(pd, &init);
  }
  ibv_send_wr send_of(uint64_t wr_id, ibv_sge* sge) {
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = sge;
    wr.num_sge = 1;
    return wr;
  }
  ibv_sge half(int which) {
    return {reinterpret_cast<uintptr_t>(buffer_.data()) + 1024u * static_cast<unsigned>(which),
            1024, mr_->lkey};
  }
  // Waits for `count` completions and returns them by wr_id.
  std::map<uint64_t, ibv_wc> poll(ibv_cq* cq, size_t count) {
    std::map<uint64_t, ibv_wc> found;
    const auto bound = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (found.size() < count && std::chrono::steady_clock::now() < bound) {
      ibv_wc wc;
      if (ibv_poll_cq(cq, 1, &wc) == 1) found[wc.wr_id] = wc;
    }
    EXPECT_EQ(found.size(), count);
    for (const auto& [id, wc] : found) EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << id;
    return found;
  }
  // One message from `a` to `b`, which are connected.
  void exchange(ibv_cq* cq, ibv_qp* a, ibv_qp* b) {
    ibv_sge to = half(1), from = half(0);
    ibv_recv_wr receive{11, nullptr, &to, 1}, *bad_receive;
    ASSERT_EQ(ibv_post_recv(b, &receive, &bad_receive), 0);
    ibv_send_wr send = send_of(12, &from), *bad;
    ASSERT_EQ(ibv_post_send(a, &send, &bad), 0);
    auto found = poll(cq, 2);
    EXPECT_EQ(found[11].qp_num, b->qp_num);
    EXPECT_EQ(found[12].qp_num, a->qp_num);
  }

  std::array<char, 2048> buffer_{};
  ibv_device** list_ = nullptr;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* mr_ = nullptr;
};

// C10: XRC is not protected, and works next to protected objects.
TEST_F(Objects, xrc_shares_a_domain_and_a_queue_with_rc) {
  ibv_xrcd_init_attr domain{};
  domain.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  domain.fd = -1;
  domain.oflags = O_CREAT;
  ibv_xrcd* xrcd = ibv_open_xrcd(context_, &domain);
  ASSERT_NE(xrcd, nullptr) << strerror(errno);
  ibv_srq_init_attr_ex shared{};
  shared.attr = {8, 1, 0};
  shared.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_XRCD;
  shared.srq_type = IBV_SRQT_XRC;
  shared.pd = pd_;
  shared.cq = cq_;
  shared.xrcd = xrcd;
  ibv_srq* srq = ibv_create_srq_ex(context_, &shared);
  ASSERT_NE(srq, nullptr) << strerror(errno);
  uint32_t srq_number = 0;
  ASSERT_EQ(ibv_get_srq_num(srq, &srq_number), 0);

  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_XRC_RECV;
  init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  init.xrcd = xrcd;
  ibv_qp* receiver = ibv_create_qp_ex(context_, &init);
  ASSERT_NE(receiver, nullptr) << strerror(errno);
  init = {};
  init.qp_type = IBV_QPT_XRC_SEND;
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  init.pd = pd_;
  init.send_cq = cq_;
  init.cap.max_send_wr = 4;
  init.cap.max_send_sge = 1;
  ibv_qp* sender = ibv_create_qp_ex(context_, &init);
  ASSERT_NE(sender, nullptr) << strerror(errno);
  connect(receiver, sender->qp_num, false);
  connect(sender, receiver->qp_num);
  ibv_qp* a = make_rc(pd_, cq_);
  ibv_qp* b = make_rc(pd_, cq_);
  connect(a, b->qp_num);
  connect(b, a->qp_num);

  ibv_sge to[2] = {half(1), half(1)}, from = half(0);
  to[0].length = to[1].length = 512;
  to[1].addr += 512;
  from.length = 512;
  memset(buffer_.data(), 'x', 512);
  ibv_recv_wr receive{1, nullptr, &to[0], 1}, *bad_receive;
  ASSERT_EQ(ibv_post_srq_recv(srq, &receive, &bad_receive), 0);
  receive = {2, nullptr, &to[1], 1};
  ASSERT_EQ(ibv_post_recv(b, &receive, &bad_receive), 0);
  ibv_send_wr send = send_of(3, &from), *bad;
  send.qp_type.xrc.remote_srqn = srq_number;
  ASSERT_EQ(ibv_post_send(sender, &send, &bad), 0);
  send = send_of(4, &from);
  ASSERT_EQ(ibv_post_send(a, &send, &bad), 0);
  auto found = poll(cq_, 4);
  EXPECT_EQ(found[1].byte_len, 512u);
  EXPECT_EQ(found[2].qp_num, b->qp_num);
  EXPECT_EQ(found[3].qp_num, sender->qp_num);
  EXPECT_EQ(found[4].qp_num, a->qp_num);
  EXPECT_EQ(std::string(buffer_.data() + 1024, 1024), std::string(1024, 'x'));

  // The queue's events come through the virtual context: fewer receives are posted than the limit.
  ibv_srq_attr limit{};
  limit.srq_limit = 4;
  ASSERT_EQ(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, srq);
  ibv_ack_async_event(&event);
  // A second event is never read, and nothing waits for that.
  ASSERT_EQ(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
  pollfd waits{context_->async_fd, POLLIN, 0};
  EXPECT_EQ(::poll(&waits, 1, -1), 1);

  ibv_qp_open_attr again{};
  again.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  again.qp_num = receiver->qp_num;
  again.xrcd = xrcd;
  again.qp_type = IBV_QPT_XRC_RECV;
  ibv_qp* opened = ibv_open_qp(context_, &again);
  if (opened != nullptr) {
    EXPECT_EQ(opened->qp_num, receiver->qp_num);
    EXPECT_EQ(ibv_destroy_qp(opened), 0);
  } else {
    EXPECT_EQ(errno, EOPNOTSUPP) << "the emulator's word";
  }
  for (ibv_qp* qp : {a, b, sender, receiver}) EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
}

// An event that the program does not read does not keep the object alive.
TEST_F(Objects, an_unprotected_queue_pair_goes_with_its_events) {
  ibv_srq_init_attr shared{};
  shared.attr = {8, 1, 0};
  ibv_srq* srq = ibv_create_srq(pd_, &shared);
  ASSERT_NE(srq, nullptr) << strerror(errno);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq_;
  init.srq = srq;
  init.cap.max_send_wr = init.cap.max_send_sge = 1;
  init.qp_type = IBV_QPT_UD;
  for (const bool reads : {true, false}) {
    ibv_qp* qp = ibv_create_qp(pd_, &init);
    ASSERT_NE(qp, nullptr) << strerror(errno);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    ASSERT_EQ(
        ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
    attr.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    pollfd waits{context_->async_fd, POLLIN, 0};
    ASSERT_EQ(::poll(&waits, 1, -1), 1);
    if (reads) {
      ibv_async_event event;
      ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
      EXPECT_EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
      EXPECT_EQ(event.element.qp, qp);
      ibv_ack_async_event(&event);
    }
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(::poll(&waits, 1, 0), 0);
  }
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

struct Allocations {
  const std::thread::id thread = std::this_thread::get_id();
  ibv_pd* pd = nullptr;
  int made = 0, freed = 0, foreign = 0;
};

// The program's allocators get the handle that the program holds, and are called for its own
// objects only.
TEST_F(Objects, a_parent_domain_is_used_like_its_domain) {
  Allocations seen;
  ibv_td_init_attr thread{};
  ibv_td* td = ibv_alloc_td(context_, &thread);
  ASSERT_NE(td, nullptr) << strerror(errno);
  ibv_parent_domain_init_attr init{};
  init.pd = pd_;
  init.td = td;
  init.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  init.alloc = [](ibv_pd* pd, void* context, size_t size, size_t alignment, uint64_t) -> void* {
    auto* to = static_cast<Allocations*>(context);
    to->pd = pd;
    to->foreign += std::this_thread::get_id() != to->thread;
    void* memory = nullptr;
    if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), size) != 0) return nullptr;
    to->made++;
    return memset(memory, 0, size);  // mlx5 clears only memory that it allocated itself
  };
  init.free = [](ibv_pd*, void* context, void* memory, uint64_t) {
    auto* to = static_cast<Allocations*>(context);
    to->foreign += std::this_thread::get_id() != to->thread;
    to->freed++;
    free(memory);
  };
  init.pd_context = &seen;
  ibv_pd* parent = ibv_alloc_parent_domain(context_, &init);
  ASSERT_NE(parent, nullptr) << strerror(errno);
  EXPECT_EQ(parent->context, context_);
  ibv_cq_init_attr_ex queue{};
  queue.cqe = 16;
  queue.wc_flags = IBV_WC_STANDARD_FLAGS;
  queue.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  queue.parent_domain = parent;
  ibv_cq* cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(context_, &queue));
  ASSERT_NE(cq, nullptr) << strerror(errno);
  ibv_qp* a = make_rc(parent, cq);
  ibv_qp* b = make_rc(pd_, cq);
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->pd, parent);
  EXPECT_EQ(seen.pd, parent);
  EXPECT_GT(seen.made, 0);
  connect(a, b->qp_num);
  connect(b, a->qp_num);
  exchange(cq, a, b);
  EXPECT_EQ(ibv_dealloc_pd(parent), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(a), 0);
  EXPECT_EQ(ibv_destroy_qp(b), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(seen.freed, seen.made);
  EXPECT_EQ(seen.foreign, 0) << "called by a thread of ours";
  EXPECT_EQ(ibv_dealloc_pd(pd_), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
  EXPECT_EQ(ibv_dealloc_td(td), 0);
}

TEST_F(Objects, a_region_shows_what_it_was_made_with) {
  EXPECT_EQ(mr_->context, context_);
  EXPECT_EQ(mr_->pd, pd_);
  ibv_pd* other = ibv_alloc_pd(context_);
  ASSERT_EQ(ibv_rereg_mr(mr_, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0) << strerror(errno);
  EXPECT_EQ(mr_->pd, other);
  EXPECT_EQ(mr_->context, context_);
  EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
  ASSERT_EQ(ibv_rereg_mr(mr_, IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_TRANSLATION, pd_,
                         buffer_.data() + 64, 128, 0),
            0);
  EXPECT_EQ(mr_->pd, pd_);
  EXPECT_EQ(mr_->addr, buffer_.data() + 64);
  EXPECT_EQ(mr_->length, 128u);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
  // A refused call changes nothing.
  EXPECT_NE(
      ibv_rereg_mr(mr_, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE),
      0);
  EXPECT_EQ(mr_->pd, pd_);
  EXPECT_EQ(mr_->context, context_);
}

// The layer's threads stay with the parent process.
TEST_F(Objects, a_forked_child_that_opens_the_device_is_protected_itself) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  // A background thread may hold the address sanitizer's allocator at the time of the fork.
  GTEST_SKIP() << "the sanitizers allow no threads in forked children";
#endif
  const pid_t child = fork();
  if (child == 0) {
    SetUp();
    ibv_srq_init_attr shared{};
    shared.attr = {8, 1, 0};
    ibv_srq* srq = ibv_create_srq(pd_, &shared);
    ibv_qp* a = make_rc(pd_, cq_, srq);
    ibv_qp* b = make_rc(pd_, cq_);
    connect(a, b->qp_num);
    connect(b, a->qp_num);
    const auto is_protected =
        reinterpret_cast<bool (*)(ibv_qp*)>(dlsym(RTLD_DEFAULT, "shift_qp_is_protected"));
    EXPECT_TRUE(is_protected != nullptr && is_protected(a) && is_protected(b));
    if (!HasFailure()) exchange(cq_, a, b);
    // A path error that cannot be masked still reaches the program.
    EXPECT_EQ(ibv_destroy_qp(b), 0);
    ibv_sge from = half(0);
    ibv_send_wr send = send_of(12, &from), *bad;
    EXPECT_EQ(ibv_post_send(a, &send, &bad), 0);
    const auto bound = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    ibv_wc wc{};
    int got = 0;
    while (got == 0 && std::chrono::steady_clock::now() < bound) got = ibv_poll_cq(cq_, 1, &wc);
    EXPECT_EQ(got, 1);
    EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
    _exit(HasFailure() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  ibv_qp* a = make_rc(pd_, cq_);
  ibv_qp* b = make_rc(pd_, cq_);
  connect(a, b->qp_num);
  connect(b, a->qp_num);
  exchange(cq_, a, b);
  EXPECT_EQ(ibv_destroy_qp(a), 0);
  EXPECT_EQ(ibv_destroy_qp(b), 0);
}

TEST_F(Objects, null_regions_do_not_disturb_each_other) {
  ibv_mr* one = ibv_alloc_null_mr(pd_);
  if (one == nullptr) {
    ASSERT_EQ(errno, EOPNOTSUPP);
    GTEST_SKIP() << "the emulated device has none";
  }
  ibv_mr* two = ibv_alloc_null_mr(pd_);
  ASSERT_NE(two, nullptr);
  EXPECT_EQ(one->pd, pd_);
  EXPECT_EQ(ibv_dereg_mr(one), 0);
  EXPECT_EQ(ibv_dereg_mr(two), 0);
}

TEST_F(Objects, what_is_imported_is_another_handle) {
  ibv_pd* pd = ibv_import_pd(context_, pd_->handle);
  ASSERT_NE(pd, nullptr) << strerror(errno);
  EXPECT_EQ(pd->context, context_);
  ibv_mr* mr = ibv_import_mr(pd, mr_->handle);
  ASSERT_NE(mr, nullptr) << strerror(errno);
  EXPECT_EQ(mr->lkey, mr_->lkey);
  EXPECT_EQ(mr->pd, pd);
  ibv_unimport_mr(mr);
  ibv_unimport_pd(pd);
}

TEST_F(Objects, a_queue_changes_its_size) {
  EXPECT_GE(cq_->cqe, 32);
  ASSERT_EQ(ibv_resize_cq(cq_, 100), 0);
  EXPECT_GE(cq_->cqe, 100);
  ibv_qp* a = make_rc(pd_, cq_);
  ibv_qp* b = make_rc(pd_, cq_);
  connect(a, b->qp_num);
  connect(b, a->qp_num);
  exchange(cq_, a, b);
  ASSERT_EQ(ibv_resize_cq(cq_, 8), 0);
  EXPECT_GE(cq_->cqe, 8);
  exchange(cq_, a, b);
  EXPECT_EQ(ibv_destroy_qp(a), 0);
  EXPECT_EQ(ibv_destroy_qp(b), 0);
}

TEST_F(Objects, a_basic_queue_made_the_long_way_is_protected) {
  ibv_srq_init_attr_ex init{};
  init.attr = {8, 1, 0};
  init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  init.srq_type = IBV_SRQT_BASIC;
  init.pd = pd_;
  ibv_srq* srq = ibv_create_srq_ex(context_, &init);
  ASSERT_NE(srq, nullptr) << strerror(errno);
  EXPECT_EQ(srq->context, context_);
  EXPECT_EQ(srq->pd, pd_);
  uint32_t number;
  EXPECT_EQ(ibv_get_srq_num(srq, &number), 0);
  ibv_qp* qp = make_rc(pd_, cq_, srq);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(qp->srq, srq);
  EXPECT_EQ(qp->context, context_);
  EXPECT_EQ(ibv_destroy_srq(srq), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

}  // namespace
