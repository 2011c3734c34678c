// Tests the ways that are kept ready for probes, and what follows from the probes of a fault, in
// virtual time. The test itself answers each probe, and plays the peers.
#include "control/locator.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/test/lone_session.h"
#include "util/test/event_sink.h"

namespace shift::control {
namespace {

using fsm::Event;
using group::Detector;
using group::FakeNic;
using group::FakeQp;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ProbeKind = wire::Probe::Kind;
using Result = wire::Probe::Result;

constexpr group::Cause kRetries{"transport retry exceeded", Detector::kCompletion};

// One host with two NICs, and peers with two NICs each.
class LocatorTest : public SessionTest {
 protected:
  LocatorTest() : SessionTest(2) {
    test::event_sink_set([this](const char* name, std::initializer_list<EventField> fields) {
      if (std::string(name) != "incident") return;
      std::map<std::string, std::string>& one = incidents_.emplace_back();
      for (const EventField& field : fields)
        one[field.key] = field.is_text ? std::string(field.text) : std::to_string(field.number);
    });
  }
  ~LocatorTest() override {
    locator_.context_forget(&world_.context);
    run_for(seconds(1));
    test::event_sink_set(nullptr);
  }

  // A session that carries traffic between NIC `own` here and NIC `peers` of the peer.
  Session& active(FakeChannel& channel, int own = 0, int peers = 0) {
    Session& session = make();
    session.search.take_channel(&channel);
    session.search.set_proven();
    session.peer_probes = true;
    session.control.state = fsm::State::kActive;
    session.book.peer_members_set(2, 3);
    session.book.current_set(PathName{static_cast<uint8_t>(own), static_cast<uint8_t>(peers)});
    session.group.life.path.member = own;
    return session;
  }
  // The peer answers each offer that came since the last call.
  void accept(Session& session, FakeChannel& channel, ProbeKind kind = ProbeKind::kAccept) {
    const auto all = channel.all<wire::Probe>();
    for (size_t& next = answered_[&channel]; next < all.size(); next++) {
      if (all[next].kind != ProbeKind::kOffer) continue;
      wire::Probe answer{session.ends.remote, session.ends.local, kind,
                         all[next].peer,      all[next].own,      all[next].number,
                         Result::kNothing,    all[next].address};
      answer.address.gid = wire::Gid::from_ipv4(0x01000002);
      locator_.take(session, answer);
    }
  }
  // Answers the probes that are under way from NIC `from`: all of them, or those to the address
  // `to`. Returns how many there were.
  int answer(int from, bool passes, const std::optional<wire::Gid>& to = {}) {
    int count = 0;
    for (auto& [qpn, qp] : world_.nic(from).qps) {
      const bool is_probe = !qp->pending_sends.empty() && qp->sends.back().wr.num_sge == 0;
      const auto peer = wire::Gid::from_verbs(qp->attr.ah_attr.grh.dgid);
      if (!is_probe || qp->qp.state != IBV_QPS_RTS || (to && peer != *to)) continue;
      count++;
      if (passes)
        (void)qp->complete_send();
      else
        qp->break_with(IBV_WC_RETRY_EXC_ERR);
    }
    return count;
  }
  // Makes all ways of a session ready, and answers the first probes of them.
  void calm(Session& session, FakeChannel& channel, bool passes = true) {
    locator_.touch(session);
    for (int i = 0; i < 2000; i++) {
      run_for(milliseconds(1));
      accept(session, channel);
      for (const int nic : {0, 1}) answer(nic, passes);
    }
  }
  // The peers' NICs have one address here, so the cross ways are told apart by their order.
  std::vector<FakeQp*> under_way(int from, bool is_local) {
    std::vector<FakeQp*> found;
    for (auto& [qpn, qp] : world_.nic(from).qps) {
      const auto peer = wire::Gid::from_verbs(qp->attr.ah_attr.grh.dgid);
      const bool is_within = peer == world_.nic(1 - from).gid;
      if (!qp->pending_sends.empty() && is_within == is_local) found.push_back(qp.get());
    }
    return found;
  }
  void fault(Session& session, group::Cause cause = kRetries) {
    const PathName path = *session.book.current();
    session.book.current_set(std::nullopt);
    session.control.state = fsm::State::kFencing;
    locator_.evidence(session, path, cause);
    run_for(milliseconds(3));
  }
  static void end(const std::vector<FakeQp*>& probes, bool passes) {
    ASSERT_FALSE(probes.empty());
    for (FakeQp* qp : probes) {
      if (passes)
        (void)qp->complete_send();
      else
        qp->break_with(IBV_WC_RETRY_EXC_ERR);
    }
  }
  // P0 and P4 leave from NIC 0 to the peer, P1 to NIC 1, and P3 leaves from NIC 1.
  void show(bool p0, bool p1, bool p3, bool p4) {
    const auto across = under_way(0, false);
    ASSERT_EQ(across.size(), 2u);  // in the order in which they were made: P0, P4
    end({across[0]}, p0);
    end(under_way(0, true), p1);
    end(under_way(1, false), p3);
    end({across[1]}, p4);
  }
  void told(Session& session, Result result, uint8_t own = 0, uint8_t peer = 0) {
    locator_.take(
        session,
        wire::Probe{
            session.ends.remote, session.ends.local, ProbeKind::kTold, own, peer, 0, result, {}});
  }
  std::string place() {
    run_for(milliseconds(200));
    if (incidents_.size() != 1) return std::to_string(incidents_.size()) + " incidents";
    return incidents_[0]["place"];
  }
  size_t ready_ways() {
    size_t count = 0;
    for (const PeerNics& peer :
         {PeerNics{&world_.context, nullptr, {}}, PeerNics{&world_.context, &channel_, kPeer}})
      for (const int from : {0, 1})
        for (const int to : {0, 1}) count += locator_.prober().is_ready({peer, from, to});
    return count;
  }
  size_t offers() {
    size_t count = 0;
    for (const auto& one : channel_.all<wire::Probe>()) count += one.kind == ProbeKind::kOffer;
    return count;
  }

