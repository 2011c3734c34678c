#include "group/test/fake.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "group/command_threads.h"

namespace shift::group {
namespace {

uint32_t address(uint8_t net, int member) {
  const uint8_t bytes[4] = {127, net, static_cast<uint8_t>(member), 1};
  uint32_t ip_be;
  std::memcpy(&ip_be, bytes, sizeof ip_be);
  return ip_be;
}

}  // namespace

World::World(uint8_t net, int members) {
  stock = fake_stock();
  fault_sink = &sink;
  std::strcpy(device_.dev.name, "fake_0");
  device_.member_count = context.member_count = members;
  for (int member = 0; member < members; member++) {
    FakeNic& nic =
        nics_.emplace_back(("fake_" + std::to_string(member)).c_str(), address(net, member));
    device_.real[member] = &nic.device;
    context.members[member].real = nic.context();
    context.members[member].gids = {nic.gid};
    pd.real[member] = &nic.pd;
  }
  context.device = &device_;
  context.verbs.context.device = &device_.dev;
  pd.pd.context = context.handle();
  make_region(kLkey, kRkey);
}

World::~World() {
  fault_sink = nullptr;
}

CompletionQueue* World::make_cq() {
  auto cq = std::make_unique<CompletionQueue>();
  cq->context = &context;
  cq->cq.context = context.handle();
  for (int member = 0; member < context.member_count; member++) {
    cq->real[member] = &nic(member).cq_make(64).cq;
  }
  context.cqs.push_back(cq.get());
  cqs_.push_back(std::move(cq));
  return cqs_.back().get();
}

SharedQueue* World::make_srq(uint32_t max_wr, uint32_t max_sge) {
  auto srq = std::make_unique<SharedQueue>(context, max_wr, max_sge);
  srq->srq.context = context.handle();
  srq->pd = &pd;
  for (int member = 0; member < context.member_count; member++) {
    srq->members[member].real = &nic(member).srq_make().srq;
  }
  context.srqs.push_back(srq.get());
  srqs_.push_back(std::move(srq));
  return srqs_.back().get();
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
  g.tag = reinterpret_cast<uintptr_t>(&g);
  g.life_begin();
  for (int member = 0; member < (options.twins ? context.member_count : 1); member++) {
    FakeQp& made =
        nic(member).qp_make(send_cq->real[member], recv_cq->real[member], options.all_signaled);
    made.qp.state = IBV_QPS_RTS;
    if (options.srq != nullptr) made.srq = &FakeSrq::of(options.srq->members[member].real);
    g.real[member] = &made.qp;
    g.life.members[member].can_send = true;
    context.members[member].qps.insert(made.qp.qp_num, &g.counters);
  }
  g.qp.qp_base.qp_num = g.real[kDefault]->qp_num;
  g.qp.qp_base.state = IBV_QPS_RTS;
  g.qp.qp_base.context = context.handle();
  g.life.ends.local = {nics_[0].gid, g.qpn()};
  g.life.ends.remote.qpn = 0x777;
  g.life.asked.attr.path_mtu = IBV_MTU_1024;
  g.life.asked.mask = IBV_QP_SQ_PSN;  // the QP has reached RTS
  if (options.guarded) g.life.errors.members[kDefault].accept = Accept::kGuard;
  for (CompletionQueue* cq : {send_cq, recv_cq}) {
    if (cq->groups.empty() || cq->groups.back() != &g) cq->groups.push_back(&g);
  }
  if (options.srq != nullptr) {
    g.srq = options.srq;
    g.cap.max_recv_wr = 0;
    EXPECT_EQ(receives_join(g, kDefault), SharedQueue::Join::kDone);
    recv_cq->slow_groups++;
  }
  context.groups.push_back(&g);
  groups_.push_back(std::move(group));
  return &g;
}

void World::let_go(Group* group) {
  for (auto& owned : groups_) {
    if (owned.get() == group) (void)owned.release();
  }
}

void World::let_go(CompletionQueue* cq) {
  for (auto& owned : cqs_) {
    if (owned.get() == cq) (void)owned.release();
  }
}

MemoryRegion* World::make_region(uint32_t lkey, uint32_t rkey, MemoryRegion::Twin twin) {
  auto region = std::make_unique<MemoryRegion>();
  region->mr.lkey = lkey;
  region->mr.rkey = rkey;
  region->mr.pd = &pd.pd;
  for (int member = 0; member < context.member_count; member++) {
    ibv_mr& real = nic(member).mrs.emplace_back();
    real.lkey = lkey_on(member, lkey);
    real.rkey = rkey_on(member, rkey);
    region->members[member].real = &real;
    region->members[member].twin = twin;
  }
  context.regions.add(*region);
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
  group.send.journal.add(wr);
}

void post_send(Group& group, uint64_t wr_id, ibv_wr_opcode opcode, bool signaled) {
  post_send(group, SimpleSend(wr_id, opcode, signaled).wr);
}

void park_send(Group& group, uint64_t wr_id, ibv_wr_opcode opcode, bool signaled) {
  group.send.journal.add(SimpleSend(wr_id, opcode, signaled).wr);
}

void path_send(Group& group, uint64_t wr_id, ibv_wr_opcode opcode, bool signaled) {
  std::lock_guard lock(group.send.mutex);
  ASSERT_EQ(group.send.route, Route::kOnPath);
  group.send.journal.add(SimpleSend(wr_id, opcode, signaled).wr);
  ASSERT_EQ(pump(group), 0);
}

void post_recv(Group& group, uint64_t wr_id, uint32_t lkey) {
  ibv_sge sge{0x6000, 8, lkey};
  ibv_recv_wr wr{wr_id, nullptr, &sge, 1}, *bad;
  ibv_qp* real = group.real[kDefault];
  ASSERT_EQ(real->context->ops.post_recv(real, &wr, &bad), 0);
  group.recv.journal.append(wr);
}

std::vector<bool> fence(std::vector<Group*> groups, std::chrono::nanoseconds patience) {
  park(groups);
  // This thread runs the commands itself.
  CommandThreads* const threads = std::exchange(command_threads, nullptr);
  Fence shut(std::move(groups), patience);
  while (!shut.step(Clock::now())) sched_yield();
  command_threads = threads;
  std::vector<bool> proven;
  for (const Fence::Entry& entry : shut.entries()) {
    proven.push_back(entry.result == Fence::Result::kProven);
  }
  return proven;
}

size_t World::believe() {
  const auto doubted = std::exchange(sink.doubted, {});
  for (const auto& [group, member] : doubted) (void)kept_pass(*group, member);
  return doubted.size();
}

void leave_for(Group& group, int member, int peer_member) {
  ASSERT_TRUE(fence({&group})[0]);
  ASSERT_EQ(commit(group, member, peer_member), Commit::kDone);
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

std::vector<uint64_t> posted_ids(const FakeQp& qp, const Group& group) {
  std::vector<uint64_t> ids;
  for (const PostedSend& send : qp.sends) {
    if (!has_own_number(send.wr.wr_id, group)) ids.push_back(send.wr.wr_id);
  }
  return ids;
}

}  // namespace shift::group
