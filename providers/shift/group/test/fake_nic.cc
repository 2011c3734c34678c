#include "group/test/fake_nic.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace shift {

const StockVerbs* stock = nullptr;

namespace group {
namespace {

ibv_wc_opcode wc_opcode(ibv_wr_opcode opcode) {
  static const std::map<ibv_wr_opcode, ibv_wc_opcode> kOpcodes{
      {IBV_WR_SEND, IBV_WC_SEND},
      {IBV_WR_SEND_WITH_IMM, IBV_WC_SEND},
      {IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE},
      {IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE},
      {IBV_WR_RDMA_READ, IBV_WC_RDMA_READ},
      {IBV_WR_LOCAL_INV, IBV_WC_LOCAL_INV},
      {IBV_WR_BIND_MW, IBV_WC_BIND_MW},
      {IBV_WR_SEND_WITH_INV, IBV_WC_SEND},
      {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP},
      {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD}};
  return kOpcodes.at(opcode);
}

int fake_poll_cq(ibv_cq* cq, int count, ibv_wc* wc) {
  FakeCq& fake = FakeCq::of(cq);
  int got = 0;
  while (got < count && !fake.waiting.empty()) {
    wc[got++] = fake.waiting.front();
    fake.waiting.pop_front();
  }
  return got;
}

int fake_req_notify_cq(ibv_cq* cq, int solicited_only) {
  FakeCq& fake = FakeCq::of(cq);
  fake.notify_requests++;
  fake.last_notify_solicited = solicited_only;
  return 0;
}

ibv_wc completion(const FakeQp& qp, uint64_t wr_id, ibv_wc_status status, int opcode) {
  ibv_wc wc{};
  wc.wr_id = wr_id;
  wc.status = status;
  // The opcode of an error completion means nothing, as with real NICs.
  wc.opcode = status == IBV_WC_SUCCESS ? static_cast<ibv_wc_opcode>(opcode)
                                       : static_cast<ibv_wc_opcode>(0x55);
  wc.qp_num = qp.qp.qp_num;
  return wc;
}

// Delivers a message to a QP of the same NIC that receives from a shared queue.
void loop_back(FakeQp& from) {
  FakeNic& nic = FakeNic::of(from.qp.context);
  const auto peer = nic.qps.find(from.attr.dest_qp_num);
  if (peer == nic.qps.end() || peer->second->srq == nullptr || from.in_error()) return;
  if (!nic.loops) {
    from.break_with(IBV_WC_RETRY_EXC_ERR);
  } else if (peer->second->complete_recv(0)) {
    from.complete_send();
  } else {
    from.break_with(IBV_WC_RNR_RETRY_EXC_ERR);
  }
}

int fake_post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  for (; wr != nullptr; wr = wr->next) {
    if (FakeSrq::of(srq).post_error != 0) {
      *bad_wr = wr;
      return FakeSrq::of(srq).post_error;
    }
    FakeSrq::of(srq).waiting.push_back({wr->wr_id, {wr->sg_list, wr->sg_list + wr->num_sge}});
  }
  return 0;
}

int fake_post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  FakeQp& fake = FakeQp::of(qp);
  for (; wr != nullptr; wr = wr->next) {
    const auto& errors = FakeNic::of(qp->context).post_errors;
    const auto refused = errors.find(wr->opcode);
    int error = refused != errors.end() ? refused->second : fake.post_error;
    if (error == 0 && fake.sends_accepted == 0) error = ENOMEM;
    if (error != 0) {
      *bad_wr = wr;
      return error;
    }
    if (fake.sends_accepted != INT_MAX) fake.sends_accepted--;
    fake.sends.push_back({*wr, {wr->sg_list, wr->sg_list + wr->num_sge}});
    fake.pending_sends.push_back({wr->wr_id,
                                  fake.all_signaled || wr->send_flags & IBV_SEND_SIGNALED,
                                  wc_opcode(wr->opcode), fake.sends.size() - 1});
    if (fake.in_error()) fake.flush();
    loop_back(fake);
  }
  if (fake.doorbell_error != 0) *bad_wr = nullptr;
  return fake.doorbell_error;
}