  const wire::Gid kPeer = wire::Gid::from_ipv4(0x01000002);
  FakeChannel other_channel_;
  Locator locator_{loop_, sessions_, nics_, late_, machine_, reporter_, orders_};
  std::vector<std::map<std::string, std::string>> incidents_;
  std::map<FakeChannel*, size_t> answered_;
};

TEST_F(LocatorTest, FourWaysAreMadeInCalmAndTried) {
  locator_.begin();
  calm(active(channel_), channel_);
  EXPECT_EQ(ready_ways(), 4u);
  EXPECT_EQ(offers(), 3u);
}

TEST_F(LocatorTest, WithoutBeginNothingIsMade) {
  calm(active(channel_), channel_);
  EXPECT_EQ(ready_ways(), 0u);
  EXPECT_EQ(offers(), 0u);
  EXPECT_TRUE(world_.context.own_qps.empty());
}

TEST_F(LocatorTest, APeerThatDoesNotKnowOffersGetsNone) {
  locator_.begin();
  Session& session = active(channel_);
  session.peer_probes = false;
  calm(session, channel_);
  EXPECT_EQ(ready_ways(), 1u);
  EXPECT_EQ(offers(), 0u);
}

TEST_F(LocatorTest, OnlyFourPeersHaveWaysAcross) {
  locator_.begin();
  std::vector<std::unique_ptr<FakeChannel>> channels;
  for (size_t i = 0; i < Prober::kPeersMax + 2; i++) {
    channels.push_back(std::make_unique<FakeChannel>());
    Session& session = active(*channels.back());
    calm(session, *channels.back());
  }
  size_t served = 0;
  for (const auto& channel : channels) served += !channel->all<wire::Probe>().empty();
  EXPECT_EQ(served, Prober::kPeersMax);
  for (const auto& channel : channels) locator_.channel_forget(channel.get());
}

TEST_F(LocatorTest, AWayThatNeverWorkedIsTriedMoreAndMoreSeldom) {
  locator_.begin();
  Session& session = active(channel_);
  session.peer_probes = false;
  locator_.touch(session);
  std::vector<int> tries;
  int count = 0;
  for (int second = 0; second < 60; second++) {
    for (int i = 0; i < 100; i++) {
      run_for(milliseconds(10));
      count += answer(0, false);
    }
    if (second % 20 == 19) tries.push_back(std::exchange(count, 0));
  }
  EXPECT_GE(tries[0], 3);
  EXPECT_LE(tries[1], 1);
  EXPECT_LE(tries[2], 1);
  EXPECT_EQ(ready_ways(), 0u);
}

TEST_F(LocatorTest, NothingIsMadeWhileThereAreFaults) {
  locator_.begin();
  Session& session = active(channel_);
  locator_.touch(session);
  run_for(milliseconds(900));
  fault(session);
  run_for(milliseconds(900));
  EXPECT_TRUE(world_.context.own_qps.empty());
  run_for(milliseconds(200));
  EXPECT_FALSE(world_.context.own_qps.empty());
}

TEST_F(LocatorTest, AFaultOfTheNicHereIsFoundByOwnProbesAndMovesAllOnIt) {
  locator_.begin();
  Session& session = active(channel_);
  calm(session, channel_);
  Session& other_peer = active(other_channel_);
  Session& other_nic = active(other_channel_, 1, 1);
  fault(session);
  show(false, false, true, false);
  EXPECT_EQ(place(), "local");
  EXPECT_EQ(incidents_[0]["certain"], "1");
  EXPECT_EQ(incidents_[0]["qps"], "2");
  EXPECT_EQ(incidents_[0]["evidence"], "A0-B0 fails, A0-A1 fails, A1-B0 passes, A0-B1 fails");
  ASSERT_EQ(machine_.inputs.size(), 1u);
  EXPECT_EQ(machine_.inputs[0].event, Event::kPathFault);
  // It is one incident for the NIC, whichever peer's QPs notice it later.
  fault(other_peer);
  run_for(seconds(1));
  EXPECT_EQ(incidents_.size(), 1u);
  fault(other_nic);
  run_for(seconds(1));
  EXPECT_EQ(incidents_.size(), 2u);
}

TEST_F(LocatorTest, AFaultOfThePeersNicMovesOnlyGroupsToThatNic) {
  locator_.begin();
  Session& session = active(channel_);
  calm(session, channel_);
  active(other_channel_);
  active(channel_, 0, 1);
  active(channel_, 1, 0);
  fault(session);
  show(false, true, false, true);
  told(session, Result::kFailed);
  EXPECT_EQ(place(), "remote");
  EXPECT_EQ(machine_.inputs.size(), 1u);
}

TEST_F(LocatorTest, AFaultOfThePathMovesOnlyGroupsOfThePath) {
  locator_.begin();
  Session& session = active(channel_);
  calm(session, channel_);
  active(channel_);
  active(other_channel_);
  active(channel_, 0, 1);
  active(channel_, 1, 0);
  fault(session);
  show(false, true, true, true);
  told(session, Result::kPassed);
  EXPECT_EQ(place(), "path");
  EXPECT_EQ(machine_.inputs.size(), 1u);
}

TEST_F(LocatorTest, WithoutThePeersWordItIsNotKnownThatItIsThePeers) {
  locator_.begin();
  Session& session = active(channel_);
  calm(session, channel_);
  fault(session);
  show(false, true, false, true);
  told(session, Result::kFailed, 1, 0);  // of another NIC
  told(session, Result::kFailed, 0, 1);
  EXPECT_EQ(place(), "unknown");
  EXPECT_TRUE(machine_.inputs.empty());
}

// The peer may notice first.
TEST_F(LocatorTest, ThePeersWordCountsThatComesALittleEarly) {
  locator_.begin();
  Session& session = active(channel_);
  calm(session, channel_);
  told(session, Result::kFailed);
  told(session, Result::kPassed);  // C11: a further word changes nothing
  run_for(milliseconds(50));
  fault(session);
  show(false, true, false, true);
  EXPECT_EQ(place(), "remote");
}

TEST_F(LocatorTest, ThePeersWordOnAnEarlierFaultDoesNotCount) {
  locator_.begin();
  Session& session = active(channel_);
  calm(session, channel_);
  told(session, Result::kFailed);
  run_for(milliseconds(500));
  fault(session);
  show(false, true, false, true);
  EXPECT_EQ(place(), "unknown");
}

// C11: a peer's word comes once.
TEST_F(LocatorTest, WhatThePeerSaysLaterChangesNothing) {
  locator_.begin();
  Session& session = active(channel_);
  calm(session, channel_);
  fault(session);
  told(session, Result::kPassed);
  told(session, Result::kFailed);
  show(false, true, false, true);
  EXPECT_EQ(place(), "unknown");
  told(session, Result::kFailed);
  run_for(seconds(1));
  EXPECT_EQ(incidents_.size(), 1u);
}

// C11: neither offers, answers nor words make this end leave a NIC that reaches its neighbour.
TEST_F(LocatorTest, APeerCannotMakeAFaultLocal) {
  locator_.begin();
  Session& session = active(channel_);
  calm(session, channel_);
  active(other_channel_);
  fault(session);
  show(false, true, true, false);
  for (const Result result : {Result::kNothing, Result::kPassed, Result::kFailed})
    told(session, result);
  EXPECT_EQ(place(), "unknown");
  EXPECT_TRUE(machine_.inputs.empty());
}

TEST_F(LocatorTest, ANicThatCompletesRequestsIsNotDead) {
  locator_.begin();
  Session& session = active(channel_);
  calm(session, channel_);
  Session& other = active(other_channel_);
  fault(session);
  other.group.counters.done[0] += 1;
  show(false, false, true, false);
  EXPECT_EQ(place(), "unknown");
  EXPECT_TRUE(machine_.inputs.empty());
}

TEST_F(LocatorTest, WaysThatWereNeverSeenToWorkProveNothing) {
  locator_.begin();
  Session& session = active(channel_);
  calm(session, channel_, false);
  fault(session);
  for (const int nic : {0, 1}) answer(nic, false);  // first probes, which may be under way
  EXPECT_EQ(place(), "unknown");
  EXPECT_EQ(incidents_[0]["evidence"], "no probe has told anything");
}

// A flap may heal between the probes of the four ways, and one that the NIC had to repeat may have
// met its end.
TEST_F(LocatorTest, AProbeThatComesThroughLateProvesNothing) {
  locator_.begin();
  Session& session = active(channel_);
  calm(session, channel_);
  fault(session);
  run_for(milliseconds(25));
  told(session, Result::kPassed);
  show(false, true, true, true);
  EXPECT_EQ(place(), "unknown");
}

TEST_F(LocatorTest, SilenceOfANicIsNoAnswer) {
  locator_.begin();
  Session& session = active(channel_);
  calm(session, channel_);
  fault(session);
  end(under_way(1, false), true);  // P3; the NIC here says nothing at all
  EXPECT_EQ(place(), "unknown");
}

TEST_F(LocatorTest, AFaultThatIsOverSaysNothing) {
  locator_.begin();
  Session& session = active(channel_);
  calm(session, channel_);
  fault(session);
  show(true, false, true, false);
  EXPECT_EQ(place(), "unknown");
}

TEST_F(LocatorTest, ThePeerIsToldWhatTheOwnProbeHasShown) {
  locator_.begin();
  Session& session = active(channel_);
  calm(session, channel_);
  channel_.sent.clear();
  fault(session);
  show(false, false, true, false);
  run_for(milliseconds(50));
  const auto said = channel_.all<wire::Probe>();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].kind, ProbeKind::kTold);
  EXPECT_EQ(said[0].result, Result::kFailed);
  EXPECT_EQ(said[0].own, 0);
  EXPECT_EQ(said[0].peer, 0);
}

