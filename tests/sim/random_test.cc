// Random faults of two hosts in virtual time. Phase one: anything may break but one path; what is
// done is done once and in order. Phase two: all is well again, everything must complete (C7).
// SHIFT_TEST_SEED repeats a run.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "sim/two_hosts.h"

namespace shift::control {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

class Storm : public TwoHosts {
 public:
  explicit Storm(uint64_t seed) : random_(seed), safe_(static_cast<int>(below(3))) {}
  // The hosts outlive the dice, and they still have something to say when they end.
  ~Storm() override {
    network_.delay = [] { return microseconds(30); };
    network_.copies = [](const wire::Message&) { return 1; };
  }
  void TestBody() override {}
  void go() {
    network_.delay = [this] { return microseconds(10 + below(4) * below(200)); };
    network_.copies = [this](const wire::Message&) { return below(5) == 0 ? 2 : 1; };
    run(milliseconds(500));  // before a second path is ready, nothing is masked
    for (uint32_t turns = 20 + below(60); turns > 0; turns--) turn();
    calm();
    expect_all_done();
    for (SimHost* host : {&a_, &b_}) {
      EXPECT_EQ(host->group->state, fsm::State::kActive) << fsm::to_string(host->group->state);
      EXPECT_EQ(host->group->send.route, group::Route::kOnDefault) << "C7: the way back";
    }
    EXPECT_EQ(a_.group->epoch, b_.group->epoch);
  }
  uint32_t rounds() const { return a_.group->epoch; }

 private:
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }

  void talk(SimHost& from, SimHost& to) {
    // The queues are not deep; a receive may come late, but not before its turn.
    const uint64_t open = from.sent - from.sends_done.size();
    if (open < 20) send(from, static_cast<int>(below(4)));
    if (to.receives < from.sent && below(4) != 0) {
      receive(to, static_cast<int>(from.sent - to.receives));
    }
  }
  void turn() {
    talk(a_, b_);
    talk(b_, a_);
    SimHost& host = below(2) == 0 ? a_ : b_;
    const int current = host.group->member;
    const int member =
        below(2) == 0 && current != group::kNoMember ? current : static_cast<int>(below(3));
    switch (below(8)) {
      case 0:
      case 1:
        // The spoken and the silent kind; one path is spared.
        if (member != safe_) host.port(member, false, below(3) != 0);
        break;
      case 2:
      case 3:
        if (!host.world.nic(member).port_up) host.port(member, true);
        break;
      case 4:
        network_.cut();
        run(milliseconds(below(200)));
        network_.restore();
        break;
      default:
        break;
    }
    run(microseconds(50) * (1 + below(below(8) == 0 ? 20000 : 200)));
  }
  void calm() {
    for (SimHost* host : {&a_, &b_}) {
      for (int m = 0; m < 3; m++) {
        // Silent ones were never reported: the port goes down and up for all to see.
        if (!host->world.nic(m).port_up) host->port(m, false);
        host->port(m, true);
      }
    }
    for (int i = 0; i < 20; i++) {
      if (a_.receives < b_.sent) receive(a_, static_cast<int>(b_.sent - a_.receives));
      if (b_.receives < a_.sent) receive(b_, static_cast<int>(a_.sent - b_.receives));
      run(seconds(1));
    }
  }

  std::mt19937_64 random_;
  const int safe_;
};

// How many rounds it took.
uint32_t check(uint64_t seed) {
  SCOPED_TRACE(::testing::Message() << "SHIFT_TEST_SEED=" << seed);
  Storm storm(seed);
  storm.go();
  return storm.rounds();
}

TEST(Storms, EverythingCompletesOnceAndInOrder) {
  if (const char* wanted = std::getenv("SHIFT_TEST_SEED")) {
    check(std::strtoull(wanted, nullptr, 0));
    return;
  }
  uint32_t rounds = 0;
  for (uint64_t seed = 1; seed <= 25 && !::testing::Test::HasFailure(); seed++) {
    rounds += check(seed);
  }
  EXPECT_GT(rounds, 40u) << "the weather was too fair to prove anything";
  std::random_device device;
  for (int i = 0; i < 5 && !::testing::Test::HasFailure(); i++) check(device());
}

}  // namespace
}  // namespace shift::control
