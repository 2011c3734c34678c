// What becomes of requests that the application posts off the default NIC, when their NIC or the
// application ends them.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace shift::ops