TEST_F(LocatorTest, WhatANicSaysOfItselfNeedsNoProbe) {
  Session& session = active(channel_);
  fault(session);
  locator_.nic_lost(&world_.context, 0, {"port down", Detector::kPort}, 3);
  locator_.nic_lost(&world_.context, 0, {"no carrier", Detector::kLink}, 0);
  EXPECT_EQ(place(), "local");
  EXPECT_EQ(incidents_[0]["qps"], "4");
  EXPECT_EQ(incidents_[0]["evidence"], "port down");
}

TEST_F(LocatorTest, ThePeersWordOnItsNicIsEnoughForThePeersNic) {
  Session& session = active(channel_);
  fault(session);
  session.book.peer_up_set(2);
  EXPECT_EQ(place(), "remote");
}

// A group that has not met its peer yet knows of no NIC there that is up.
TEST_F(LocatorTest, AGroupThatThePeerHasToldNothingSaysNothing) {
  make();
  Session& session = active(channel_);
  make();
  fault(session);
  EXPECT_EQ(place(), "unknown");
}

// An operator wants no traffic there.
TEST_F(LocatorTest, ADrainedNicCarriesNoProbes) {
  locator_.begin();
  orders_.context_add(&world_.context);
  Session& session = active(channel_);
  orders_.drained_set(&world_.context, 2);
  calm(session, channel_);
  EXPECT_EQ(ready_ways(), 2u);  // P0 and P4
  session.book.peer_avoided_set(2);
  fault(session);
  EXPECT_EQ(under_way(0, false).size(), 1u);
  end(under_way(0, false), false);
  EXPECT_EQ(place(), "unknown");
}

