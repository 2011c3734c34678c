// Two groups on one shared receive queue, between fake NICs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "group/shared_queue.h"
#include "group/test/fake.h"
#include "group/test/fake_commands.h"

namespace shift::group {

class Shared : public ::testing::Test {
 protected:
  using Ids = std::vector<uint64_t>;
  using Join = SharedQueue::Join;

  Shared() { command_threads = &commands_; }
  // Does what the command threads were asked for, as in receives_wanted().
  void recall() {
    const uint32_t asked = srq_->recall_asked;
    for (int m = 0; m < world_.context.member_count; m++)
      if ((asked >> m & 1) != 0 || asked == 0) srq_->recall_some(m);
    tasks_.run();
  }
  Group* group_make() {
    World::Options options;
    options.srq = srq_;
    return world_.make_group(cq_, cq_, options);
  }
  int post(const Ids& ids, int num_sge = 1, uint32_t lkey = kLkey) {
    ibv_sge sge[3] = {{0x6000, 8, lkey}, {0x7000, 8, lkey}, {0x8000, 8, lkey}};
    std::vector<ibv_recv_wr> wrs;
    for (uint64_t id : ids) wrs.push_back({id, nullptr, sge, num_sge});
    for (size_t i = 0; i + 1 < wrs.size(); i++) wrs[i].next = &wrs[i + 1];
    ibv_recv_wr* bad = nullptr;
    const int error = srq_->post(wrs.data(), &bad);
    bad_id_ = bad != nullptr ? bad->wr_id : 0;
    return error;
  }
  // The application's numbers of the receives that are on a member's SRQ, in order.
  Ids on(int member) {
    Ids ids;
    ibv_wc wc{};
    wc.opcode = IBV_WC_RECV;
    for (const PostedRecv& one : real(member).waiting) {
      wc.wr_id = one.wr_id;
      ids.push_back(srq_->find(wc)->wr_id);
    }
    return ids;
  }
  FakeSrq& real(int member) { return FakeSrq::of(srq_->members[member].real); }
  // A message to the group's QP on its member takes a receive.
  void receive(Group* group) {
    ASSERT_TRUE(World::fake(group, group->life.path.member).complete_recv());
  }
  void last_taken(Group* group) { receives_last_taken(*group, group->life.path.member); }
  bool leave(std::vector<Group*> groups) {
    for (Group* group : groups) last_taken(group);
    return std::ranges::all_of(fence(groups), [](bool proven) { return proven; });
  }
  Commit go(Group* group, int member) { return commit(*group, member, member); }

  World world_;
  LazyTasks tasks_;
  FakeCommands commands_{tasks_};
  CompletionQueue* cq_ = world_.make_cq();
  SharedQueue* srq_ = world_.make_srq(8);
  Group* a_ = group_make();
  Group* b_ = group_make();
  uint64_t bad_id_ = 0;
};

}  // namespace shift::group
