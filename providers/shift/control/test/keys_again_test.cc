// A peer's application deregisters a region off the default path, and its NIC gives the number of
// the key to another region: no request meets the other NIC's key of the region before.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "control/repeats.h"
#include "control/test/two_hosts.h"
#include "group/keys.h"

namespace shift::control {
namespace {

using group::kDefault;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr uint32_t kKey = 0x4000;  // the key that b's application has, again and again

// Host a writes into regions of host b, off the default path.
class KeysAgain : public Rounds {
 protected:
  KeysAgain() {
    fabric_.passes = [this](const ibv_send_wr& wr) {
      if (wr.opcode != IBV_WR_RDMA_WRITE || wr.num_sge == 0) return true;
      // Each twin has a key of its own, so a request shows which region it was meant for.
      const uint32_t meant = twin_keys_[wr.wr_id], met = wr.wr.rdma.rkey;
      if (met != kKey) met_.emplace_back(met == meant);
      return met == kKey || met == meant;
    };
    network_.before = [this](const net::Delegate& to, const wire::Message& message) {
      const std::string name = wire::message_name(message);
      if (name.starts_with("Key")) said_.push_back((&to == &b_.coordinator ? "a: " : "b: ") + name);
    };
    region_make();
    a_.port(kDefault, false);
    run(milliseconds(5));
    EXPECT_NE(peer_member(), kDefault);
  }
  ~KeysAgain() override {
    fabric_.passes = [](const ibv_send_wr&) { return true; };
    network_.before = nullptr;
    network_.copies = [](const wire::Message&) { return 1; };
    network_.delay = network_.copy_delay = [] { return microseconds(30); };
  }

  int peer_member() const { return a_.group->life.path.peer_member; }
  uint32_t twin_key() const { return region_->members[peer_member()].real->rkey; }
  void region_make() {
    region_ = b_.world.make_region(0x10000 + regions_, kKey);
    for (uint32_t member = 1; member < 3; member++) {
      region_->members[member].real->rkey = member * 0x10000 + regions_;
    }
    regions_++;
  }
  // As ops/memory.cc does it; without `told`, as an older build does it.
  void region_drop(bool told = true) {
    b_.world.context.regions.remove(*region_);
    if (told && told_keys().withdraw(kKey)) b_.coordinator.keys_gone(&b_.world.context);
  }
  group::ToldKeys& told_keys() { return b_.world.context.told_keys; }
  void write_there() {
    ibv_sge sge{0x5000, 8, group::kLkey};
    ibv_send_wr wr{}, *bad;
    wr.wr_id = ++a_.sent;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma = {0x7000, kKey};
    twin_keys_[wr.wr_id] = twin_key();
    ASSERT_EQ(ops::post_send(a_.group->handle(), &wr, &bad), 0);
  }
  uint32_t dice(uint32_t sides) { return static_cast<uint32_t>(random_() % sides); }
  bool all_right() {
    return a_.errors.empty() && b_.errors.empty() && a_.sends_done.size() == a_.sent;
  }