// A case that was about something else, long ago, must not hide a fault.
TEST_F(LocatorTest, AFurtherFaultLaterIsAnotherIncident) {
  locator_.begin();
  Session& session = active(channel_);
  Session& other = active(channel_);
  calm(session, channel_);
  fault(session);
  show(false, true, true, false);
  EXPECT_EQ(place(), "unknown");
  run_for(seconds(5));
  fault(other);
  run_for(seconds(1));
  EXPECT_EQ(incidents_.size(), 2u);
}

// Another process's word is no proof.
TEST_F(LocatorTest, ANicThatAnotherProcessSuspectsIsProbed) {
  locator_.begin();
  Session& session = active(channel_);
  calm(session, channel_);
  locator_.suspect("fake_1");  // nothing is on it
  locator_.suspect("fake_0");
  run_for(milliseconds(2));
  show(true, true, true, true);
  run_for(seconds(2));
  EXPECT_TRUE(machine_.inputs.empty());
  EXPECT_TRUE(incidents_.empty());
  locator_.suspect("fake_0");
  run_for(milliseconds(2));
  show(false, false, true, false);
  EXPECT_EQ(place(), "local");
  EXPECT_EQ(incidents_[0]["qps"], "1");
  EXPECT_EQ(machine_.inputs.size(), 1u);
}

