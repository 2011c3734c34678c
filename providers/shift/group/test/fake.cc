#include "group/test/fake.h"

#include <cerrno>
#include <cstring>

#include "group/below.h"

namespace shift {

const Below* below = nullptr;

namespace group {
namespace {

FakeQp& qp_of(ibv_qp* qp) {
  return World::fake(qp);
}

ibv_wc_opcode wc_opcode(ibv_wr_opcode opcode) {
  static const std::map<ibv_wr_opcode, ibv_wc_opcode> kOpcodes{
      {IBV_WR_SEND, IBV_WC_SEND},
      {IBV_WR_SEND_WITH_IMM, IBV_WC_SEND},
      {IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE},
      {IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE},
      {IBV_WR_RDMA_READ, IBV_WC_RDMA_READ},
      {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP},
      {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD}};
  return kOpcodes.at(opcode);
}

int fake_poll_cq(ibv_cq* cq, int count, ibv_wc* wc) {
  FakeCq& fake = World::fake(cq);
  int got = 0;
  while (got < count && !fake.waiting.empty()) {
    wc[got++] = fake.waiting.front();
    fake.waiting.pop_front();
  }
  return got;
}

int fake_req_notify_cq(ibv_cq* cq, int solicited_only) {
  FakeCq& fake = World::fake(cq);
  fake.notify_requests++;
  fake.last_notify_solicited = solicited_only;
  return 0;
}

int fake_post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  FakeQp& fake = qp_of(qp);
  for (; wr != nullptr; wr = wr->next) {
    int error = fake.post_error;
    if (error == 0 && fake.sends_accepted == 0) error = ENOMEM;
    if (error != 0) {
      *bad_wr = wr;
      return error;
    }
    if (fake.sends_accepted != INT32_MAX) fake.sends_accepted--;
    fake.sends.push_back({*wr, {wr->sg_list, wr->sg_list + wr->num_sge}});
    fake.pending_sends.push_back({wr->wr_id,
                                  fake.all_signaled || wr->send_flags & IBV_SEND_SIGNALED,
                                  wc_opcode(wr->opcode)});
    if (fake.in_error()) fake.flush();
  }
  return 0;
}

int fake_post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  FakeQp& fake = qp_of(qp);
  for (; wr != nullptr; wr = wr->next) {
    if (fake.post_error != 0) {
      *bad_wr = wr;
      return fake.post_error;
    }
    fake.recvs.push_back({wr->wr_id, {wr->sg_list, wr->sg_list + wr->num_sge}});
    fake.pending_recvs.push_back(wr->wr_id);
    if (fake.in_error()) fake.flush();
  }
  return 0;
}

int fake_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  FakeQp& fake = qp_of(qp);
  if (fake.modify_error != 0) return fake.modify_error;
  if (mask & IBV_QP_STATE) qp->state = attr->qp_state;
  if (fake.in_error()) fake.flush();
  return 0;
}

