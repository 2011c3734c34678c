#include "control/peer_search.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "control/test/lone_session.h"
#include "util/config.h"

namespace shift::control {
namespace {

using group::World;
using std::chrono::milliseconds;

class PeerSearchTest : public ::testing::Test, public PeerSearchSink {
 protected:
  PeerSearchTest() {
    nics_.network_set(&network_);
    nics_.context_add(&world_.context, group::ports_up(world_.context));
    group_->life.control.asks_responder = true;
    group_->life.ends.remote = {wire::Gid::from_ipv4(htonl(0x7f020001)), 0x777};
    group_->life.asked.attr.sq_psn = 1000;
    group_->life.asked.attr.rq_psn = 2000;
    group_->life.control.is_leader = true;
    search_ = std::make_unique<PeerSearch>(*group_, *this, loop_, network_, nics_);
  }
  void channel_found() override { found_++; }
  void peer_proven() override {}
  void peer_missing(const char* cause) override { missing_.emplace_back(cause); }
  void peer_gone() override { gone_++; }
  void host_known() override { known_++; }

  wire::Bind good_bind() const {
    wire::Bind bind;
    bind.sq_psn = 2000;  // the PSN that the peer sends with is the one that this end expects
    bind.rq_psn = 1000;
    bind.flags = wire::Bind::kHasSqPsn;
    return bind;
  }

  void find_peer_with_two_nics() {
    search_->take_channel(&channel_);
    search_->set_proven();
    search_->set_peer_addresses(
        {wire::Gid::from_ipv4(htonl(0x0a000001)), wire::Gid::from_ipv4(htonl(0x0a000002))});
    search_->widen();
  }
  void stay_in_rtr() { group_->life.asked.mask &= ~IBV_QP_SQ_PSN; }
  void reach_rts() {
    group_->life.asked.mask |= IBV_QP_SQ_PSN;
    search_->sends_begin();
  }

  using Proof = PeerSearch::Proof;