// The proof is the other process's. It takes a NIC 29 ms to give up a probe.
TEST_F(LocatorTest, ASuspectedNicThatDoesNotAnswerIsLeftAtOnce) {
  locator_.begin();
  Session& session = active(channel_);
  calm(session, channel_);
  locator_.suspect("fake_0");
  end(under_way(1, false), true);
  run_for(milliseconds(2));
  EXPECT_TRUE(machine_.inputs.empty());
  run_for(milliseconds(2));
  EXPECT_EQ(machine_.inputs.size(), 1u);
  ASSERT_EQ(incidents_.size(), 1u);
  EXPECT_EQ(incidents_[0]["place"], "local");
  EXPECT_EQ(incidents_[0]["evidence"],
            "another process found the NIC broken, and it does not answer: A1-B0 passes");
}

TEST_F(LocatorTest, ASuspectedNicIsNotLeftForSilenceThatHasOtherCauses) {
  locator_.begin();
  Session& session = active(channel_);
  calm(session, channel_);
  locator_.suspect("fake_0");  // nothing answers: it may be this process that does not get on
  run_for(milliseconds(19));
  EXPECT_TRUE(machine_.inputs.empty());
  show(true, true, true, true);
  run_for(seconds(2));
  locator_.suspect("fake_0");  // it reaches its neighbour
  end(under_way(0, true), true);
  end(under_way(1, false), true);
  run_for(milliseconds(19));
  EXPECT_TRUE(machine_.inputs.empty());
  end(under_way(0, false), false);
  run_for(seconds(2));
  EXPECT_TRUE(machine_.inputs.empty());
  calm(session, channel_);
  locator_.suspect("fake_0");  // a request completes over it
  run_for(milliseconds(1));
  session.group.counters.done[0] += 1;
  end(under_way(1, false), true);
  run_for(milliseconds(200));
  EXPECT_TRUE(machine_.inputs.empty());
}