int fake_post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  FakeQp& fake = FakeQp::of(qp);
  for (; wr != nullptr; wr = wr->next) {
    const int error = fake.srq != nullptr ? EINVAL : fake.post_error;
    if (error != 0) {
      *bad_wr = wr;
      return error;
    }
    if (FakeNic::of(qp->context).remembers)
      fake.recvs.push_back({wr->wr_id, {wr->sg_list, wr->sg_list + wr->num_sge}});
    fake.pending_recvs.push_back(wr->wr_id);
    if (fake.in_error() && !fake.overlooks) fake.flush();
  }
  return 0;
}

// The completions that the QP has left in its CQs are gone, as with real NICs.
void drop_completions(FakeQp& fake) {
  if (FakeNic::of(fake.qp.context).is_soft_roce) return;
  for (FakeCq* cq : {fake.send_cq, fake.recv_cq}) {
    std::erase_if(cq->waiting, [&](const ibv_wc& wc) { return wc.qp_num == fake.qp.qp_num; });
  }
}

int fake_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  FakeQp& fake = FakeQp::of(qp);
  if (fake.modify_error != 0) return fake.modify_error;
  if (FakeNic::of(qp->context).refuses && (mask & IBV_QP_AV)) return EINVAL;
  if (mask & IBV_QP_AV) fake.attr.ah_attr = attr->ah_attr;
  if (mask & IBV_QP_DEST_QPN) fake.attr.dest_qp_num = attr->dest_qp_num;
  if (mask & IBV_QP_SQ_PSN) fake.attr.sq_psn = attr->sq_psn;
  if (mask & IBV_QP_RQ_PSN) fake.attr.rq_psn = attr->rq_psn;
  if (mask & IBV_QP_PATH_MTU) fake.attr.path_mtu = attr->path_mtu;
  if (mask & IBV_QP_TIMEOUT) fake.attr.timeout = attr->timeout;
  if (mask & IBV_QP_RETRY_CNT) fake.attr.retry_cnt = attr->retry_cnt;
  if (mask & IBV_QP_STATE) {
    qp->state = attr->qp_state;
    fake.walk.push_back(attr->qp_state);
    if (attr->qp_state == IBV_QPS_ERR) {
      fake.sends_at_error = fake.sends.size();
      fake.recvs_at_error = fake.recvs.size();
    }
  }
  if (qp->state == IBV_QPS_RESET) {
    fake.pending_sends.clear();
    fake.pending_recvs.clear();
    drop_completions(fake);
  }
  if (fake.in_error()) fake.flush();
  return 0;
}

int fake_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr*) {
  const FakeQp& fake = FakeQp::of(qp);
  if (fake.query_error != 0) return fake.query_error;
  *attr = fake.attr;
  attr->qp_state = qp->state;
  attr->rq_psn = fake.expected_psn;
  return 0;
}

ibv_pd* fake_alloc_pd(ibv_context* context) {
  return &FakeNic::of(context).pd;
}

int fake_dealloc_pd(ibv_pd*) {
  return 0;
}

ibv_cq* fake_create_cq(ibv_context* context, int cqe, void* owner, ibv_comp_channel*, int) {
  FakeCq& made = FakeNic::of(context).cq_make(cqe);
  made.cq.cq_context = owner;
  return &made.cq;
}

int fake_destroy_cq(ibv_cq*) {
  return 0;
}

ibv_mr* fake_reg_mr_iova2(ibv_pd* pd, void* address, size_t length, uint64_t, unsigned) {
  ibv_mr made{};
  made.pd = pd;
  made.addr = address;
  made.length = length;
  return &FakeNic::of(pd->context).mrs.emplace_back(made);
}

