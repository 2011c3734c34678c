// The two ends of a QP pair that is connected anew find each other, whichever application is slow.
#include <gtest/gtest.h>

#include <initializer_list>
#include <string_view>
#include <utility>
#include <variant>

#include "control/test/two_hosts.h"
#include "util/config.h"
#include "util/test/event_sink.h"

namespace shift::control {
namespace {

using fsm::State;
using group::kDefault;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Both applications connect a QP pair anew after a reset, and the leader's application is done
// first: the leader's Hello is answered for the follower's QP as it was before the reset.
class Anew : public TwoHosts {
 protected:
  Anew() {
    follows_.group->life.asked.attr.sq_psn = 7;
    follows_.group->life.asked.attr.rq_psn = 8;
    network_.copies = [this](const wire::Message& message) {
      const auto* bind = std::get_if<wire::Bind>(&message);
      if (bind != nullptr) last_bind_ = *bind;
      binds_ += bind != nullptr;
      return 1;
    };
  }
  // The hosts still talk while the fixture is taken down, so its hooks go first.
  ~Anew() override {
    network_.copies = [](const wire::Message&) { return 1; };
    network_.before = nullptr;
  }
  void follower_resets() {
    follows_.coordinator.group_forget(follows_.group);
    follows_.group->life.control = {};
  }
  void follower_connects() {
    psns_of_now();
    follows_.group->life.serial += 100;
    follows_.coordinator.group_add(follows_.group);
  }
  void psns_of_now() {
    const bool is_a = &follows_ == &a_;
    follows_.connect(leads_, is_a ? 1000 : 2000, is_a ? 2000 : 1000);
  }
  void expect_protected() {
    traffic(5);
    run(seconds(1));
    const int binds = binds_;
    run(seconds(5));
    EXPECT_EQ(binds_, binds) << "there is nothing to be proved any more";
    leads_.port(kDefault, false);
    run(milliseconds(100));
    traffic(5);
    run(milliseconds(5));
    expect_all_done();
    EXPECT_EQ(leads_.group->life.control.epoch, 1u);
    EXPECT_NE(leads_.group->life.path.member, kDefault);
  }

  SimHost& leads_ = a_.group->life.ends.local <= a_.group->life.ends.remote ? a_ : b_;
  SimHost& follows_ = &leads_ == &a_ ? b_ : a_;
  int binds_ = 0;
  wire::Bind last_bind_;
};

TEST_F(Anew, ABindThatMetTheOldLifeIsSaidAgain) {
  run(milliseconds(50));
  EXPECT_EQ(binds_, 1);
  follower_resets();
  follower_connects();
  expect_protected();
}

TEST_F(Anew, ABindThatMetNobodyIsSaidAgain) {
  network_.before = [this, once = true](const Delegate&, const wire::Message& message) mutable {
    if (!std::holds_alternative<wire::Bind>(message) || !std::exchange(once, false)) return;
    follower_resets();
    time_.in(milliseconds(1), [this] { follower_connects(); });
  };
  run(milliseconds(50));
  expect_protected();
}

TEST_F(Anew, ABindThatIsSaidTwiceChangesNothing) {
  psns_of_now();
  network_.copies = [](const wire::Message& message) {
    return std::holds_alternative<wire::Bind>(message) ? 5 : 1;
  };
  network_.copy_delay = [copy = 0]() mutable { return milliseconds(++copy); };
  run(milliseconds(100));
  network_.copies = [](const wire::Message&) { return 1; };
  expect_protected();
}

// C6
TEST_F(Anew, WhoNeverProvesItselfIsGivenUpInTime) {
  run(milliseconds(config().rendezvous_ms) + seconds(1));
  EXPECT_EQ(leads_.group->life.control.state, State::kUnbound)
      << fsm::to_string(leads_.group->life.control.state);
  EXPECT_EQ(leads_.group->life.errors.members[kDefault].accept, group::Accept::kPass);
  EXPECT_GE(binds_, 8);
  EXPECT_LE(binds_, 15);
  const int binds = binds_;
  run(seconds(5));
  EXPECT_EQ(binds_, binds);
  // The peer is believed whenever it proves itself.
  follower_resets();
  follower_connects();
  network_.cut();
  network_.restore();
  expect_protected();
}

// The applications bring their QPs to RTR, and to RTS when the test says so.
class LateRts : public Anew {
 protected:
  LateRts() {
    for (SimHost* host : {&leads_, &follows_}) host->stay_in_rtr(host->group);
    psns_of_now();
    test::event_sink_set([this](const char* name, std::initializer_list<EventField>) {
      bound_ += std::string_view(name) == "bound";
    });
  }
  ~LateRts() override { test::event_sink_set({}); }
  void to_rts(SimHost& host) { host.reach_rts(host.group); }
  // Each end believes the other at once; timers run for longer than that.
  void expect_bound() {
    run(milliseconds(2));
    EXPECT_EQ(bound_, 2);
  }

