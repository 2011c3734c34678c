// A session ends off the default path while requests wait for what the path's NICs need: none of
// them waits for ever (C6).
#include <gtest/gtest.h>

#include <string>

#include "control/test/two_hosts.h"

namespace shift::control {
namespace {

using fsm::State;
using group::kDefault;
using std::chrono::milliseconds;
using Twin = group::MemoryRegion::Twin;

// The peer's answers about keys are lost.
class KeysLeft : public Rounds {
 protected:
  KeysLeft() {
    a_.port(kDefault, false);
    run(milliseconds(50));
    EXPECT_NE(a_.group->life.path.peer_member, kDefault);
    network_.copies = [](const wire::Message& message) {
      return std::string(wire::message_name(message)) == "KeyReply" ? 0 : 1;
    };
  }
  ~KeysLeft() override {
    network_.copies = [](const wire::Message&) { return 1; };
  }
  void peer_closes() {
    b_.coordinator.group_forget(b_.group);
    run(milliseconds(1));
  }
  State state() const { return a_.group->life.control.state; }
};

// Nobody can translate the key any more.
TEST_F(KeysLeft, ARequestThatWaitsFailsWhenThePeerCloses) {
  write(a_);
  run(milliseconds(1));
  EXPECT_TRUE(a_.errors.empty());
  peer_closes();
  EXPECT_EQ(state(), State::kFailed);
  ASSERT_EQ(a_.errors.size(), 1u);
  EXPECT_EQ(a_.errors[0].wr_id, 1u);
}

TEST_F(KeysLeft, ARequestThatComesAfterThePeerHasClosedFails) {
  peer_closes();
  EXPECT_EQ(state(), State::kUnbound);
  write(a_);
  run(milliseconds(1));
  EXPECT_EQ(state(), State::kFailed);
  EXPECT_EQ(a_.errors.size(), 1u);
}

// It goes on when the region is registered, though the peer has gone.
TEST_F(KeysLeft, AReceiveThatWaitsForItsRegionIsPosted) {
  auto* region = a_.world.make_region(0x50, 0x60, Twin::kRunning);
  receive(a_, 1, 0x50);
  peer_closes();
  EXPECT_EQ(state(), State::kUnbound);
  EXPECT_EQ(a_.group->recv.posted, 0u);
  region->twins_set(Twin::kReady);
  run(milliseconds(3));
  EXPECT_EQ(a_.group->recv.posted, 1u);
  EXPECT_TRUE(a_.errors.empty());
}

// All of them are flushed at once behind the error.
TEST_F(KeysLeft, WhatWaitsIsFlushedWithTheApplicationsOwnError) {
  a_.world.make_region(0x50, 0x60, Twin::kRunning);
  receive(a_, 1, 0x50);
  send(a_);
  write(a_);
  run(milliseconds(1));
  a_.qp(a_.group->life.path.member).break_with(IBV_WC_LOC_PROT_ERR);
  run(milliseconds(2));
  EXPECT_EQ(state(), State::kClosed);
  ASSERT_EQ(a_.errors.size(), 3u);
  EXPECT_EQ(a_.errors[0].status, IBV_WC_LOC_PROT_ERR);
  for (size_t i : {1, 2}) EXPECT_EQ(a_.errors[i].status, IBV_WC_WR_FLUSH_ERR);
  write(a_);
  run(milliseconds(1));
  EXPECT_EQ(a_.errors.size(), 4u) << "a later one is flushed, too";
}

}  // namespace
}  // namespace shift::control