int fake_dereg_mr(ibv_mr*) {
  return 0;
}

ibv_qp* fake_create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  if (FakeNic::of(pd->context).is_full) {
    errno = ENOMEM;
    return nullptr;
  }
  FakeQp& made =
      FakeNic::of(pd->context).qp_make(init->send_cq, init->recv_cq, init->sq_sig_all != 0);
  made.qp.state = IBV_QPS_RESET;
  if (init->srq != nullptr) made.srq = &FakeSrq::of(init->srq);
  return &made.qp;
}

int fake_destroy_qp(ibv_qp* qp) {
  drop_completions(FakeQp::of(qp));
  return FakeNic::of(qp->context).qps.erase(qp->qp_num) == 1 ? 0 : EINVAL;
}

ibv_gid_entry gid_entry(const FakeNic& nic, const wire::Gid& gid, uint32_t index, uint32_t type) {
  ibv_gid_entry entry{};
  entry.gid = gid.to_verbs();
  entry.gid_index = index;
  entry.ndev_ifindex = nic.ifindex;
  entry.port_num = 1;
  entry.gid_type = type;
  return entry;
}

ssize_t fake_query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t most,
                             uint32_t flags, size_t) {
  if (flags != 0) return -EOPNOTSUPP;
  const FakeNic& nic = FakeNic::of(context);
  std::vector<ibv_gid_entry> table;
  if (nic.link_local != wire::Gid{}) {
    table.push_back(gid_entry(nic, nic.link_local, 0, IBV_GID_TYPE_ROCE_V1));
    table.push_back(gid_entry(nic, nic.link_local, 1, IBV_GID_TYPE_ROCE_V2));
  }
  for (const FakeNic::Decoy& decoy : nic.decoys) {
    table.push_back(gid_entry(nic, decoy.gid, decoy.index, IBV_GID_TYPE_ROCE_V2));
    table.back().ndev_ifindex = decoy.ifindex;
  }
  if (nic.gid != wire::Gid{})
    table.push_back(gid_entry(nic, nic.gid, nic.gid_index, IBV_GID_TYPE_ROCE_V2));
  const size_t count = std::min(most, table.size());
  std::copy_n(table.begin(), count, entries);
  return static_cast<ssize_t>(count);
}

int fake_query_gid_ex(ibv_context* context, uint32_t, uint32_t index, ibv_gid_entry* entry,
                      uint32_t, size_t) {
  ibv_gid_entry table[8];
  const ssize_t count = fake_query_gid_table(context, table, std::size(table), 0, 0);
  for (ssize_t i = 0; i < count; i++) {
    if (table[i].gid_index != index) continue;
    *entry = table[i];
    return 0;
  }
  return ENODATA;
}

int fake_query_port(ibv_context* context, uint8_t, ibv_port_attr* attr, size_t) {
  attr->state = FakeNic::of(context).port_up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  return 0;
}

const char* fake_event_type_str(ibv_event_type) {
  return "event";
}

int fake_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int) {
  FakeSrq::of(srq).limit = attr->srq_limit;
  return 0;
}

}  // namespace

bool FakeQp::complete_send() {
  while (!pending_sends.empty()) {
    const Pending done = pending_sends.front();
    pending_sends.pop_front();
    if (!done.signaled) continue;
    send_cq->waiting.push_back(completion(*this, done.wr_id, IBV_WC_SUCCESS, done.opcode));
    return true;
  }
  return false;
}

void FakeQp::take_half() {
  half_taken = srq->waiting.front().wr_id;
  srq->waiting.pop_front();
}

bool FakeQp::complete_recv(uint32_t byte_len) {
  if (srq != nullptr) {
    if (in_error() || srq->waiting.empty()) return false;
    pending_recvs.push_back(srq->waiting.front().wr_id);
    srq->waiting.pop_front();
  }
  if (pending_recvs.empty()) return false;
  ibv_wc wc = completion(*this, pending_recvs.front(), IBV_WC_SUCCESS, IBV_WC_RECV);
  wc.byte_len = byte_len;
  wc.src_qp = 0x9999;  // the peer's real QP on this path
  pending_recvs.pop_front();
  recv_cq->waiting.push_back(wc);
  return true;
}