  int bound_ = 0;
};

TEST_F(LateRts, NobodyIsBelievedWhileBothAreInRtr) {
  run(seconds(60));
  EXPECT_EQ(bound_, 0);
  for (SimHost* host : {&leads_, &follows_}) {
    EXPECT_EQ(host->group->life.control.state, State::kActive) << "nor is anybody given up";
    EXPECT_EQ(host->group->life.control.epoch, 0u);
  }
}

TEST_F(LateRts, TheLeaderIsFirst) {
  run(seconds(60));
  to_rts(leads_);
  expect_bound();
  to_rts(follows_);
  expect_protected();
}

TEST_F(LateRts, TheFollowerIsFirst) {
  run(seconds(60));
  to_rts(follows_);
  expect_bound();
  to_rts(leads_);
  expect_protected();
}

TEST_F(LateRts, OneOfThemStaysInRtr) {
  run(seconds(60));
  to_rts(follows_);
  expect_bound();
  run(seconds(60));
  EXPECT_EQ(leads_.group->life.control.state, State::kActive);
}

// As programs do it: the QPs are in RTS before the two processes have met, or just then.
TEST_F(LateRts, NobodyWaitsForATimer) {
  run(std::chrono::microseconds(50));
  to_rts(leads_);
  run(std::chrono::microseconds(50));
  to_rts(follows_);
  expect_bound();
  expect_protected();
}

// The link may be back before anything is sent, and the round would have nobody to speak with.
TEST_F(LateRts, ALinkThatComesAndGoesBefore) {
  run(seconds(1));
  for (SimHost* host : {&leads_, &follows_}) host->port(kDefault, false);
  run(seconds(60));
  for (SimHost* host : {&leads_, &follows_}) host->port(kDefault, true);
  for (SimHost* host : {&leads_, &follows_}) {
    EXPECT_EQ(host->group->life.control.state, State::kActive);
    EXPECT_EQ(host->group->life.control.epoch, 0u);
    to_rts(*host);
  }
  expect_bound();
  expect_protected();
}

TEST_F(LateRts, ALinkThatGoesBeforeIsLeftThen) {
  run(seconds(1));
  leads_.port(kDefault, false);
  run(seconds(60));
  EXPECT_EQ(leads_.group->life.path.member, kDefault);
  for (SimHost* host : {&leads_, &follows_}) to_rts(*host);
  run(seconds(1));
  for (SimHost* host : {&leads_, &follows_}) {
    EXPECT_EQ(host->group->life.control.state, State::kActive);
    EXPECT_EQ(host->group->life.control.epoch, 1u);
  }
  EXPECT_NE(leads_.group->life.path.member, kDefault);
}

// C6: the application's change to RTS waits for the end of a round, so that no round waits for RTS.
TEST_F(LateRts, ARoundBeforeEndsInTime) {
  run(seconds(1));
  for (SimHost* host : {&leads_, &follows_}) {
    host->coordinator.fault(host->group, fsm::Event::kPathFault, kDefault, "a fault");
  }
  run(milliseconds(config().rendezvous_ms) + seconds(1));
  for (SimHost* host : {&leads_, &follows_})
    EXPECT_EQ(host->group->life.control.state, State::kFailed);
}

// A follower in RTR keeps the leader's Bind, which has to be true when it is believed at last.
TEST_F(LateRts, WhatChangesIsSaidAtOnce) {
  run(seconds(20));
  EXPECT_EQ(last_bind_.members_up, 7);
  leads_.port(group::kThird, false);
  run(milliseconds(1));
  EXPECT_EQ(last_bind_.members_up, 3);
}

}  // namespace
}  // namespace shift::control
