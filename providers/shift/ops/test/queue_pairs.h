// A QP on a host without hardware or threads, for tests of what the application does with it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "group/test/fake.h"
#include "ops/entry.h"
#include "ops/tables.h"
#include "ops/test/runtime.h"

namespace shift::ops {

using group::CompletionQueue;
using group::FakeQp;
using group::Group;
using group::kBackup;
using group::kDefault;
using group::World;
using Completions = std::vector<std::pair<uint64_t, ibv_wc_status>>;

class QueuePairs : public ::testing::Test {
 protected:
  QueuePairs() {
    in_use = &runtime_;
    coordinator_.network_set(std::make_unique<EmptyNetwork>());
  }
  ~QueuePairs() override { in_use = nullptr; }

  FakeQp& on_default() { return World::fake(group_, kDefault); }

  void send(uint64_t wr_id) {
    ibv_sge sge{0x5000, 8, group::kLkey};
    ibv_send_wr wr{}, *bad;
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    ASSERT_EQ(post_send(group_->handle(), &wr, &bad), 0);
  }
  void receive(uint64_t wr_id) {
    ibv_sge sge{0x6000, 8, group::kLkey};
    ibv_recv_wr wr{wr_id, nullptr, &sge, 1}, *bad;
    ASSERT_EQ(post_recv(group_->handle(), &wr, &bad), 0);
  }
  Completions poll_in_order() {
    Completions all;
    ibv_wc wc[16];
    for (int got; (got = poll_cq(&cq_->cq, 16, wc)) > 0;) {
      for (int i = 0; i < got; i++) all.emplace_back(wc[i].wr_id, wc[i].status);
    }
    return all;
  }
  // Sorted, since the order between sends and receives does not matter.
  Completions poll() {
    Completions all = poll_in_order();
    std::ranges::sort(all);
    return all;
  }
  // The default NIC breaks, and the application polls: it must not see the error.
  void break_default() {
    on_default().break_with(IBV_WC_RETRY_EXC_ERR);
    ASSERT_EQ(poll(), Completions{});
    ASSERT_TRUE(group_->life.errors.members[kDefault].fault_reported);
  }
  // A job of the control thread's for the group, as in control/jobs.h.
  template <typename Job>
  void job_for(Group* group, Job job) {
    ++group->jobs;
    worker_.call_soon([held = group::Held(group), job] {
      job(*held);
      --held->jobs;
    });
  }
  void to_error() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    ASSERT_EQ(modify_qp(group_->handle(), &attr, IBV_QP_STATE), 0);
  }

  World world_;
  LazyLoop control_, worker_;
  group::FakeCommands commands_{worker_};
  control::Coordinator coordinator_{control_, commands_};
  control::Runtime runtime_{control_, coordinator_};
  CompletionQueue* cq_ = world_.make_cq();
  Group* group_ = world_.make_group(cq_);
};

constexpr auto kFlushed = IBV_WC_WR_FLUSH_ERR;

class OffTheDefault : public QueuePairs {
 protected:
  OffTheDefault() {
    group::leave_for(*group_, kBackup, kBackup);
    EXPECT_EQ(group::replay(*group_, 0).refusal, nullptr);
  }
  FakeQp& on_backup() { return World::fake(group_, kBackup); }
  // The remote key's counterpart on the backup is not known, unless the test sets it.
  void write(uint64_t wr_id, uint32_t lkey = group::kLkey) {
    ibv_sge sge{0x5000, 8, lkey};
    ibv_send_wr wr{}, *bad;
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {0x7000, group::kRkey};
    ASSERT_EQ(post_send(group_->handle(), &wr, &bad), 0);
  }
};

}  // namespace shift::ops