void FakeQp::flush() {
  if (!flushes) return;
  for (; !pending_sends.empty(); pending_sends.pop_front()) {
    send_cq->waiting.push_back(
        completion(*this, pending_sends.front().wr_id, IBV_WC_WR_FLUSH_ERR, 0));
  }
  if (half_taken && !FakeNic::of(qp.context).is_soft_roce) pending_recvs.push_back(*half_taken);
  half_taken.reset();
  for (; !pending_recvs.empty(); pending_recvs.pop_front()) {
    recv_cq->waiting.push_back(completion(*this, pending_recvs.front(), IBV_WC_WR_FLUSH_ERR, 0));
  }
}

void FakeQp::break_with(ibv_wc_status status) {
  qp.state = IBV_QPS_ERR;
  ibv_wc wc = completion(*this, pending_sends.front().wr_id, status, 0);
  wc.vendor_err = 0x42;
  pending_sends.pop_front();
  send_cq->waiting.push_back(wc);
  flush();
}

FakeNic::FakeNic(const char* name, uint32_t ip_be) : gid(wire::Gid::from_ipv4(ip_be)) {
  std::strcpy(device.name, name);
  verbs.sz = sizeof verbs;
  verbs.query_port = fake_query_port;
  ibv_context& c = verbs.context;
  c.abi_compat = __VERBS_ABI_IS_EXTENDED;
  c.device = &device;
  c.async_fd = -1;
  c.ops.poll_cq = fake_poll_cq;
  c.ops.req_notify_cq = fake_req_notify_cq;
  c.ops.post_send = fake_post_send;
  c.ops.post_recv = fake_post_recv;
  c.ops.post_srq_recv = fake_post_srq_recv;
  pd.context = &c;
}

FakeCq& FakeNic::cq_make(int cqe) {
  FakeCq& made = cqs.emplace_back();
  made.cq.context = context();
  made.cq.cqe = cqe;
  return made;
}

FakeSrq& FakeNic::srq_make() {
  FakeSrq& made = srqs.emplace_back();
  made.srq.context = context();
  return made;
}

FakeQp& FakeNic::qp_make(ibv_cq* send_cq, ibv_cq* recv_cq, bool all_signaled) {
  static uint32_t next_qpn = 0x100;  // no two NICs of a test give a QP the same number
  auto made = std::make_unique<FakeQp>();
  made->qp.context = context();
  made->qp.qp_num = next_qpn++;
  made->all_signaled = all_signaled;
  made->send_cq = &FakeCq::of(send_cq);
  made->recv_cq = &FakeCq::of(recv_cq);
  auto& slot = qps[made->qp.qp_num];
  slot = std::move(made);
  return *slot;
}

const StockVerbs* fake_stock() {
  static const StockVerbs table = [] {
    StockVerbs t;
    t.alloc_pd = fake_alloc_pd;
    t.dealloc_pd = fake_dealloc_pd;
    t.modify_qp = fake_modify_qp;
    t.query_qp = fake_query_qp;
    t.create_qp = fake_create_qp;
    t.destroy_qp = fake_destroy_qp;
    t.create_cq = fake_create_cq;
    t.destroy_cq = fake_destroy_cq;
    t.reg_mr_iova2 = fake_reg_mr_iova2;
    t.dereg_mr = fake_dereg_mr;
    t.modify_srq = fake_modify_srq;
    t.query_gid_table = fake_query_gid_table;
    t.query_gid_ex = fake_query_gid_ex;
    t.event_type_str = fake_event_type_str;
    return t;
  }();
  return &table;
}

}  // namespace group
}  // namespace shift