  group::MemoryRegion* region_ = nullptr;
  uint32_t regions_ = 0;
  std::map<uint64_t, uint32_t> twin_keys_;  // of the region that a request is meant for
  std::vector<bool> met_;                   // whether each try met that region
  std::vector<std::string> said_;
  std::mt19937 random_{20250607};
};

TEST_F(KeysAgain, WhatIsSaidWhenARegionGoes) {
  write_there();
  run(milliseconds(1));
  region_drop();
  EXPECT_TRUE(told_keys().withholds(kKey));
  run(milliseconds(1));
  EXPECT_FALSE(told_keys().withholds(kKey));
  region_make();
  write_there();
  run(milliseconds(1));
  EXPECT_TRUE(all_right());
  EXPECT_EQ(said_, (std::vector<std::string>{"a: KeyQuery", "b: KeyReply", "b: KeysGone",
                                             "a: KeysForgotten", "a: KeyQuery", "b: KeyReply"}));
  EXPECT_EQ(met_, (std::vector{true, true}));
}

// Messages come late, twice and in any order, and connections are lost: the application of b gets
// the number when it is not withheld, and that of a uses it at once.
TEST_F(KeysAgain, NoRequestMeetsTheRegionBefore) {
  network_.copies = [this](const wire::Message&) { return 1 + static_cast<int>(dice(2)); };
  network_.delay = [this] { return microseconds(20 + dice(300)); };
  network_.copy_delay = [this] { return microseconds(20 + dice(2000)); };
  for (int turn = 0; turn < 300; turn++) {
    SCOPED_TRACE(turn);
    const size_t writes = dice(3);
    for (size_t i = 0; i < writes; i++) write_there();
    run(microseconds(dice(1000)));
    // The application of b deregisters only what nobody writes to any more.
    for (int wait = 0; wait < 200 && !all_right(); wait++) run(microseconds(500));
    ASSERT_TRUE(all_right());
    if (dice(8) == 0) network_.cut();
    region_drop();
    run(microseconds(dice(600)));
    if (network_.is_cut()) network_.restore();
    for (int wait = 0; wait < 200 && told_keys().withholds(kKey); wait++) run(microseconds(500));
    ASSERT_FALSE(told_keys().withholds(kKey));
    region_make();
    if (dice(2) == 0) write_there();  // its question crosses whatever is under way
  }
  run(milliseconds(10));
  EXPECT_TRUE(all_right());
  EXPECT_GT(met_.size(), 100u);
  EXPECT_EQ(std::ranges::count(met_, false), 0);
}

// Until the peer can be reached again, the number is withheld.
TEST_F(KeysAgain, WhatIsLostIsSaidAgain) {
  write_there();
  run(milliseconds(1));
  network_.cut();
  region_drop();
  run(milliseconds(5));
  EXPECT_TRUE(told_keys().withholds(kKey));
  network_.restore();
  run(Repeats::kTogether + milliseconds(1));
  EXPECT_FALSE(told_keys().withholds(kKey));
}

TEST_F(KeysAgain, ARoundEndsWhatIsWithheld) {
  write_there();
  run(milliseconds(1));
  network_.copies = [](const wire::Message& message) {
    return std::holds_alternative<wire::KeysGone>(message) ? 0 : 1;
  };
  region_drop();
  run(milliseconds(5));
  EXPECT_TRUE(told_keys().withholds(kKey));
  b_.port(peer_member(), false);
  run(milliseconds(5));
  EXPECT_EQ(a_.group->life.control.epoch, 2u);
  EXPECT_FALSE(told_keys().withholds(kKey));
}

TEST_F(KeysAgain, APeerThatClosedItsQpHasNothingToForget) {
  write_there();
  run(milliseconds(1));
  network_.copies = [](const wire::Message& message) {
    return std::holds_alternative<wire::KeysForgotten>(message) ? 0 : 1;
  };
  region_drop();
  run(milliseconds(5));
  EXPECT_TRUE(told_keys().withholds(kKey));
  a_.coordinator.group_forget(a_.group);
  run(milliseconds(5));
  EXPECT_FALSE(told_keys().withholds(kKey));
}

// The peer closed its QP while it could not be heard. It is asked, and says so then.
TEST_F(KeysAgain, APeerThatClosedItsQpUnheardSaysSo) {
  write_there();
  run(milliseconds(1));
  network_.copies = [](const wire::Message& message) {
    return std::holds_alternative<wire::Close>(message) ? 0 : 1;
  };
  a_.coordinator.group_forget(a_.group);
  run(milliseconds(5));
  region_drop();
  EXPECT_TRUE(told_keys().withholds(kKey));
  run(milliseconds(5));
  EXPECT_FALSE(told_keys().withholds(kKey));
}

TEST_F(KeysAgain, AFailedGroupWithholdsNothing) {
  write_there();
  run(milliseconds(1));
  network_.cut();
  region_drop();
  run(milliseconds(5));
  EXPECT_TRUE(told_keys().withholds(kKey));
  b_.coordinator.fault(b_.group, fsm::Event::kReplayRefused, group::kNoMember, "a test");
  run(milliseconds(1));
  EXPECT_EQ(b_.group->life.control.state, fsm::State::kFailed);
  EXPECT_FALSE(told_keys().withholds(kKey));
}

// C11: a process that has not proved that it owns the QP changes nothing.
TEST_F(KeysAgain, AStrangerIsNotBelieved) {
  struct Stranger final : net::PeerChannel {
    bool is_self() const noexcept override { return false; }
    bool is_at(uint32_t) const override { return true; }
    size_t send(const wire::Message&) override { return 1; }
    bool keep_connection(uint32_t, uint32_t) override { return true; }
    void drop_connection(uint32_t, uint32_t) override {}
  } stranger;
  write_there();
  run(milliseconds(1));
  network_.copies = [](const wire::Message& message) {
    return std::holds_alternative<wire::KeysGone>(message) ? 0 : 1;
  };
  region_drop();
  run(milliseconds(1));
  const wire::QpName& a = a_.group->life.ends.local;
  const wire::QpName& b = b_.group->life.ends.local;
  net::Delegate& owner = b_.coordinator;
  net::Delegate& requester = a_.coordinator;
  for (uint32_t number = 0; number < 100; number++) {
    owner.on_message(&stranger, wire::KeysForgotten{a, b, number});
  }
  EXPECT_TRUE(told_keys().withholds(kKey));
  requester.on_message(&stranger, wire::KeysGone{b, a, 1, 1, true, {}});
  EXPECT_EQ(a_.group->life.remote_keys[peer_member()].count(kKey), 1u);
}

// The peer is of an older build and says nothing. The error of the request that meets the old key
// begins a round, which asks for all keys anew.
TEST_F(KeysAgain, ARemoteAccessErrorOffTheDefaultAsksForAllKeysAnew) {
  write_there();
  run(milliseconds(1));
  region_drop(false);
  region_make();
  write_there();
  run(milliseconds(1));
  EXPECT_EQ(met_.back(), false);
  EXPECT_FALSE(all_right());
  const size_t questions = std::ranges::count(said_, "a: KeyQuery");
  a_.qp(a_.group->life.path.member).break_with(IBV_WC_REM_ACCESS_ERR);
  for (int wait = 0; wait < 1000 && a_.group->life.control.epoch == 1; wait++) {
    run(microseconds(50));
  }
  // The round may lead to another NIC of the peer.
  for (int wait = 0; wait < 1000 && !all_right(); wait++) {
    run(microseconds(50));
    if (peer_member() > kDefault) twin_keys_[a_.sent] = twin_key();
  }
  EXPECT_EQ(a_.group->life.control.epoch, 2u);
  EXPECT_GT(std::ranges::count(said_, "a: KeyQuery"), questions);
  EXPECT_TRUE(all_right());
  EXPECT_EQ(met_.back(), true);
}

}  // namespace
}  // namespace shift::control
