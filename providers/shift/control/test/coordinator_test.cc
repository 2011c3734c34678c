// What the coordinator does with the messages of one peer, which the test writes.
#include "control/coordinator.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "control/test/lone_session.h"
#include "group/ending.h"
#include "util/config.h"

namespace shift::control {
namespace {

using group::World;
using std::chrono::milliseconds;

// This end leads; its peer is the test.
class CoordinatorTest : public ::testing::Test {
 protected:
  CoordinatorTest() {
    auto network = std::make_unique<FakeNetwork>();
    network_ = network.get();
    coordinator_.network_set(std::move(network));
    coordinator_.context_add(&world_.context, group::ports_up(world_.context));
    group_->life.ends.remote = {wire::Gid::from_ipv4(htonl(0x7fff0001)), 0x777};
    group_->life.asked.attr.sq_psn = 1000;
    group_->life.asked.attr.rq_psn = 2000;
  }
  ~CoordinatorTest() override {
    coordinator_.group_forget(group_);
    coordinator_.context_forget(&world_.context);
    time_.drop_all();
    group::fault_sink = nullptr;
  }
  // The session begins, and the search for its peer ends at the test's channel.
  void begin() {
    coordinator_.group_add(group_);
    time_.run_for(milliseconds(1));
    network_->answer(&channel_);
  }
  template <typename Message>
  void peer_says(Message message) {
    message.from = group_->life.ends.remote;
    message.to = group_->life.ends.local;
    delegate_.on_message(&channel_, message);
  }
  void peer_binds() {
    wire::Bind bind;
    bind.flags = wire::Bind::kHasSqPsn;
    bind.sq_psn = 2000;
    bind.rq_psn = 1000;
    bind.members = {group_->life.ends.remote.gid, wire::Gid::from_ipv4(htonl(0x7fff0002))};
    bind.members_up = 3;
    peer_says(bind);
  }
  void peer_members(uint8_t up) {
    wire::Members members;
    members.seq = ++members_said_;
    members.up = up;
    peer_says(members);
  }

  net::VirtualTime time_;
  net::VirtualLoop loop_{time_};
  group::FakeCommands commands_{loop_};
  World world_{1, 2};
  group::CompletionQueue* cq_ = world_.make_cq();
  group::Group* group_ = world_.make_group(cq_, cq_, {});
  FakeChannel channel_;
  Coordinator coordinator_{loop_, commands_};
  net::Delegate& delegate_ = coordinator_;
  FakeNetwork* network_;
  uint32_t members_said_ = 0;
};

TEST_F(CoordinatorTest, ReliesOnAChannelThatProvesItselfOrStillMay) {
  begin();
  EXPECT_TRUE(delegate_.relies_on(&channel_));
  time_.run_for(milliseconds(config().rendezvous_ms + 1));
  EXPECT_FALSE(delegate_.relies_on(&channel_));
  peer_binds();
  time_.run_for(milliseconds(config().rendezvous_ms + 1));
  EXPECT_TRUE(delegate_.relies_on(&channel_));
}

// C11
TEST_F(CoordinatorTest, APeerWhoseNicsComeAndGoDoesNotSetThePaceOfDials) {
  begin();
  peer_binds();
  for (int i = 0; i < 100; i++) {
    peer_members(1);
    peer_members(3);
    time_.run_for(milliseconds(1));
  }
  EXPECT_EQ(network_->retries, 1);
  time_.run_for(milliseconds(1000));
  EXPECT_EQ(network_->retries, 2);
  peer_members(3);
  time_.run_for(milliseconds(2000));
  EXPECT_EQ(network_->retries, 2) << "nothing came back";
}

// The NIC dies after this end has said its Bind, and the answer is lost with the only connection.
TEST_F(CoordinatorTest, ARoundThatBeginsBeforeThePeerHasProvedItselfOpensFurtherConnections) {
  begin();
  coordinator_.group_sends(group_);
  time_.run_for(milliseconds(10));
  EXPECT_TRUE(channel_.kept.empty());
  coordinator_.nics().port_down(&world_.context, group::kDefault);
  time_.run_for(milliseconds(300));
  ASSERT_TRUE(fsm::kLeaving.has(group_->life.control.state));
  EXPECT_FALSE(channel_.kept.empty());
}

// The NIC gives the number of a destroyed QP to the next one, which has the same peer. The peer
// must not take the end of the first one for that of the second one.
TEST_F(CoordinatorTest, AQpIsClosedBeforeTheNextOneWithItsNumberIsKnown) {
  begin();
  peer_binds();
  group::Group* const first = group_;
  const group::Life& life = first->life;
  group_ = world_.make_group(cq_, cq_, {});
  group_->life.ends = life.ends;
  ASSERT_TRUE(group::ending_begin(*first));
  world_.let_go(first);
  coordinator_.group_ended(first);
  group::let_go(first);
  channel_.sent.clear();
  begin();
  ASSERT_GE(channel_.sent.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<wire::Close>(channel_.sent[0]));
  EXPECT_TRUE(std::holds_alternative<wire::Bind>(channel_.sent[1]));
  time_.run_for(milliseconds(10));
  EXPECT_EQ(channel_.all<wire::Close>().size(), 1u);
  EXPECT_TRUE(delegate_.knows_qp(group_->life.ends.local));
}

}  // namespace
}  // namespace shift::control