TEST_F(LocatorTest, WhatASuspicionMovesIsNoFurtherIncident) {
  locator_.begin();
  Session& session = active(channel_);
  calm(session, channel_);
  locator_.suspect("fake_0");
  run_for(milliseconds(3));
  show(false, true, true, true);
  told(session, Result::kPassed);
  EXPECT_EQ(place(), "path");
  fault(session, {"probes found its NIC broken", Detector::kNeighbour});
  run_for(seconds(1));
  EXPECT_EQ(incidents_.size(), 1u);
}

TEST_F(LocatorTest, AnothersSuspicionHidesNoFault) {
  locator_.begin();
  Session& session = active(channel_);
  calm(session, channel_);
  locator_.suspect("fake_0");
  run_for(milliseconds(3));
  show(true, true, true, true);
  run_for(milliseconds(500));
  fault(session);
  show(false, false, true, false);
  EXPECT_EQ(place(), "local");
}

TEST_F(LocatorTest, OffersAreAnsweredWithinBounds) {
  locator_.begin();
  Session& session = active(channel_);
  wire::Probe offer{session.ends.remote, session.ends.local,         ProbeKind::kOffer, 0, 1, 7,
                    Result::kNothing,    {kPeer, 5, 6, IBV_MTU_1024}};
  locator_.take(session, offer);
  run_for(milliseconds(1));
  ASSERT_EQ(channel_.all<wire::Probe>().size(), 1u);
  EXPECT_EQ(channel_.all<wire::Probe>()[0].kind, ProbeKind::kAccept);
  EXPECT_EQ(channel_.all<wire::Probe>()[0].number, 7u);
  EXPECT_EQ(channel_.all<wire::Probe>()[0].own, 1);
  EXPECT_EQ(world_.context.own_qps.size(), 1u);
  locator_.take(session, offer);  // too soon
  offer.peer = 2;                 // there is no such NIC
  locator_.take(session, offer);
  offer.peer = 1;
  offer.address.mtu = 0;
  locator_.take(session, offer);
  run_for(milliseconds(1));
  EXPECT_EQ(channel_.all<wire::Probe>().size(), 1u);
  offer.address.mtu = IBV_MTU_1024;
  for (unsigned own = 0; own < 2 * Prober::kAnswersMax; own++) {
    offer.own = static_cast<uint8_t>(own);
    locator_.take(session, offer);
    run_for(milliseconds(1));
  }
  EXPECT_EQ(world_.context.own_qps.size(), Prober::kAnswersMax);
}

TEST_F(LocatorTest, WhatIsForgottenLeavesNoQp) {
  locator_.begin();
  Session& session = active(channel_);
  calm(session, channel_);
  fault(session);
  locator_.channel_forget(&channel_);
  run_for(milliseconds(1));
  EXPECT_EQ(world_.context.own_qps.size(), 2u);
  locator_.context_forget(&world_.context);
  run_for(milliseconds(1));
  EXPECT_TRUE(world_.context.own_qps.empty());
}

}  // namespace
}  // namespace shift::control