  net::VirtualTime time_;
  net::VirtualLoop loop_{time_};
  World world_{1, 2};
  group::CompletionQueue* cq_ = world_.make_cq();
  group::Group* group_ = world_.make_group(cq_, cq_, {});
  FakeNetwork network_;
  NoSink no_sink_;
  NicWatch nics_{loop_, no_sink_};
  FakeChannel channel_;  // outlives the search
  std::unique_ptr<PeerSearch> search_;
  int found_ = 0, gone_ = 0, known_ = 0;
  std::vector<std::string> missing_;
};

TEST_F(PeerSearchTest, TheLeaderLooksAtOnceAndOnce) {
  search_->begin();
  ASSERT_EQ(network_.requests.size(), 1u);
  EXPECT_EQ(network_.requests[0].remote, group_->life.ends.remote);
  search_->look_later(milliseconds(0));
  time_.run_for(milliseconds(10));
  EXPECT_EQ(network_.requests.size(), 1u) << "a search is under way already";
}

TEST_F(PeerSearchTest, TheFollowerWaitsToBeAsked) {
  group_->life.control.is_leader = false;
  search_->begin();
  time_.run_for(milliseconds(config().rendezvous_ms - 1));
  EXPECT_TRUE(network_.requests.empty());
  EXPECT_TRUE(missing_.empty());
  time_.run_for(milliseconds(2));
  EXPECT_EQ(missing_, std::vector<std::string>{"nobody has asked for this QP"});
}

// The leader may not know where to look for it.
TEST_F(PeerSearchTest, AFollowerWhoseNicIsDownLooksForItsLeader) {
  group_->life.control.is_leader = false;
  nics_.port_down(&world_.context, group::kDefault);
  search_->begin();
  time_.run_for(milliseconds(499));
  EXPECT_TRUE(network_.requests.empty());
  time_.run_for(milliseconds(2));
  ASSERT_EQ(network_.requests.size(), 1u);
  EXPECT_FALSE(network_.requests[0].is_first_usable);
  network_.answer(&channel_, net::FindError::kNone);
  EXPECT_EQ(search_->channel(), &channel_);
  EXPECT_EQ(found_, 1);
}

// Its requests may be what shows that its NIC is silent.
TEST_F(PeerSearchTest, SoDoesOneThatHasMetAFault) {
  group_->life.peer_present = true;
  group_->life.control.is_leader = false;
  search_->begin();
  time_.run_for(milliseconds(3000));
  EXPECT_TRUE(network_.requests.empty());
  group_->life.control.state = fsm::State::kSeeking;
  time_.run_for(milliseconds(501));
  EXPECT_EQ(network_.requests.size(), 1u);
}

// A peer without SHIFT is not asked for ever.
TEST_F(PeerSearchTest, AFollowerDoesNotGoOnWhereNobodyListens) {
  group_->life.control.is_leader = false;
  nics_.port_down(&world_.context, group::kDefault);
  search_->begin();
  time_.run_for(milliseconds(501));
  network_.answer(nullptr, net::FindError::kNoShift);
  time_.run_for(milliseconds(config().rendezvous_ms));
  EXPECT_EQ(network_.requests.size(), 1u);
  EXPECT_EQ(missing_.size(), 1u);
}

// The peer's connection was quicker than this end's search, and has proved more.
TEST_F(PeerSearchTest, WhatIsFoundLateChangesNothing) {
  search_->begin();
  FakeChannel inbound;
  search_->take_channel(&inbound);
  search_->set_proven();
  network_.answer(&channel_, net::FindError::kNone);
  EXPECT_TRUE(search_->is_proven_on(&inbound));
  search_->channel_lost();
}

TEST_F(PeerSearchTest, NobodyIsThere) {
  search_->begin();
  network_.answer(nullptr, net::FindError::kNoShift);
  EXPECT_EQ(missing_, std::vector<std::string>{net::find_error_name(net::FindError::kNoShift)});
  EXPECT_EQ(search_->channel(), nullptr);
}

// SHIFT is at the peer's host, and a fault is being masked: that fault may keep the two ends apart,
// and the round has its own bound.
TEST_F(PeerSearchTest, AFaultBeforeTheTwoEndsHaveMetEndsNoSearch) {
  group_->life.peer_present = true;
  group_->life.control.state = fsm::State::kSeeking;
  search_->begin();
  network_.answer(nullptr, net::FindError::kUnreachable);
  EXPECT_TRUE(missing_.empty());
  time_.run_for(milliseconds(1001));
  ASSERT_EQ(network_.requests.size(), 2u);
  network_.answer(nullptr, net::FindError::kNoShift);
  EXPECT_EQ(missing_, std::vector<std::string>{net::find_error_name(net::FindError::kNoShift)});
}

TEST_F(PeerSearchTest, NorTheWaitOfAFollower) {
  group_->life.peer_present = true;
  group_->life.control.is_leader = false;
  group_->life.control.state = fsm::State::kSeeking;
  search_->begin();
  time_.run_for(milliseconds(config().rendezvous_ms + 100));
  EXPECT_TRUE(missing_.empty());
  group_->life.control.state = fsm::State::kActive;
  time_.run_for(milliseconds(config().rendezvous_ms));
  EXPECT_EQ(missing_.size(), 1u);
}

// Only an answer from the peer's host says that the peer is gone.
TEST_F(PeerSearchTest, ASearchTellsAPeerThatIsGoneFromOneThatIsNotReached) {
  group_->life.control.is_leader = false;
  group_->life.control.state = fsm::State::kSeeking;
  search_->take_channel(&channel_);
  search_->set_proven();
  search_->channel_lost();
  search_->look_later({});
  time_.run_for(milliseconds(1));
  ASSERT_EQ(network_.requests.size(), 1u);
  network_.answer(nullptr, net::FindError::kUnreachable);
  EXPECT_FALSE(search_->is_peer_gone());
  EXPECT_EQ(gone_, 0);
  time_.run_for(milliseconds(1001));
  network_.answer(nullptr, net::FindError::kNoSuchQp);
  EXPECT_TRUE(search_->is_peer_gone());
  EXPECT_EQ(gone_, 1);
  time_.run_for(milliseconds(1001));
  network_.answer(&channel_);
  EXPECT_FALSE(search_->is_peer_gone());
  EXPECT_EQ(search_->channel(), nullptr) << "the leader finds it";
}

TEST_F(PeerSearchTest, AProvenPeerThatIsGoneIsLookedForAgain) {
  search_->begin();
  network_.answer(&channel_);
  search_->take_channel(&channel_);
  search_->set_proven();
  search_->channel_lost();
  search_->look_later(milliseconds(200));
  time_.run_for(milliseconds(201));
  ASSERT_EQ(network_.requests.size(), 2u);
  network_.answer(nullptr, net::FindError::kUnreachable);
  EXPECT_TRUE(missing_.empty());
  time_.run_for(milliseconds(1001));
  EXPECT_EQ(network_.requests.size(), 3u);
}

TEST_F(PeerSearchTest, WhatCountsIsSaidAgainUntilThePeerProvesItself) {
  search_->begin();
  network_.answer(&channel_);
  EXPECT_EQ(found_, 1);
  time_.run_for(milliseconds(101));
  EXPECT_EQ(found_, 2);
  time_.run_for(milliseconds(200));  // the pauses double
  EXPECT_EQ(found_, 3);
  search_->take_channel(&channel_);
  search_->set_proven();
  time_.run_for(milliseconds(config().rendezvous_ms + 1000));
  EXPECT_EQ(found_, 3);
  EXPECT_TRUE(missing_.empty());
}

TEST_F(PeerSearchTest, OneThatNeverProvesItselfIsNotThePeer) {
  search_->begin();
  network_.answer(&channel_);
  time_.run_for(milliseconds(config().rendezvous_ms + 10));
  EXPECT_EQ(missing_.size(), 1u);
  const int said = found_;
  time_.run_for(milliseconds(config().rendezvous_ms));
  EXPECT_EQ(found_, said);
}

TEST_F(PeerSearchTest, NothingIsSaidOrMissedAfterTheEnd) {
  search_->begin();
  network_.answer(&channel_);
  search_->end();
  time_.run_for(milliseconds(config().rendezvous_ms + 1000));
  EXPECT_EQ(found_, 1);
  EXPECT_TRUE(missing_.empty());
  search_->look_later(milliseconds(1));
  search_->channel_lost();
  time_.run_for(milliseconds(1000));
  EXPECT_EQ(network_.requests.size(), 1u);
}

TEST_F(PeerSearchTest, AnAnswerThatComesTooLateIsNobodys) {
  search_->begin();
  search_.reset();
  network_.answer(&channel_);
  EXPECT_EQ(found_, 0);
}

// C11
TEST_F(PeerSearchTest, TheProofIsBothStartPsns) {
  EXPECT_EQ(search_->proof_of(good_bind()), Proof::kFits);
  wire::Bind bind = good_bind();
  bind.sq_psn++;
  EXPECT_EQ(search_->proof_of(bind), Proof::kWrong);
  bind.flags = 0;  // the peer does not send, so its sq_psn says nothing
  EXPECT_EQ(search_->proof_of(bind), Proof::kFits);
  bind = good_bind();
  bind.rq_psn--;
  EXPECT_EQ(search_->proof_of(bind), Proof::kWrong);
  stay_in_rtr();
  EXPECT_EQ(search_->proof_of(bind), Proof::kFits);
  bind.sq_psn++;
  EXPECT_EQ(search_->proof_of(bind), Proof::kWrong);
}

// C11: the sender chooses the flag, so a Bind without it may come from anybody.
TEST_F(PeerSearchTest, WhereNoPsnCanBeComparedNothingIsProvenAndNothingIsWrong) {
  stay_in_rtr();
  wire::Bind bind = good_bind();
  bind.flags = 0;
  for (int i = 0; i < 100; i++) EXPECT_EQ(search_->proof_of(bind), Proof::kNothing);
  EXPECT_EQ(search_->proof_of(good_bind()), Proof::kFits) << "an honest end may stay in RTR";
}

TEST_F(PeerSearchTest, TheNewestBindThatProvesNothingIsKeptWhileItsChannelLives) {
  FakeChannel other;
  wire::Bind bind;
  search_->keep(&channel_, bind);
  bind.rq_psn = 7;
  search_->keep(&other, bind);
  EXPECT_TRUE(search_->relies_on(&other)) << "a crowd must not push out who waits for RTS";
  EXPECT_FALSE(search_->relies_on(&channel_));
  search_->channel_ends(&channel_);
  const auto kept = search_->take_kept();
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->channel, &other);
  EXPECT_EQ(kept->bind.rq_psn, 7u);
  EXPECT_FALSE(search_->take_kept());
  search_->keep(&other, bind);
  search_->channel_ends(&other);
  EXPECT_FALSE(search_->take_kept());
  search_->keep(&other, bind);
  search_->take_channel(&channel_);
  EXPECT_FALSE(search_->take_kept()) << "the peer has proved itself";
}

// A receive-only QP never leaves RTR, and another one may be late.
TEST_F(PeerSearchTest, ALeaderInRtrGivesNobodyUp) {
  stay_in_rtr();
  search_->begin();
  network_.answer(&channel_);
  time_.run_for(milliseconds(5 * config().rendezvous_ms));
  EXPECT_TRUE(missing_.empty());
  EXPECT_GE(found_, 50);
  EXPECT_LE(found_, 60) << "once a second at last";
  const int said = found_;
  reach_rts();
  EXPECT_EQ(found_, said + 1) << "at once";
  time_.run_for(milliseconds(101));
  EXPECT_EQ(found_, said + 2);
  time_.run_for(milliseconds(config().rendezvous_ms - 200));
  EXPECT_TRUE(missing_.empty());
  time_.run_for(milliseconds(200));
  EXPECT_EQ(missing_.size(), 1u);
}

TEST_F(PeerSearchTest, NothingIsSaidAtRtsWhereItWouldTellNothing) {
  search_->sends_begin();  // there is no channel
  EXPECT_EQ(found_, 0);
  search_->take_channel(&channel_);
  search_->set_proven();
  search_->sends_begin();
  EXPECT_EQ(found_, 0);
  search_->channel_lost();
  search_->begin();
  network_.answer(&channel_);
  EXPECT_EQ(found_, 1) << "this channel has proved nothing yet";
  search_->end();
  search_->sends_begin();
  EXPECT_EQ(found_, 1);
}

// C11: a process that proves nothing must not have the bounds of a peer for ever.
TEST_F(PeerSearchTest, AChannelIsReliedOnWhileItMayStillProveItself) {
  EXPECT_FALSE(search_->relies_on(&channel_));
  search_->begin();
  network_.answer(&channel_);
  EXPECT_TRUE(search_->relies_on(&channel_));
  FakeChannel other;
  EXPECT_FALSE(search_->relies_on(&other));
  time_.run_for(milliseconds(config().rendezvous_ms - 1));
  EXPECT_TRUE(search_->relies_on(&channel_));
  time_.run_for(milliseconds(2));
  EXPECT_EQ(missing_.size(), 1u);
  EXPECT_FALSE(search_->relies_on(&channel_));
  search_->take_channel(&channel_);
  EXPECT_TRUE(search_->relies_on(&channel_)) << "it has proved itself after all";
  time_.run_for(milliseconds(10 * config().rendezvous_ms));
  EXPECT_TRUE(search_->relies_on(&channel_));
  search_->channel_lost();
  EXPECT_FALSE(search_->relies_on(&channel_));
}

TEST_F(PeerSearchTest, NorForEverInRtr) {
  stay_in_rtr();
  search_->begin();
  network_.answer(&channel_);
  EXPECT_TRUE(search_->relies_on(&channel_));
  time_.run_for(milliseconds(config().rendezvous_ms + 1));
  EXPECT_FALSE(search_->relies_on(&channel_));
  reach_rts();
  EXPECT_TRUE(search_->relies_on(&channel_));
}

// Its Bind will prove the leader when this end's QP reaches RTS.
TEST_F(PeerSearchTest, AFollowerInRtrWaitsOnWhenItWasAsked) {
  group_->life.control.is_leader = false;
  stay_in_rtr();
  search_->begin();
  search_->keep(&channel_, good_bind());
  time_.run_for(milliseconds(5 * config().rendezvous_ms));
  EXPECT_TRUE(missing_.empty());
  search_->channel_ends(&channel_);
  time_.run_for(milliseconds(config().rendezvous_ms));
  EXPECT_EQ(missing_.size(), 1u);
}

// C11: 2^24 PSNs cannot be tried.
TEST_F(PeerSearchTest, WhoGuessesPsnsIsNotListenedToForAWhile) {
  wire::Bind wrong = good_bind();
  for (int i = 0; i < 50; i++) {
    wrong.sq_psn++;
    EXPECT_EQ(search_->proof_of(wrong), Proof::kWrong);
  }
  EXPECT_EQ(search_->proof_of(good_bind()), Proof::kFits) << "a peer with many connections";
  for (int i = 0; i < 50; i++) EXPECT_EQ(search_->proof_of(wrong), Proof::kWrong);
  EXPECT_EQ(search_->proof_of(good_bind()), Proof::kWrong);
  time_.run_for(milliseconds(100));
  EXPECT_EQ(search_->proof_of(good_bind()), Proof::kFits) << "an honest peer says it again";
}

// C11: a GID of the peer's NIC is the one of the application's connection, or one whose address the
// channel was seen at.
TEST_F(PeerSearchTest, AGidIsThePeersWhereTheChannelWasSeen) {
  const auto there = wire::Gid::from_ipv4(htonl(0x7f020101));
  EXPECT_FALSE(search_->owns(there)) << "there is no channel";
  search_->take_channel(&channel_);
  channel_.is_elsewhere = true;
  EXPECT_FALSE(search_->owns(there));
  channel_.elsewhere = *there.ipv4();
  EXPECT_TRUE(search_->owns(there));
  group_->life.ends.remote.gid.raw[0] = 0xfe;
  EXPECT_TRUE(search_->owns(group_->life.ends.remote.gid));
  wire::Gid other = group_->life.ends.remote.gid;
  other.raw[15] ^= 1;
  EXPECT_FALSE(search_->owns(other));
}

TEST_F(PeerSearchTest, WhenTheStoreNamesAddressesTheSessionHearsOfIt) {
  search_->ask_owner(wire::Gid::from_ipv4(htonl(0x7f020101)));
  ASSERT_EQ(network_.store_asked.size(), 1u);
  network_.store_asked.back()(net::Stored::kUnknown);
  network_.store_asked.back()(net::Stored::kAway);
  EXPECT_EQ(known_, 0);
  network_.store_asked.back()(net::Stored::kFound);
  EXPECT_EQ(known_, 1);
  search_.reset();
  network_.store_asked.back()(net::Stored::kFound);
  EXPECT_EQ(known_, 1) << "the search is gone";
}

// Its NIC dies after the leader has said its Bind, and takes the only connection along.
TEST_F(PeerSearchTest, ALeaderThatHasLeftItsPathAndProvedNothingConnectsFromAllItsAddresses) {
  search_->begin();
  network_.answer(&channel_);
  time_.run_for(milliseconds(1000));
  EXPECT_TRUE(channel_.kept.empty());
  group_->life.control.state = fsm::State::kFencing;
  search_->path_left();
  time_.run_for(milliseconds(100));
  EXPECT_TRUE(channel_.kept.empty()) << "a path may be found at once";
  time_.run_for(milliseconds(100));
  const uint32_t peer = *group_->life.ends.remote.gid.ipv4();
  ASSERT_EQ(channel_.kept.size(), 2u);
  EXPECT_EQ(channel_.kept[1], AddressPair(*world_.nic(1).gid.ipv4(), peer));
  time_.run_for(milliseconds(5000));
  EXPECT_EQ(channel_.kept.size(), 2u);
}

// Its answer to the leader's Bind may be lost likewise, and the leader knows nothing of it.
TEST_F(PeerSearchTest, AFollowerThatHasLeftItsPathConnectsToAllAddressesOfTheLeader) {
  group_->life.control.is_leader = false;
  search_->begin();
  find_peer_with_two_nics();
  EXPECT_TRUE(channel_.kept.empty());
  group_->life.control.state = fsm::State::kSeeking;
  search_->path_left();
  time_.run_for(milliseconds(200));
  EXPECT_EQ(channel_.kept.size(), 4u);
}

// A process with many peers has room for few connections to each of them.
TEST_F(PeerSearchTest, TheFirstConnectionsHaveNoNicInCommon) {
  channel_.most = 2;
  search_->begin();
  find_peer_with_two_nics();
  ASSERT_EQ(channel_.kept.size(), 2u);
  EXPECT_NE(channel_.kept[0].first, channel_.kept[1].first);
  EXPECT_NE(channel_.kept[0].second, channel_.kept[1].second);
}

TEST_F(PeerSearchTest, ARoundThatFindsItsPathOpensNoConnections) {
  search_->begin();
  network_.answer(&channel_);
  group_->life.control.state = fsm::State::kFencing;
  search_->path_left();
  time_.run_for(milliseconds(100));
  group_->life.control.state = fsm::State::kActive;
  time_.run_for(milliseconds(1000));
  EXPECT_TRUE(channel_.kept.empty());
}

// C11: a false peer must not make this process dial whatever it names.
TEST_F(PeerSearchTest, OnlyAddressesThatNicsMayHaveAreDialed) {
  search_->begin();
  network_.answer(&channel_);
  std::vector<wire::Gid> odd;
  for (const uint32_t ip :
       {0x00000000u, 0x00000001u, 0xe0000001u, 0xefffffffu, 0xf0000001u, 0xffffffffu})
    odd.push_back(wire::Gid::from_ipv4(htonl(ip)));
  search_->set_peer_addresses(odd);
  search_->widen();
  EXPECT_TRUE(channel_.kept.empty());
  search_->set_peer_addresses({wire::Gid::from_ipv4(htonl(0x0a000001))});
  search_->widen();
  EXPECT_FALSE(channel_.kept.empty());
}

// C11
TEST_F(PeerSearchTest, OnlyTheChannelThatProvedItselfSpeaks) {
  FakeChannel other;
  search_->begin();
  network_.answer(&channel_);
  EXPECT_TRUE(search_->may_speak(&other)) << "nobody has proved anything";
  EXPECT_FALSE(search_->is_proven_on(&channel_));
  EXPECT_EQ(search_->take_channel(&channel_), &channel_);
  search_->set_proven();
  EXPECT_TRUE(search_->is_proven_on(&channel_));
  EXPECT_FALSE(search_->may_speak(&other));
  EXPECT_FALSE(search_->is_proven_on(&other));
  search_->channel_lost();
  EXPECT_TRUE(search_->is_proven());
  EXPECT_TRUE(search_->may_speak(&other)) << "the peer may come back as another process";
  EXPECT_FALSE(search_->is_proven_on(&channel_));
}

// C11: an exact echo of the PSNs proves nothing at another address.
TEST_F(PeerSearchTest, OnlyAChannelToTheAddressOfThePeersQpSpeaks) {
  FakeChannel other;
  other.is_elsewhere = true;
  EXPECT_FALSE(search_->may_speak(&other));
  other.elsewhere = *group_->life.ends.remote.gid.ipv4();
  EXPECT_TRUE(search_->may_speak(&other));
}

// For a GID that holds no address, the link names it.
TEST_F(PeerSearchTest, AChannelToTheAddressThatTheLinkNamesSpeaks) {
  const auto address = *group_->life.ends.remote.gid.ipv4();
  group_->life.ends.remote.gid.raw[0] = 0xfe;
  FakeChannel other;
  other.is_elsewhere = true;
  other.elsewhere = address;
  EXPECT_FALSE(search_->may_speak(&other)) << "the link has not answered";
  EXPECT_FALSE(search_->may_speak(&other));
  ASSERT_EQ(network_.link_asked.size(), 1u) << "it is asked once at a time";
  network_.link_asked.back()({});
  EXPECT_FALSE(search_->may_speak(&other)) << "nobody has answered";
  ASSERT_EQ(network_.link_asked.size(), 2u);
  network_.link_asked.back()(address);
  EXPECT_TRUE(search_->may_speak(&other));
  other.elsewhere++;
  EXPECT_FALSE(search_->may_speak(&other));
}

TEST_F(PeerSearchTest, TheLinksAnswerMayComeTooLate) {
  group_->life.ends.remote.gid.raw[0] = 0xfe;
  EXPECT_FALSE(search_->may_speak(&channel_));
  search_.reset();
  network_.link_asked.back()(1);
}

TEST_F(PeerSearchTest, AKeyedChannelSpeaksForAGidWithoutAnAddress) {
  group_->life.ends.remote.gid.raw[0] = 0xfe;
  channel_.keyed = true;
  EXPECT_TRUE(search_->may_speak(&channel_));
  EXPECT_TRUE(network_.link_asked.empty());
}

TEST_F(PeerSearchTest, OneConnectionIsKeptForEachPairOfAddresses) {
  const auto gid = [](uint32_t ip) { return wire::Gid::from_ipv4(htonl(ip)); };
  search_->begin();
  network_.answer(&channel_);
  search_->set_peer_addresses({gid(0x7f020001), wire::Gid{}, gid(0x7f020201)});
  search_->widen();
  EXPECT_EQ(channel_.kept.size(), 4u);
  search_->widen();
  EXPECT_EQ(channel_.kept.size(), 4u) << "they are there";
  search_->set_peer_addresses({gid(0x7f020301)});
  search_->widen();
  ASSERT_EQ(channel_.kept.size(), 2u);
  for (const auto& pair : channel_.kept) EXPECT_EQ(pair.second, htonl(0x7f020301));
  search_.reset();
  EXPECT_TRUE(channel_.kept.empty());
}

TEST_F(PeerSearchTest, WhatTheChannelRefusesIsAskedForAgain) {
  search_->begin();
  network_.answer(&channel_);
  channel_.most = 1;
  search_->set_peer_addresses({wire::Gid::from_ipv4(htonl(0x7f020001))});
  search_->widen();
  EXPECT_EQ(channel_.kept.size(), 1u);
  channel_.most = 64;
  search_->widen();
  EXPECT_EQ(channel_.kept.size(), 2u);
}

TEST_F(PeerSearchTest, TheFollowerDialsNobody) {
  group_->life.control.is_leader = false;
  search_->take_channel(&channel_);
  search_->set_peer_addresses({wire::Gid::from_ipv4(htonl(0x7f020001))});
  search_->widen();
  EXPECT_TRUE(channel_.kept.empty());
}

TEST_F(PeerSearchTest, BindSaysWhatProvesAndWhereTheNicsAre) {
  search_->send_bind();  // there is no channel yet
  search_->take_channel(&channel_);
  search_->send_bind();
  ASSERT_EQ(channel_.sent.size(), 1u);
  const auto& bind = std::get<wire::Bind>(channel_.sent[0]);
  EXPECT_EQ(bind.sq_psn, 1000u);
  EXPECT_EQ(bind.rq_psn, 2000u);
  EXPECT_EQ(bind.flags, wire::Bind::kHasSqPsn | wire::Bind::kForgetsKeys | wire::Bind::kHeedsAvoid |
                            wire::Bind::kTellsNics | wire::Bind::kProbes);
  EXPECT_EQ(bind.members_up, 3);
  ASSERT_EQ(bind.members.size(), 2u);
  EXPECT_EQ(bind.members[0], world_.nic(0).gid);
  EXPECT_EQ(bind.members[1], world_.nic(1).gid);
}

}  // namespace
}  // namespace shift::control
