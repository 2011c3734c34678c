// Tests two coordinators in virtual time: rounds from the first fault to the way back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <variant>
#include <vector>

#include "control/test/two_hosts.h"
#include "group/test/batch.h"
#include "util/config.h"

namespace shift::control {
namespace {

using fsm::State;
using group::kBackup;
using group::kDefault;
using group::kThird;
using group::Route;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(Rounds, BothEndsAreBoundAndASpareIsReady) {
  EXPECT_NE(a_.group->life.control.is_leader, b_.group->life.control.is_leader);
  expect_on(kDefault, 0);
  EXPECT_EQ(a_.group->life.errors.members[kDefault].accept, group::Accept::kGuard);
  EXPECT_EQ(b_.group->life.errors.members[kDefault].accept, group::Accept::kGuard);
  traffic(20);
  run(milliseconds(5));
  expect_all_done();
  EXPECT_EQ(a_.group->send.route, Route::kOnDefault);
}

TEST_F(Rounds, APortEventOfEitherEndMovesBoth) {
  for (SimHost* host : {&leader(), &follower()}) {
    traffic(10);
    send(a_, 3);
    send(b_, 3);
    receive(a_, 3);
    receive(b_, 3);
    host->port(host->group->life.path.member, false);
    run(milliseconds(5));
    traffic(10);
    run(milliseconds(10));
    expect_all_done();
  }
  EXPECT_NE(a_.group->life.path.member, kDefault);
  expect_on(a_.group->life.path.member, 2);
}

TEST_F(Rounds, ASilentFaultIsNoticedByWhoSends) {
  traffic(10);
  follower().port(kDefault, false, false);
  receive(leader(), 2);
  send(follower(), 2);
  run(milliseconds(60));
  EXPECT_EQ(a_.group->life.control.epoch, 1u);
  run(milliseconds(20));
  traffic(5);
  run(milliseconds(5));
  expect_all_done();
  EXPECT_NE(a_.group->life.path.member, kDefault);
}

TEST_F(Rounds, CrossingDetectionsConverge) {
  traffic(10);
  a_.port(kDefault, false);
  b_.port(kDefault, false);
  traffic(10);
  run(milliseconds(5));
  expect_all_done();
  EXPECT_EQ(a_.group->life.control.epoch, 1u);
  EXPECT_EQ(b_.group->life.control.epoch, 1u);
  EXPECT_EQ(a_.group->life.control.state, State::kActive);
}

TEST_F(Rounds, AFaultDuringTheRoundIsTheNextRound) {
  traffic(10);
  receive(b_, 4);
  send(a_, 4);
  leader().port(kDefault, false);
  // Once the leader's Progress has named the spare, the spare is lost, too.
  network_.copies = [this, once = true](const wire::Message& message) mutable {
    const auto* progress = std::get_if<wire::Progress>(&message);
    if (progress != nullptr && std::exchange(once, false)) {
      time_.in({}, [this, target = progress->target] {
        follower().port(target.follower, false);
        leader().port(target.leader, false);
      });
    }
    return 1;
  };
  run(milliseconds(200));
  traffic(5);
  run(milliseconds(5));
  expect_all_done();
  EXPECT_EQ(a_.group->life.control.epoch, 2u);
  expect_on(a_.group->life.path.member, 2);
}

TEST_F(Rounds, TheDefaultIsTakenAgainWhenItIsBack) {
  traffic(10);
  a_.port(kDefault, false);
  traffic(10);
  run(milliseconds(5));
  EXPECT_NE(a_.group->life.path.member, kDefault);
  a_.port(kDefault, true);
  run(milliseconds(500));
  EXPECT_NE(a_.group->life.path.member, kDefault) << "it has to be good for a while";
  traffic(5);
  run(seconds(1));
  traffic(5);
  run(milliseconds(5));
  expect_all_done();
  expect_on(kDefault, 2);
  for (SimHost* host : {&a_, &b_}) {
    EXPECT_EQ(host->group->send.route, Route::kOnDefault);
    EXPECT_EQ(host->cq->slow_groups, 0);
  }
}

class AcrossRails : public Rounds {
 protected:
  // Leaves one path.
  void only(int of_leader, int of_follower) {
    for (int m = 0; m < 3; m++) {
      leader().port(m, m == of_leader);
      follower().port(m, m == of_follower);
    }
  }
  void expect_path(int of_leader, int of_follower) {
    EXPECT_EQ(leader().group->life.control.state, State::kActive)
        << fsm::to_string(leader().group->life.control.state);
    expect_on_path(of_leader, of_follower);
  }
  void expect_on_path(int of_leader, int of_follower) {
    EXPECT_EQ(leader().group->life.path.member, of_leader);
    EXPECT_EQ(leader().group->life.path.peer_member, of_follower);
    EXPECT_EQ(follower().group->life.path.member, of_follower);
    EXPECT_EQ(follower().group->life.path.peer_member, of_leader);
  }
  // Sends a message now and then, for so long.
  void traffic_for(std::chrono::milliseconds span) {
    for (; span > milliseconds(0); span -= milliseconds(10)) {
      traffic(1);
      run(milliseconds(10));
    }
  }
};

// The default path has a NIC in common with the path that is in use, so it can be tried only after
// that path has been given up.
TEST_F(AcrossRails, TheDefaultIsTakenAgain) {
  traffic(5);
  only(0, 1);
  traffic_for(milliseconds(300));
  expect_path(0, 1);
  const uint32_t rounds = a_.group->life.control.epoch;
  follower().port(kDefault, true);
  traffic_for(milliseconds(config().failback_ms - 100));
  expect_path(0, 1);
  EXPECT_EQ(a_.group->life.control.epoch, rounds) << "it has to be good for a while";
  traffic_for(milliseconds(300));
  run(milliseconds(5));
  expect_all_done();
  expect_on(kDefault, static_cast<int>(rounds) + 1);
  EXPECT_EQ(a_.group->send.route, Route::kOnDefault);
}

// No event tells that the better path does not work: it is tried later and later, the traffic goes
// on where it was, and when the better path is good again, it is found without any event.
TEST_F(AcrossRails, ABetterPathThatDoesNotWorkIsTriedMoreAndMoreSeldom) {
  traffic(5);
  fabric_.carries = [this](const group::FakeNic& from, const group::FakeNic& to) {
    const auto is_pair = [&](const group::FakeNic& one, const group::FakeNic& other) {
      return (&from == &one && &to == &other) || (&from == &other && &to == &one);
    };
    return !is_pair(a_.world.nic(0), b_.world.nic(0)) && !is_pair(a_.world.nic(1), b_.world.nic(1));
  };
  only(0, 1);
  traffic_for(milliseconds(300));
  for (SimHost* host : {&a_, &b_}) {
    for (int m = 0; m < 2; m++) host->port(m, true);
  }
  const uint32_t begun = a_.group->life.control.epoch;
  traffic_for(seconds(5));
  EXPECT_NE(a_.group->life.path.member, b_.group->life.path.member);
  const uint32_t soon = a_.group->life.control.epoch;
  EXPECT_GE(soon - begun, 2u);
  EXPECT_LE(soon - begun, 8u);
  run(seconds(20));
  const uint32_t late = a_.group->life.control.epoch;
  EXPECT_GE(late - soon, 2u);
  EXPECT_LE(late - soon, 8u) << "in four times the time";
  fabric_.carries = [](const group::FakeNic&, const group::FakeNic&) { return true; };
  run(seconds(30));
  traffic(5);
  run(milliseconds(5));
  expect_all_done();
  expect_path(kDefault, kDefault);
}

// A better path was hoped for; but when the current path breaks, the path that is ready is taken.
TEST_F(AcrossRails, AFaultMeanwhileIsLeftForThePathThatIsReady) {
  traffic(5);
  fabric_.carries = [this](const group::FakeNic& from, const group::FakeNic& to) {
    const group::FakeNic& nic = leader().world.nic(0);
    const group::FakeNic& other = follower().world.nic(0);
    return !(&from == &nic && &to == &other) && !(&from == &other && &to == &nic);
  };
  only(0, 1);
  run(milliseconds(300));
  leader().port(1, true);
  follower().port(0, true);
  run(milliseconds(500));
  send(leader());  // there is no receive for it, so the drain lasts
  run(milliseconds(600));
  EXPECT_EQ(leader().group->life.control.state, State::kDraining);
  expect_on_path(0, 1);
  leader().port(0, false);
  run(milliseconds(2));
  expect_path(1, 0);
  receive(follower());
  traffic(5);
  run(milliseconds(5));
  expect_all_done();
}

// A receiver that posts nothing lets no drain end: the group stays on its path, and loses nothing.
TEST_F(Rounds, ADrainThatTakesTooLongIsCalledOff) {
  a_.port(kDefault, false);
  run(milliseconds(5));
  send(a_, 2);
  a_.port(kDefault, true);
  run(seconds(2));
  EXPECT_NE(a_.group->life.path.member, kDefault);
  EXPECT_EQ(a_.group->life.control.epoch, 1u);
  receive(b_, 2);
  run(seconds(60));
  expect_all_done();
  expect_on(kDefault, 2);
}

// Messages that were lost with a connection are said again on the next one.
TEST_F(Rounds, WhatIsLostIsRepeated) {
  traffic(10);
  network_.cut();
  a_.port(kDefault, false);
  receive(b_, 3);
  send(a_, 3);
  run(milliseconds(300));
  EXPECT_NE(a_.group->life.control.state, State::kActive);
  network_.restore();
  run(milliseconds(50));
  traffic(5);
  run(milliseconds(5));
  expect_all_done();
  EXPECT_EQ(a_.group->life.control.epoch, b_.group->life.control.epoch);
}

// A lost message about a path that is tried costs a moment, not the whole time of the attempt.
TEST_F(Rounds, WhatIsLostOfAnAttemptIsRepeated) {
  const auto is_offer = [](const wire::Message& message) {
    return std::holds_alternative<wire::Offer>(message);
  };
  const auto is_ask = [](const wire::Message& message) {
    const auto* ready = std::get_if<wire::Ready>(&message);
    return ready != nullptr && ready->kind == wire::Ready::Kind::kAsk;
  };
  for (const int member : {kBackup, kThird, kDefault}) leader().port(member, false);
  run(milliseconds(5));
  for (const auto is_it : {+is_offer, +is_ask}) {
    bool lost = false;
    network_.copies = [&](const wire::Message& message) {
      return !lost && is_it(message) ? (lost = true, 0) : 1;
    };
    leader().port(kBackup, true);
    run(milliseconds(5));
    EXPECT_TRUE(lost);
    EXPECT_EQ(leader().group->life.control.state, State::kSeeking);
    network_.cut();
    network_.restore();
    run(milliseconds(20));
    EXPECT_EQ(leader().group->life.control.state, State::kActive);
    leader().port(kBackup, false);
    run(milliseconds(5));
  }
  network_.copies = [](const wire::Message&) { return 1; };
}

// C8, C11: every message comes twice, and the copies are late.
TEST_F(Rounds, CopiesChangeNothing) {
  network_.copies = [](const wire::Message&) { return 2; };
  network_.delay = [turn = 0]() mutable {
    return std::chrono::microseconds(turn++ % 2 == 0 ? 20 : 1700);
  };
  for (SimHost* host : {&leader(), &follower()}) {
    traffic(10);
    host->port(host->group->life.path.member, false);
    traffic(30);
    run(milliseconds(20));
    expect_all_done();
    EXPECT_EQ(a_.group->life.control.state, State::kActive);
    EXPECT_EQ(b_.group->life.control.state, State::kActive);
  }
  EXPECT_EQ(a_.group->life.control.epoch, 2u);
  EXPECT_EQ(b_.group->life.control.epoch, 2u);
}

// When the offer of a path is refused, the next path is tried.
TEST_F(Rounds, ARefusedOfferLeadsToAnotherPath) {
  // The spare is lost, and the next path cannot be connected at the follower.
  follower().world.nic(kBackup).refuses = true;
  leader().port(kThird, false);
  leader().port(kDefault, false);
  follower().port(kDefault, false);
  leader().port(kThird, true);
  receive(b_, 2);
  send(a_, 2);
  run(milliseconds(500));
  traffic(5);
  run(milliseconds(5));
  expect_all_done();
  EXPECT_EQ(a_.group->life.control.state, State::kActive);
  EXPECT_EQ(follower().group->life.path.member, kThird);
}

// When the leader has no QP on a NIC, another path is taken: a path from that NIC cannot even be
// offered.
class WithoutAQp : public TwoHosts {
 protected:
  // The leader, known before the ends have met.
  SimHost& who_leads() { return a_.group->life.ends.local <= a_.group->life.ends.remote ? a_ : b_; }
};

TEST_F(WithoutAQp, AnotherPathIsTaken) {
  who_leads().world.nic(kBackup).is_full = true;
  run(milliseconds(100));
  ASSERT_EQ(leader().group->real[kBackup], nullptr);
  for (SimHost* host : {&a_, &b_}) host->port(kThird, false);
  run(milliseconds(100));
  traffic(5);
  follower().port(kDefault, false);
  traffic(5);
  run(milliseconds(100));
  EXPECT_EQ(leader().group->life.control.state, State::kActive)
      << fsm::to_string(leader().group->life.control.state);
  EXPECT_EQ(leader().group->life.path.member, kDefault);
  EXPECT_EQ(follower().group->life.path.member, kBackup);
  traffic(5);
  run(milliseconds(5));
  expect_all_done();
}

// The leader does not go on with a path whose own NIC it knows to be down.
TEST_F(Rounds, APathWhoseNicGoesDownWhileItIsTriedIsNotChosen) {
  leader().port(kBackup, false);
  leader().port(kThird, false);
  leader().port(kDefault, false);
  run(milliseconds(5));
  network_.copies = [this, once = true](const wire::Message& message) mutable {
    const auto* accept = std::get_if<wire::Accept>(&message);
    if (accept != nullptr && std::exchange(once, false)) {
      time_.in(std::chrono::microseconds(35), [this, member = accept->path.leader] {
        leader().device_says(member, IBV_EVENT_PORT_ERR);
      });
    }
    return 1;
  };
  leader().port(kBackup, true);
  run(milliseconds(100));
  EXPECT_EQ(a_.group->life.control.epoch, 1u);
  EXPECT_EQ(leader().group->life.control.state, State::kSeeking);
  leader().port(kThird, true);
  traffic(5);
  run(milliseconds(100));
  expect_all_done();
  expect_on(kThird, 1);
}

// A process that is found where the peer was before, and knows the QPs' names, but not their PSNs.
struct Impostor final : Delegate {
  bool knows_qp(const wire::QpName&) override { return true; }
  bool expects(const wire::QpName&, const wire::QpName&) override { return true; }
  bool relies_on(const PeerChannel*) override { return true; }
  void on_channel_down(PeerChannel*) override {}
  void on_message(PeerChannel* channel, const wire::Message& message) override {
    const auto* bind = std::get_if<wire::Bind>(&message);
    if (bind == nullptr) return;
    asked++;
    wire::Bind own;
    own.from = bind->to;
    own.to = bind->from;
    own.flags = wire::Bind::kHasSqPsn;
    own.sq_psn = bind->rq_psn + 1;
    own.members = bind->members;
    channel->send(own);
    channel->send(wire::Close{bind->to, bind->from});
    channel->send(wire::Members{bind->to, bind->from, 1000, 0});
  }
  int asked = 0;
};

// C11: each process that is found proves anew that it owns the peer's QP.
TEST_F(Rounds, AStrangerAtThePeersAddressIsNotBelieved) {
  traffic(5);
  Impostor impostor;
  network_.impostor_add(impostor);
  network_.lose_channels();
  run(seconds(1));
  EXPECT_GE(impostor.asked, 1);
  EXPECT_EQ(leader().group->life.control.state, State::kActive);
  // The peer itself is believed as soon as it speaks.
  network_.host_remove(impostor, milliseconds(1));
  run(seconds(2));
  leader().port(kDefault, false);
  run(milliseconds(100));
  traffic(5);
  run(milliseconds(5));
  expect_all_done();
  EXPECT_EQ(leader().group->life.control.epoch, 1u);
}

// C11: a path is named by members that both ends have.
TEST_F(Rounds, APathOfMembersThatThePeerHasNotIsIgnored) {
  traffic(5);
  int offers = 0, answers = 0;
  network_.before = [&](const Delegate&, const wire::Message& message) {
    answers += std::holds_alternative<wire::Accept>(message);
    if (!std::holds_alternative<wire::Offer>(message)) return;
    std::get<wire::Offer>(const_cast<wire::Message&>(message)).path.leader = 200;
    offers++;
  };
  leader().port(kThird, false);
  leader().port(kBackup, false);
  run(milliseconds(100));
  leader().port(kThird, true);
  leader().port(kBackup, true);
  run(seconds(1));
  EXPECT_GE(offers, 1);
  EXPECT_EQ(answers, 0);
  network_.before = nullptr;
  run(seconds(5));
  leader().port(kDefault, false);
  run(milliseconds(100));
  traffic(5);
  run(milliseconds(5));
  expect_all_done();
}

// Only an end whose mode asks wants to know how far the other's responder got.
TEST_F(Rounds, APeerIsToldOfTheResponderWhenItAsks) {
  b_.group->mode = Mode::kExact;
  network_.cut();
  network_.restore();
  run(milliseconds(50));
  EXPECT_TRUE(a_.group->life.control.asks_responder);
  EXPECT_FALSE(b_.group->life.control.asks_responder);
}

// C11: the peer's NICs are what its newest word says, in whatever order the words come.
TEST_F(Rounds, ALateCopyOfBindChangesNothing) {
  traffic(5);
  follower().port(kDefault, false);
  run(milliseconds(5));
  bool second = false;
  network_.copies = [&second](const wire::Message& message) {
    return std::holds_alternative<wire::Bind>(message) ? 2 : (second = false, 1);
  };
  network_.delay = [&second]() -> Loop::Clock::duration {
    return std::exchange(second, !second) ? milliseconds(20) : milliseconds(1);
  };
  network_.cut();
  network_.restore();
  network_.copies = [](const wire::Message&) { return 1; };
  network_.delay = [] { return std::chrono::microseconds(30); };
  run(milliseconds(2));
  follower().port(kDefault, true);
  traffic(5);
  run(seconds(5));
  expect_all_done();
  expect_on(kDefault, 2);
}

// A path that one end cannot send on is of no use to the other end: it would be gone back to, and
// left, for ever.
TEST_F(Rounds, APathThatOnlyTheLeaderCanSendOnIsNotGoneBackTo) {
  traffic(5);
  const group::FakeNic& sender = follower().world.nic(kDefault);
  fabric_.carries = [&](const group::FakeNic& from, const group::FakeNic&) {
    return &from != &sender;
  };
  traffic(5);
  run(milliseconds(200));
  for (int i = 0; i < 50; i++) {
    run(milliseconds(100));
    traffic(1);
  }
  expect_on(kThird, 1);
  fabric_.carries = [](const group::FakeNic&, const group::FakeNic&) { return true; };
  // The pauses between tries have grown by now.
  for (int i = 0; i < 120; i++) {
    run(milliseconds(100));
    traffic(1);
  }
  expect_all_done();
  expect_on(kDefault, 2);
}

// A leader that only receives asks the other end to try a path. A copy of this Ask may come when
// the path is in use: a probe on it would be a completion that the application never asked for
// (C2).
TEST_F(Rounds, ALateCopyOfAskTriesNothing) {
  leader().group->life.asked.mask &= ~IBV_QP_SQ_PSN;  // the leader's QP stays in RTR
  for (auto& one : leader().group->life.members) one.can_send = false;
  const auto traffic_to_leader = [this](int messages) {
    for (; messages > 0; messages--) {
      receive(leader());
      send(follower());
      run(std::chrono::microseconds(200));
    }
  };
  int asked = 0, copy = 0;
  network_.copies = [&](const wire::Message& message) {
    const auto* ready = std::get_if<wire::Ready>(&message);
    const bool is_ask = ready != nullptr && ready->kind == wire::Ready::Kind::kAsk;
    asked += is_ask;
    return copy = is_ask ? 2 : 1;
  };
  network_.delay = [&]() -> Loop::Clock::duration {
    return copy-- == 2 ? milliseconds(1500) : std::chrono::microseconds(30);
  };
  // The application polls before the layer looks for what a probe has become.
  network_.after = [&](const Delegate&, const wire::Message& message) {
    if (!std::holds_alternative<wire::Ready>(message)) return;
    for (int us = 1; us < 20; us++) {
      time_.in(std::chrono::microseconds(us), [this] { poll(follower()); });
    }
  };
  traffic_to_leader(5);
  follower().port(kDefault, false);
  traffic_to_leader(5);
  follower().port(kDefault, true);
  for (int i = 0; i < 30; i++) {
    run(milliseconds(100));
    traffic_to_leader(1);
  }
  // The ends still talk when this function's variables are gone, so the hooks go first.
  network_.after = nullptr;
  network_.copies = [](const wire::Message&) { return 1; };
  network_.delay = []() -> Loop::Clock::duration { return std::chrono::microseconds(30); };
  EXPECT_GE(asked, 2);
  expect_all_done();
  expect_on(kDefault, 2);
}

// The keys of a path that is left at the same moment are not asked for any more: the answer would
// be about the NIC that has just been left, and would say nothing of the keys that the next path
// needs.
TEST_F(Rounds, KeysOfAPathThatIsLeftAreNotWaitedFor) {
  // The path is left while the next one is being tried: so the next one is ready before the answer
  // comes.
  network_.copies = [this, once = true](const wire::Message& message) mutable {
    const auto* accept = std::get_if<wire::Accept>(&message);
    if (accept != nullptr && std::exchange(once, false)) {
      time_.in(std::chrono::microseconds(25), [this] {
        leader().port(leader().group->life.path.member, false);
        write(leader());
      });
    }
    return 1;
  };
  leader().port(kDefault, false);
  run(milliseconds(100));
  EXPECT_EQ(leader().sends_done, (std::vector<uint64_t>{1}));
  expect_on(kBackup, 2);
}

// The bound of a missing key belongs to its path; the next round's keys have the bound of that
// round.
TEST_F(Rounds, ABoundOfAnOldPathsKeyEndsNoRound) {
  leader().port(kDefault, false);
  run(milliseconds(100));
  network_.copies = [](const wire::Message& message) {
    return std::holds_alternative<wire::KeyReply>(message) ? 0 : 1;
  };
  write(leader());
  run(milliseconds(config().exchange_ms) - milliseconds(20));
  leader().port(leader().group->life.path.member, false);
  run(milliseconds(100));
  EXPECT_EQ(leader().group->life.control.state, State::kResuming);
  network_.copies = [](const wire::Message&) { return 1; };
  network_.cut();
  network_.restore();
  run(milliseconds(100));
  for (SimHost* host : {&a_, &b_}) EXPECT_EQ(host->group->life.control.state, State::kActive);
  EXPECT_EQ(leader().sends_done, (std::vector<uint64_t>{1}));
}

// C6: an end that gave up while there was no channel says so on the next one.
TEST_F(Rounds, NobodyWaitsForAPeerThatFailedUnheard) {
  traffic(5);
  follower().qp(kDefault).modify_error = EINVAL;  // the fence cannot be proven
  leader().port(kDefault, false);
  run(milliseconds(100));
  network_.cut();
  network_.lose_channels();
  run(milliseconds(config().fence_ms) + milliseconds(100));
  EXPECT_EQ(follower().group->life.control.state, State::kFailed);
  EXPECT_EQ(leader().group->life.control.state, State::kExchanging);
  network_.restore();
  run(seconds(1));
  EXPECT_EQ(leader().group->life.control.state, State::kFailed);
}

// ibv_close_device(3) calls what is left on the device a leak, not an error.
TEST_F(Rounds, NothingIsDoneForAQpThatIsLeftOnAClosedDevice) {
  traffic(5);
  a_.qp(kDefault).flushes = false;  // the fence lasts
  a_.port(kDefault, false);
  time_.run_for(milliseconds(1));
  ASSERT_EQ(a_.group->life.control.state, State::kFencing);
  a_.coordinator.context_forget(&a_.world.context);
  EXPECT_EQ(a_.group->life.control.state, State::kClosed);
  group::Context* const context = std::exchange(a_.group->context, nullptr);  // as if it were freed
  a_.coordinator.fault(a_.group, fsm::Event::kPathFault, group::kNoMember, "late");
  for (int m = 0; m < 3; m++) b_.port(m, false);
  time_.run_for(seconds(4));
  EXPECT_EQ(a_.group->life.control.state, State::kClosed);
  EXPECT_EQ(b_.group->life.control.state, State::kFailed);  // the peer was told
  a_.group->context = context;
}

// C6: a group whose thread never ends a batch cannot be fenced.
TEST_F(Rounds, ABatchThatDoesNotEndFailsTheGroupInTime) {
  group::OpenBatch batch(*a_.group, [&] { send(a_, 2); });
  if (!batch.is_hot) GTEST_SKIP() << "no membarrier(2) here";
  a_.port(kDefault, false);
  ASSERT_TRUE(batch.lets_return([&] { run(seconds(5)); }));
  for (SimHost* host : {&a_, &b_}) EXPECT_EQ(host->group->life.control.state, State::kFailed);
  ASSERT_EQ(a_.errors.size(), 2u);
  EXPECT_EQ(a_.errors[0].status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(a_.errors[1].wr_id, 2u);
  batch.end([&] { group::post_send(*a_.group, 3, IBV_WR_SEND); });
  run(milliseconds(10));
  ASSERT_EQ(a_.errors.size(), 3u);
  EXPECT_EQ(a_.errors[2].wr_id, 3u);
  EXPECT_EQ(a_.errors[2].status, IBV_WC_WR_FLUSH_ERR);
}

// C6: the same without a round.
TEST_F(Rounds, ABatchThatIsOpenWhenTheGroupFailsIsFlushed) {
  group::OpenBatch batch(*a_.group);
  if (!batch.is_hot) GTEST_SKIP() << "no membarrier(2) here";
  a_.coordinator.fault(a_.group, fsm::Event::kReplayRefused, kDefault, "a request cannot move");
  ASSERT_TRUE(batch.lets_return([&] { run(milliseconds(10)); }));
  EXPECT_EQ(a_.group->life.control.state, State::kFailed);
  batch.end([&] { group::post_send(*a_.group, 1, IBV_WR_SEND); });
  run(milliseconds(10));
  ASSERT_EQ(a_.errors.size(), 1u);
  EXPECT_EQ(a_.errors[0].wr_id, 1u);
}

// C7: the round begins when the batch is over, and the batch is replayed.
TEST_F(Rounds, ABatchThatEndsIsPartOfTheRound) {
  group::OpenBatch batch(*a_.group, [&] { send(a_); });
  if (!batch.is_hot) GTEST_SKIP() << "no membarrier(2) here";
  a_.port(kDefault, false);
  ASSERT_TRUE(batch.lets_return([&] { run(milliseconds(500)); }));
  EXPECT_TRUE(fsm::kFence.has(a_.group->life.control.state));
  batch.end([&] { group::post_send(*a_.group, ++a_.sent, IBV_WR_SEND); });
  receive(b_, 2);
  run(milliseconds(500));
  expect_all_done();
  EXPECT_NE(a_.group->life.path.member, kDefault);
}

// The peer's application got a request wrong: this end's QP breaks, and none of this end's sends
// tells so.
class RefusedRequest : public Rounds {
 protected:
  RefusedRequest() {
    traffic(2);
    receive(a_, 2);
  }
  void event() {
    ibv_async_event event{};
    event.event_type = IBV_EVENT_QP_ACCESS_ERR;
    event.element.qp = a_.group->real[kDefault];
    a_.coordinator.device_event(&a_.world.context, kDefault, event);
  }
  void flushes() {
    a_.qp(kDefault).qp.state = IBV_QPS_ERR;
    a_.qp(kDefault).flush();
  }
  // C1, C6
  void expect_flushed() {
    ASSERT_EQ(a_.errors.size(), 2u);
    for (size_t i = 0; i < 2; i++) {
      EXPECT_EQ(a_.errors[i].status, IBV_WC_WR_FLUSH_ERR);
      EXPECT_EQ(a_.errors[i].wr_id, kReceiveTag + 3 + i);
    }
    EXPECT_EQ(a_.group->life.control.state, State::kClosed);
    EXPECT_EQ(a_.group->life.control.epoch, 0u);
  }
};

TEST_F(RefusedRequest, FlushesBehindTheEventAreGiven) {
  event();
  time_.run_for(milliseconds(1));
  flushes();
  run(milliseconds(1));
  expect_flushed();
}

TEST_F(RefusedRequest, AFlushThatWasHeldBackIsGivenWithTheEvent) {
  event();
  flushes();
  poll(a_);  // the control loop has not handled the event yet
  EXPECT_TRUE(a_.errors.empty());
  run(milliseconds(1));
  expect_flushed();
}

// The driver of a NIC that is going destroys memory regions while the QPs still answer.
TEST_F(RefusedRequest, ANicThatIsGoingIsNotBelieved) {
  a_.port(kDefault, false, false);
  event();
  flushes();
  run(seconds(1));
  EXPECT_TRUE(a_.errors.empty());
  EXPECT_EQ(a_.group->life.control.state, State::kActive);
  EXPECT_NE(a_.group->life.path.member, kDefault);
}

// C6: without any path, both ends fail within their patience, and the application gets the original
// error.
TEST_F(Rounds, WithoutAnyPathBothEndsFailInTime) {
  receive(b_, 2);
  send(a_, 2);
  for (int m = 0; m < 3; m++) a_.port(m, false);
  run(seconds(4));
  for (SimHost* host : {&a_, &b_}) {
    EXPECT_EQ(host->group->life.control.state, State::kFailed)
        << fsm::to_string(host->group->life.control.state);
  }
  ASSERT_GE(a_.errors.size(), 1u);
  EXPECT_EQ(a_.errors.front().status, IBV_WC_RETRY_EXC_ERR);
}

// A bug of the layer must not take the program along: the group fails closed.
TEST_F(Rounds, AnEventThatCannotHappenFailsTheGroup) {
  traffic(5);
  receive(a_);
  a_.coordinator.fault(a_.group, fsm::Event::kFenceDone, group::kNoMember, "a test");
  run(milliseconds(5));
  EXPECT_EQ(a_.group->life.control.state, State::kFailed);
  ASSERT_EQ(a_.errors.size(), 1u) << "the application never hears of it";
  EXPECT_EQ(a_.errors[0].status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(b_.group->life.control.state, State::kActive) << "its path has not failed yet";
  b_.port(kDefault, false);
  run(milliseconds(50));
  EXPECT_EQ(b_.group->life.control.state, State::kFailed) << "its peer refuses";
}

// While the group was masked, the program was not told what a connection manager heard of the path.
TEST_F(Rounds, AConnectionManagerHearsOfAFailure) {
  static std::vector<ibv_qp*> gone;
  gone.clear();
  ops::on_peer_gone([](ibv_qp* qp) { gone.push_back(qp); });
  send(a_);
  for (int m = 0; m < 3; m++) a_.port(m, false);
  run(seconds(4));
  ops::on_peer_gone(nullptr);
  EXPECT_EQ(gone.size(), 2u);
  EXPECT_NE(std::ranges::find(gone, a_.group->handle()), gone.end());
  EXPECT_NE(std::ranges::find(gone, b_.group->handle()), gone.end());
}

}  // namespace
}  // namespace shift::control
