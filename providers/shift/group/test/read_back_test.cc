// A QP that is connected to itself: which NICs its READs go through.
#include "group/read_back.h"

#include <gtest/gtest.h>
#include <time.h>

#include "group/commit.h"
#include "group/locked.h"
#include "group/test/batch.h"
#include "group/test/fake.h"
#include "group/test/fake_commands.h"

namespace shift::group {
namespace {

using State = ReadBack::State;
using Ids = std::vector<uint64_t>;

class ReadsBack : public ::testing::Test {
 protected:
  ReadsBack()
      : cq_(world_.make_cq()), self_(world_.make_group(cq_)), data_(world_.make_group(cq_)) {
    command_threads = &commands_;
    self_->life.is_self = true;
    read_back_prepare(*self_);
    make_all();
  }
  ~ReadsBack() override {
    read_back_end(*self_);
    tasks_.run();
  }
  void make_all() {
    for (int m = 0; m < world_.context.member_count; m++) read_back_make(*self_, m);
  }

  ReadBack::Member& on(int member) { return self_->read_back.members[member]; }
  FakeQp& own(int member) { return World::fake(on(member).qp); }
  Ids posted(int member) { return posted_ids(World::fake(self_, member), *self_); }
  // The data goes to the backup because of the peer's fault, which does not affect the other QP.
  void data_moves(int member = kBackup) {
    read_back_begin(*self_, member);
    leave_for(*data_, member, member);
  }
  void data_is_home() {
    read_back_begin(*self_, kDefault);
    data_->life.path.member = data_->life.path.peer_member = kDefault;
    data_->life.path.off_default = false;
  }
  void read(uint64_t wr_id) { path_send(*self_, wr_id, IBV_WR_RDMA_READ); }
  bool is_hot() const { return self_->send.route == Route::kOnDefault; }

