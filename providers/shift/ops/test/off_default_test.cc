// What becomes of requests that the application posts off the default NIC, when their NIC or the
// application ends them.
#include <gtest/gtest.h>

#include "ops/query_qp.h"
#include "ops/test/queue_pairs.h"

namespace shift::ops {
namespace {

// C6: the requests that wait for a remote key are flushed too.
TEST_F(OffTheDefault, WhatWaitsForAKeyIsFlushedWithTheQp) {
  send(1);
  write(2);
  send(3);
  ASSERT_EQ(on_backup().sends.size(), 1u) << "the WRITE waits, and what follows it";
  to_error();
  write(4);
  EXPECT_EQ(poll_in_order(),
            (Completions{{1, kFlushed}, {2, kFlushed}, {3, kFlushed}, {4, kFlushed}}));
}

// C6: so is a request that waits for the registration of its own region.
TEST_F(OffTheDefault, WhatWaitsForARegistrationIsFlushedWithTheQp) {
  world_.make_region(0x50, 0x60, group::MemoryRegion::Twin::kQueued);
  group_->life.remote_keys[kBackup][group::kRkey] = 0x99;
  send(1);
  write(2, 0x50);
  ASSERT_EQ(on_backup().sends.size(), 1u);
  to_error();
  EXPECT_EQ(poll_in_order(), (Completions{{1, kFlushed}, {2, kFlushed}}));
}

// Only the way to ERR flushes.
TEST_F(OffTheDefault, WhatWaitsForAKeyGoesOnWaitingWhenTheQpIsChanged) {
  write(1);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(modify_qp(group_->handle(), &attr, IBV_QP_STATE), 0);
  EXPECT_EQ(poll(), Completions{});
  to_error();
  EXPECT_EQ(poll(), (Completions{{1, kFlushed}}));
}

// The receive waits for a path that will not come.
TEST_F(OffTheDefault, AReceiveThatWasRefusedIsFlushedWithTheQp) {
  receive(11);
  on_backup().post_error = EIO;
  receive(12);
  on_backup().post_error = 0;
  to_error();
  EXPECT_EQ(poll(), (Completions{{11, kFlushed}, {12, kFlushed}}));
}

// The application tries to end its QP, and the stock library refuses. The layer has forgotten the
// QP by then.
class LeftAlone : public OffTheDefault {
 protected:
  LeftAlone() { world_.make_region(0x50, 0x60, group::MemoryRegion::Twin::kQueued); }
  void destroy_in_vain() {
    StockVerbs table = *stock;
    table.destroy_qp = [](ibv_qp*) { return EBUSY; };
    const StockVerbs* const before = std::exchange(stock, &table);
    EXPECT_EQ(destroy_qp(group_->handle()), EBUSY);
    stock = before;
  }
  void break_in_vain() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    on_backup().modify_error = EINVAL;
    EXPECT_EQ(modify_qp(group_->handle(), &attr, IBV_QP_STATE), EINVAL);
    on_backup().modify_error = 0;
  }
};

// C6
TEST_F(LeftAlone, WhatWaitsForAKeyIsFlushed) {
  send(1);
  ASSERT_TRUE(on_backup().complete_send());
  write(2);
  destroy_in_vain();
  write(3);
  EXPECT_EQ(poll(), (Completions{{1, IBV_WC_SUCCESS}, {2, kFlushed}, {3, kFlushed}}));
}

TEST_F(LeftAlone, WhatWaitsForAKeyIsFlushedWhereTheNicRefusesTheChange) {
  write(1);
  break_in_vain();
  EXPECT_EQ(poll(), (Completions{{1, kFlushed}}));
}

TEST_F(LeftAlone, WhatWaitsForARegistrationIsFlushed) {
  ibv_sge sge{0x6000, 8, 0x50};
  ibv_recv_wr wr{11, nullptr, &sge, 1}, *bad;
  ASSERT_EQ(post_recv(group_->handle(), &wr, &bad), 0);
  receive(12);
  destroy_in_vain();
  EXPECT_EQ(poll(), (Completions{{11, kFlushed}, {12, kFlushed}}));
}

// The key has come, and nobody has posted the request yet.
TEST_F(LeftAlone, WhatWaitsForNothingAnyMoreIsPosted) {
  write(1);
  group_->life.remote_keys[kBackup][group::kRkey] = 0x99;
  destroy_in_vain();
  ASSERT_TRUE(on_backup().complete_send());
  EXPECT_EQ(poll(), (Completions{{1, IBV_WC_SUCCESS}}));
}

TEST_F(LeftAlone, WhatWouldWaitIsRefused) {
  destroy_in_vain();
  ibv_sge sge{0x5000, 8, group::kLkey};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.wr.rdma = {0x7000, group::kRkey};
  EXPECT_EQ(post_send(group_->handle(), &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
  ibv_recv_wr recv{11, nullptr, &sge, 1}, *bad_recv = nullptr;
  sge.lkey = 0x50;
  EXPECT_EQ(post_recv(group_->handle(), &recv, &bad_recv), EINVAL);
  send(2);
  ASSERT_TRUE(on_backup().complete_send());
  EXPECT_EQ(poll(), (Completions{{2, IBV_WC_SUCCESS}})) << "the QP goes on";
}

// The backup's NIC hangs, and is not the program's own.
class OnALateNic : public OffTheDefault {
 protected:
  OnALateNic() {
    world_.context.members[kBackup].nic = 1;
    world_.context.members[group::kThird].nic = 2;
    send(1);
    send(2);
    receive(11);
  }
  void expect_flushed_at_once() {
    to_error();
    EXPECT_FALSE(on_backup().in_error()) << "the program has waited for the NIC";
    send(3);
    const Completions all{{1, IBV_WC_RETRY_EXC_ERR}, {2, kFlushed}, {3, kFlushed}, {11, kFlushed}};
    EXPECT_EQ(poll(), all);
    commands_.answer(1);
    EXPECT_TRUE(on_backup().in_error()) << "C3";
    EXPECT_EQ(poll(), Completions{}) << "nothing comes twice";
  }
};

TEST_F(OnALateNic, AQpIsBrokenWithoutIt) {
  commands_.late.insert(1);
  expect_flushed_at_once();
}

TEST_F(OnALateNic, AQpIsBrokenWithoutItsAnswer) {
  commands_.hangs.insert(1);
  expect_flushed_at_once();
}

TEST_F(OnALateNic, AQpIsNotChanged) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  commands_.hangs.insert(1);
  for (int i = 0; i < 2; i++) EXPECT_EQ(modify_qp(group_->handle(), &attr, IBV_QP_STATE), EIO);
  EXPECT_TRUE(on_backup().walk.empty());
  commands_.answer(1);
  ASSERT_TRUE(on_backup().complete_send());
  EXPECT_EQ(poll(), (Completions{{1, IBV_WC_SUCCESS}})) << "traffic goes on";
}

// Nothing masks a fault of the backup any more, so nobody would bring what it refuses to another
// path.
class Unguarded : public OffTheDefault {
 protected:
  Unguarded() {
    group_->life.errors.members[kBackup].accept = group::Accept::kPass;
    group::fault_sink = &world_.sink;
  }
  // Posts two SENDs. Returns the result, and sets `refused` to the one that came back, or to 0.
  int send_two(uint64_t wr_id, uint64_t* refused) {
    ibv_sge sge{0x5000, 8, group::kLkey};
    ibv_send_wr wrs[2]{}, *bad = nullptr;
    for (int i : {0, 1}) {
      wrs[i].wr_id = wr_id + i;
      wrs[i].next = i == 0 ? &wrs[1] : nullptr;
      wrs[i].sg_list = &sge;
      wrs[i].num_sge = 1;
      wrs[i].opcode = IBV_WR_SEND;
      wrs[i].send_flags = IBV_SEND_SIGNALED;
    }
    const int error = post_send(group_->handle(), wrs, &bad);
    *refused = bad != nullptr ? bad->wr_id : 0;
    return error;
  }
};

TEST_F(Unguarded, AReceiveThatTheNicRefusesComesBack) {
  ibv_sge sge{0x6000, 8, group::kLkey};
  ibv_recv_wr wr{11, nullptr, &sge, 1}, *bad = nullptr;
  for (int error : {EIO, ENOMEM}) {
    on_backup().post_error = error;
    EXPECT_EQ(post_recv(group_->handle(), &wr, &bad), error);
    EXPECT_EQ(bad, &wr);
  }
  on_backup().post_error = 0;
  receive(12);
  ASSERT_TRUE(on_backup().complete_recv());
  EXPECT_EQ(poll(), (Completions{{12, IBV_WC_SUCCESS}}));
}

TEST_F(Unguarded, ARequestThatTheNicRefusesComesBack) {
  uint64_t refused = 0;
  on_backup().sends_accepted = 1;
  EXPECT_EQ(send_two(1, &refused), ENOMEM);
  EXPECT_EQ(refused, 2u);
  on_backup().post_error = EIO;
  EXPECT_EQ(send_two(3, &refused), EIO);
  EXPECT_EQ(refused, 3u);
  on_backup().post_error = 0;
  on_backup().sends_accepted = INT_MAX;
  send(5);
  while (on_backup().complete_send()) continue;
  EXPECT_EQ(poll(), (Completions{{1, IBV_WC_SUCCESS}, {5, IBV_WC_SUCCESS}}));
}

// The default NIC is not the path's, so the group does not care for it; its path's errors are
// shown.
TEST_F(Unguarded, FaultsOfTheDefaultAreMasked) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_TRUE(is_masked(*group_));
  on_backup().qp.state = IBV_QPS_ERR;
  ASSERT_EQ(query_qp(group_->handle(), &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
  EXPECT_TRUE(is_masked(*group_));
  group::fail(*group_);
  EXPECT_FALSE(is_masked(*group_));
}

// An earlier call has returned without an error, so the request of that call cannot come back.
TEST_F(Unguarded, ARequestThatWaitedForAKeyFailsItsGroupWhenTheNicRefusesIt) {
  write(1);
  group_->life.remote_keys[kBackup][group::kRkey] = 0x99;
  on_backup().post_error = EIO;
  uint64_t refused = 0;
  EXPECT_EQ(send_two(2, &refused), EIO);
  EXPECT_EQ(refused, 2u);
  ASSERT_EQ(world_.sink.faults.size(), 1u);
  EXPECT_EQ(world_.sink.faults[0].event, fsm::Event::kReplayRefused);
}

// If the protection ends before the fault is handled, the application still gets the error.
TEST_F(OffTheDefault, WhatTheNicRefusesIsOwedToTheApplication) {
  on_backup().post_error = EIO;
  receive(11);
  EXPECT_TRUE(group_->life.errors.members[kBackup].fault_reported);
  group_->life.errors.members[kBackup].fault_reported = false;
  send(1);
  EXPECT_TRUE(group_->life.errors.members[kBackup].fault_reported);
}

}  // namespace
}  // namespace shift::ops