ibv_wc completion(const FakeQp& qp, uint64_t wr_id, ibv_wc_status status, int opcode) {
  ibv_wc wc{};
  wc.wr_id = wr_id;
  wc.status = status;
  // As real NICs: the opcode of an error completion means nothing.
  wc.opcode = status == IBV_WC_SUCCESS ? static_cast<ibv_wc_opcode>(opcode)
                                       : static_cast<ibv_wc_opcode>(0x55);
  wc.qp_num = qp.qp.qp_num;
  return wc;
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

bool FakeQp::complete_recv(uint32_t byte_len) {
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

World::World() {
  static Below table;
  table.modify_qp = fake_modify_qp;
  below = &table;
  fault_sink = &sink;
  std::strcpy(device_.dev.name, "fake_0");
  for (int member = 0; member < kMembers; member++) {
    ibv_device& real = real_devices_[static_cast<size_t>(member)];
    std::strcpy(real.name, member == kDefault ? "fake_0" : "fake_1");
    device_.real[static_cast<size_t>(member)] = &real;
    ibv_context& c = real_contexts_[static_cast<size_t>(member)];
    c.device = &real;
    c.ops.poll_cq = fake_poll_cq;
    c.ops.req_notify_cq = fake_req_notify_cq;
    c.ops.post_send = fake_post_send;
    c.ops.post_recv = fake_post_recv;
    context.real[static_cast<size_t>(member)] = &c;
  }
  context.device = &device_;
  context.verbs.context.device = &device_.dev;
  pd.pd.context = context.handle();
  make_region(kLkey, kRkey);
}

World::~World() {
  fault_sink = nullptr;
  below = nullptr;
}

CompletionQueue* World::make_cq() {
  auto cq = std::make_unique<CompletionQueue>();
  cq->context = &context;
  cq->cq.context = context.handle();
  for (size_t member = 0; member < kMembers; member++) {
    fake_cqs_.push_back(std::make_unique<FakeCq>());
    fake_cqs_.back()->cq.context = &real_contexts_[member];
    fake_cqs_.back()->cq.cqe = 64;
    cq->real[member] = &fake_cqs_.back()->cq;
  }
  context.cqs.push_back(cq.get());
  cqs_.push_back(std::move(cq));
  return cqs_.back().get();
}

Group* World::make_group(CompletionQueue* send_cq, CompletionQueue* recv_cq,
                         const Options& options) {
  auto group = std::make_unique<Group>();
  Group& g = *group;
  g.context = &context;
  g.pd = &pd;
  g.send_cq = send_cq;
  g.recv_cq = recv_cq;
  g.cap.max_send_wr = g.cap.max_recv_wr = options.depth;
  g.cap.max_send_sge = g.cap.max_recv_sge = options.max_sge;
  g.cap.max_inline_data = options.max_inline;
  g.sq_sig_all = options.all_signaled;
  g.serial = groups_.size() + 1;
  g.marker_tag = reinterpret_cast<uintptr_t>(&g);
  g.send.journal.init(options.depth, options.max_sge, options.max_inline, options.all_signaled);
  g.recv.journal.init(options.depth, options.max_sge);
  for (int member = 0; member < kMembers; member++) {
    const auto i = static_cast<size_t>(member);
    fake_qps_.push_back(std::make_unique<FakeQp>());
    FakeQp& fake_qp = *fake_qps_.back();
    fake_qp.qp.context = &real_contexts_[i];
    fake_qp.qp.qp_num = next_qpn_++;
    fake_qp.qp.state = IBV_QPS_RTS;
    fake_qp.all_signaled = options.all_signaled;
    fake_qp.send_cq = &fake(send_cq, member);
    fake_qp.recv_cq = &fake(recv_cq, member);
    g.real[i] = &fake_qp.qp;
    context.qps[i].insert(fake_qp.qp.qp_num, &g.counters);
  }
  g.qp.qp_base.qp_num = g.real[kDefault]->qp_num;
  g.qp.qp_base.context = context.handle();
  g.remote.qpn = 0x777;
  g.attr_mask = IBV_QP_SQ_PSN;  // it has reached RTS
  if (options.guarded) g.accept[kDefault] = Accept::kGuard;
  for (CompletionQueue* cq : {send_cq, recv_cq}) {
    if (cq->groups.empty() || cq->groups.back() != &g) cq->groups.push_back(&g);
  }
  context.groups.push_back(&g);
  groups_.push_back(std::move(group));
  return &g;
}

MemoryRegion* World::make_region(uint32_t lkey, uint32_t rkey, MemoryRegion::Backup backup) {
  auto region = std::make_unique<MemoryRegion>();
  region->mr.lkey = lkey;
  region->mr.rkey = rkey;
  region->mr.pd = &pd.pd;
  region->backup = backup;
  fake_mrs_.push_back(std::make_unique<ibv_mr>());
  fake_mrs_.back()->lkey = lkey + 0x1000;
  fake_mrs_.back()->rkey = rkey + 0x2000;
  region->real[kBackup] = fake_mrs_.back().get();
  context.regions[lkey] = region.get();
  regions_.push_back(std::move(region));
  return regions_.back().get();
}

namespace {

struct SimpleSend {
  ibv_sge sge{0x5000, 8, kLkey};
  ibv_send_wr wr{};

  SimpleSend(uint64_t wr_id, ibv_wr_opcode opcode, bool signaled) {
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = signaled ? IBV_SEND_SIGNALED : 0;
    if (is_atomic(opcode)) {
      wr.wr.atomic = {0x9000 + wr_id, 1, 2, kRkey};
    } else {
      wr.wr.rdma = {0x9000 + wr_id, kRkey};
    }
  }
};

}  // namespace

void post_send(Group& group, const ibv_send_wr& wr) {
  ibv_qp* real = group.real[kDefault];
  ibv_send_wr copy = wr, *bad;
  ASSERT_EQ(real->context->ops.post_send(real, &copy, &bad), 0);
  group.send.journal.append(wr);
}

void post_send(Group& group, uint64_t wr_id, ibv_wr_opcode opcode, bool signaled) {
  post_send(group, SimpleSend(wr_id, opcode, signaled).wr);
}

void park_send(Group& group, uint64_t wr_id, ibv_wr_opcode opcode, bool signaled) {
  group.send.journal.append(SimpleSend(wr_id, opcode, signaled).wr);
}

void post_recv(Group& group, uint64_t wr_id, uint32_t lkey) {
  ibv_sge sge{0x6000, 8, lkey};
  ibv_recv_wr wr{wr_id, nullptr, &sge, 1}, *bad;
  ibv_qp* real = group.real[kDefault];
  ASSERT_EQ(real->context->ops.post_recv(real, &wr, &bad), 0);
  group.recv.journal.append(wr);
}

std::vector<ibv_wc> poll_all(CompletionQueue* cq) {
  std::vector<ibv_wc> all;
  ibv_wc wc[4];
  int got;
  while ((got = poll_slow(*cq, 4, wc)) > 0) all.insert(all.end(), wc, wc + got);
  return all;
}

std::vector<uint64_t> wr_ids(const std::vector<ibv_wc>& completions) {
  std::vector<uint64_t> ids;
  for (const ibv_wc& wc : completions) ids.push_back(wc.wr_id);
  return ids;
}

std::chrono::steady_clock::time_point soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(5);
}

}  // namespace group
}  // namespace shift