  World world_;
  LazyTasks tasks_;
  FakeCommands commands_{tasks_};
  CompletionQueue* cq_;
  Group* self_;
  Group* data_;
};

TEST_F(ReadsBack, EachMemberHasAQpThatIsConnectedToItself) {
  for (int m = 0; m < world_.context.member_count; m++) {
    EXPECT_EQ(on(m).state, State::kReady);
    EXPECT_EQ(own(m).qp.state, IBV_QPS_RTS);
    EXPECT_EQ(own(m).attr.dest_qp_num, own(m).qp.qp_num);
  }
  EXPECT_FALSE(read_back_owed(*self_));
  EXPECT_TRUE(is_hot());
}

TEST_F(ReadsBack, AReadWaitsForTheNicThatDataCameThrough) {
  data_moves();
  EXPECT_FALSE(is_hot());
  EXPECT_TRUE(own(kBackup).sends.empty());
  read(7);
  EXPECT_EQ(posted(kDefault), Ids{});
  EXPECT_EQ(world_.sink.pump_wanted_calls, 2);  // one was about leaving the hot path
  EXPECT_TRUE(waits_for_registration(*self_));
  ASSERT_EQ(own(kBackup).sends.size(), 1u);
  const PostedSend& sent = own(kBackup).sends[0];
  EXPECT_EQ(sent.wr.opcode, IBV_WR_RDMA_READ);
  EXPECT_EQ(sent.wr.wr.rdma.rkey, kBackupRkey);
  EXPECT_EQ(sent.sges[0].length, 1u);
  EXPECT_NE(sent.sges[0].addr, 0x6000u);  // the program's memory is the program's READ's
  EXPECT_TRUE(own(kThird).sends.empty());
  ASSERT_TRUE(own(kBackup).complete_send());
  EXPECT_FALSE(waits_for_registration(*self_));
  EXPECT_EQ(go_on(*self_), 0);
  EXPECT_EQ(posted(kDefault), Ids{7});
  // The data still comes through that NIC.
  read(8);
  EXPECT_EQ(own(kBackup).sends.size(), 2u);
  EXPECT_EQ(posted(kDefault), Ids{7});
}

TEST_F(ReadsBack, OtherRequestsDoNotWait) {
  data_moves();
  path_send(*self_, 5, IBV_WR_RDMA_WRITE);
  EXPECT_EQ(posted(kDefault), Ids{5});
  EXPECT_TRUE(own(kBackup).sends.empty());
}

TEST_F(ReadsBack, AllNicsThatDataCameThroughAreRead) {
  data_moves();
  data_moves(kThird);
  read(7);
  EXPECT_EQ(own(kBackup).sends.size(), 1u);
  EXPECT_EQ(own(kThird).sends.size(), 1u);
  EXPECT_TRUE(own(kDefault).sends.empty());  // the program's own READ goes there
  ASSERT_TRUE(own(kBackup).complete_send());
  EXPECT_EQ(go_on(*self_), 0);
  EXPECT_EQ(posted(kDefault), Ids{});
  ASSERT_TRUE(own(kThird).complete_send());
  EXPECT_EQ(go_on(*self_), 0);
  EXPECT_EQ(posted(kDefault), Ids{7});
}

TEST_F(ReadsBack, OneMoreReadAfterTheDataIsHomeEndsIt) {
  data_moves();
  data_is_home();
  EXPECT_FALSE(is_hot());
  read(7);
  ASSERT_TRUE(own(kBackup).complete_send());
  EXPECT_EQ(go_on(*self_), 0);
  EXPECT_EQ(posted(kDefault), Ids{7});
  EXPECT_FALSE(read_back_owed(*self_));
  EXPECT_TRUE(is_hot());
}

TEST_F(ReadsBack, DataThatLeavesAgainMeanwhileIsNotForgotten) {
  data_moves();
  data_is_home();
  read(7);
  read_back_begin(*self_, kThird);
  ASSERT_TRUE(own(kBackup).complete_send());
  EXPECT_EQ(go_on(*self_), 0);
  EXPECT_EQ(posted(kDefault), Ids{7});
  EXPECT_TRUE(read_back_owed(*self_));
  EXPECT_FALSE(is_hot());
  read(8);
  EXPECT_EQ(own(kThird).sends.size(), 1u);
}

// C6: nothing waits for a batch that a thread began before the QP was connected to itself.
TEST_F(ReadsBack, ARoundWaitsForABatchThatIsOlderThanTheConnection) {
  OpenBatch batch(*self_);
  if (!batch.is_hot) GTEST_SKIP() << "no membarrier(2) here";
  ASSERT_TRUE(batch.lets_return([&] { read_back_begin(*self_, kBackup); }));
  ASSERT_EQ(world_.sink.faults.size(), 1u);
  EXPECT_EQ(world_.sink.faults[0].event, fsm::Event::kPathFault);
  EXPECT_EQ(self_->send.route, Route::kParked);
  EXPECT_FALSE(batch_is_over(*self_));
}

TEST_F(ReadsBack, AQpThatHasMovedItselfReadsThroughTheDefault) {
  read_back_begin(*self_, kBackup);
  leave_for(*self_, kBackup, kBackup);
  {
    std::lock_guard lock(self_->send.mutex);
    self_->send.route = Route::kOnPath;
    self_->life.remote_keys[kBackup][kRkey] = kBackupRkey;
  }
  for (uint64_t id : {7, 8}) {  // for as long as it is away, though the data never was
    read(id);
    ASSERT_EQ(own(kDefault).sends.size(), id - 6);
    EXPECT_TRUE(own(kBackup).sends.empty());
    ASSERT_TRUE(own(kDefault).complete_send());
    EXPECT_EQ(go_on(*self_), 0);
  }
  EXPECT_EQ(posted(kBackup), (Ids{7, 8}));
}

TEST_F(ReadsBack, DataLeavesANicThatFailsBeforeTheRead) {
  data_moves();
  read(7);
  own(kBackup).break_with(IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(go_on(*self_), 0);
  EXPECT_EQ(posted(kDefault), Ids{});
  EXPECT_EQ(on(kBackup).state, State::kBroken);
  EXPECT_EQ(world_.sink.unread, std::vector{kBackup});
  EXPECT_TRUE(waits_for_registration(*self_));
  ASSERT_TRUE(fence({data_})[0]);
  EXPECT_FALSE(waits_for_registration(*self_));
  EXPECT_EQ(go_on(*self_), 0);
  EXPECT_EQ(posted(kDefault), Ids{7});
  read(8);  // nothing comes through the NIC
  EXPECT_EQ(posted(kDefault), (Ids{7, 8}));
}

TEST_F(ReadsBack, DataThatCannotLeaveANicThatFailsIsNotWaitedFor) {
  data_moves();
  data_->life.control.state = fsm::State::kFailed;
  read(7);
  own(kBackup).break_with(IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(go_on(*self_), 0);
  EXPECT_EQ(posted(kDefault), Ids{7});
  EXPECT_TRUE(world_.sink.unread.empty());
}

TEST_F(ReadsBack, ANicThatFailedIsReadWhenDataComesThroughItAgain) {
  data_moves();
  read(7);
  own(kBackup).break_with(IBV_WC_RETRY_EXC_ERR);
  ASSERT_TRUE(fence({data_})[0]);
  EXPECT_EQ(go_on(*self_), 0);
  EXPECT_EQ(posted(kDefault), Ids{7});
  read_back_begin(*self_, kBackup);
  ASSERT_EQ(commit(*data_, kBackup, kBackup), Commit::kDone);
  read(8);
  EXPECT_EQ(posted(kDefault), Ids{7});
  EXPECT_EQ(world_.sink.read_back_wanted_calls, 1);
  make_all();
  EXPECT_EQ(go_on(*self_), 0);
  ASSERT_EQ(own(kBackup).sends.size(), 1u);
  ASSERT_TRUE(own(kBackup).complete_send());
  EXPECT_EQ(go_on(*self_), 0);
  EXPECT_EQ(posted(kDefault), (Ids{7, 8}));
}

// The program could not destroy its domain otherwise.
TEST_F(ReadsBack, WhatWasMadeGoesInWhicheverStateItIs) {
  data_moves();
  read(7);
  own(kBackup).break_with(IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(go_on(*self_), 0);
  read_back_begin(*self_, kBackup);  // it has to be made anew
  EXPECT_EQ(on(kBackup).state, State::kNone);
  ASSERT_EQ(world_.context.own_qps.size(), 3u);
  read_back_end(*self_);
  tasks_.run();
  EXPECT_TRUE(world_.context.own_qps.empty());
}

TEST_F(ReadsBack, NothingComesThroughADeadNicOrAPortThatIsDown) {
  data_moves();
  data_moves(kThird);
  world_.context.members[kBackup].port_down = true;
  world_.context.members[kThird].dead = true;
  read(7);
  EXPECT_EQ(posted(kDefault), Ids{7});
}

TEST_F(ReadsBack, DataLeavesANicThatDoesNotAnswer) {
  data_moves();
  read(7);
  EXPECT_EQ(posted(kDefault), Ids{});
  EXPECT_TRUE(world_.sink.unread.empty());
  const timespec longer{0, 60'000'000};
  nanosleep(&longer, nullptr);
  EXPECT_EQ(go_on(*self_), 0);
  EXPECT_EQ(world_.sink.unread, std::vector{kBackup});
  ASSERT_TRUE(fence({data_})[0]);
  EXPECT_EQ(go_on(*self_), 0);
  EXPECT_EQ(posted(kDefault), Ids{7});
}

TEST_F(ReadsBack, MemoryThatTheNicCannotReachIsNotRead) {
  world_.make_region(0x30, 0x40, MemoryRegion::Twin::kFailed);
  data_moves();
  std::lock_guard lock(self_->send.mutex);
  ibv_sge sge{0x6000, 8, kLkey};
  ibv_send_wr wr{};
  wr.wr_id = 7;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_READ;
  wr.wr.rdma.rkey = 0x40;
  self_->send.journal.add(wr);
  EXPECT_EQ(pump(*self_), 0);
  EXPECT_EQ(posted(kDefault), Ids{7});
}

}  // namespace
}  // namespace shift::group
