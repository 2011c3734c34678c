// Each planted corruption must be reported under one of the names listed here, with every kind of
// traffic that it can happen to. Without the corruption, that traffic must report nothing.
#include "selftest.h"

#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "options_json.h"
#include "peer.h"
#include "selftest_run.h"

namespace traffic {
namespace {

Outcome run_pair(const Traffic& traffic, Spoil spoil, uint64_t spoil_at) {
  constexpr EndTimes kTimes{.stall_ms = 200, .linger_ms = 1};
  FakeFabric fabric(traffic.qps, traffic.srq, spoil, spoil_at);
  return pair_run(
      &fabric, [&](bool is_client, Transport* transport, SideChannel* side, Report* report) {
        return std::make_unique<Peer>(traffic, is_client, kTimes, transport, side, report);
      });
}

Traffic base(Op op) {
  Traffic traffic;
  traffic.op = op;
  traffic.messages = 300;
  traffic.size = 700;
  traffic.random_size = true;
  traffic.depth = 16;
  traffic.signal_every = 4;
  traffic.qps = 2;
  traffic.quiet_ms = 1;
  return traffic;
}

struct Case {
  Spoil spoil;
  Op op;
  std::vector<std::string> any_of;  // one of these must be reported
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {Spoil::kFlipByte, Op::kWrite, {"payload-mismatch"}},
      {Spoil::kFlipByte, Op::kWriteImm, {"payload-mismatch"}},
      {Spoil::kFlipByte, Op::kMixed, {"payload-mismatch"}},
      {Spoil::kStrayByte, Op::kWrite, {"payload-mismatch"}},
      {Spoil::kStrayByte, Op::kWriteImm, {"stray-write"}},
      {Spoil::kStrayByte, Op::kMixed, {"stray-write"}},
      {Spoil::kWriteLost, Op::kWrite, {"payload-mismatch"}},
      {Spoil::kWriteLost, Op::kMixed, {"payload-mismatch"}},
      {Spoil::kWritesSwapped, Op::kWrite, {"payload-mismatch"}},
      {Spoil::kGhostTarget, Op::kWriteImm, {"ghost-write"}},
      {Spoil::kGhostTarget, Op::kMixed, {"ghost-write", "payload-mismatch", "stray-write"}},
      {Spoil::kGhostReceive, Op::kSend, {"ghost-write"}},
      {Spoil::kGhostReceive, Op::kSendImm, {"ghost-write"}},
      {Spoil::kGhostReceive, Op::kMixed, {"ghost-write"}},
      {Spoil::kGhostLocal, Op::kRead, {"ghost-write"}},
      {Spoil::kNotificationLost, Op::kWriteImm, {"notification-order"}},
      {Spoil::kNotificationLost, Op::kSend, {"notification-order"}},
      {Spoil::kNotificationLost, Op::kMixed, {"notification-order"}},
      {Spoil::kNotificationTwice, Op::kWriteImm, {"notification-duplicate"}},
      {Spoil::kNotificationTwice, Op::kSend, {"notification-duplicate"}},
      {Spoil::kNotificationTwice, Op::kSendImm, {"notification-duplicate"}},
      {Spoil::kNotificationTwice, Op::kMixed, {"notification-duplicate"}},
      {Spoil::kNotificationsSwapped, Op::kWriteImm, {"notification-order"}},
      {Spoil::kNotificationsSwapped, Op::kSend, {"notification-order"}},
      {Spoil::kNotificationsSwapped, Op::kMixed, {"notification-order"}},
      {Spoil::kImmWrong, Op::kWriteImm, {"notification-order"}},
      {Spoil::kImmWrong, Op::kSendImm, {"notification-order"}},
      {Spoil::kReceiveLength, Op::kWriteImm, {"receive-length"}},
      {Spoil::kReceiveLength, Op::kSend, {"receive-length"}},
      {Spoil::kReceiveOpcode, Op::kWriteImm, {"receive-opcode"}},
      {Spoil::kReceiveOpcode, Op::kSendImm, {"receive-opcode"}},
      {Spoil::kReceiveWrong, Op::kWriteImm, {"receive-order"}},
      {Spoil::kReceiveWrong, Op::kSend, {"receive-order"}},
      {Spoil::kCompletionLost, Op::kWrite, {"completion-order"}},
      {Spoil::kCompletionLost, Op::kSend, {"completion-order"}},
      {Spoil::kCompletionTwice, Op::kWriteImm, {"completion-duplicate"}},
      {Spoil::kCompletionTwice, Op::kRead, {"completion-duplicate"}},
      {Spoil::kCompletionsSwapped, Op::kWriteImm, {"completion-order"}},
      {Spoil::kCompletionsSwapped, Op::kRead, {"completion-order"}},
      {Spoil::kCompletionUnsignaled, Op::kWriteImm, {"completion-unsignaled"}},
      {Spoil::kCompletionForeign, Op::kSend, {"completion-unknown"}},
      {Spoil::kCompletionQpNum, Op::kSend, {"completion-qp-num", "completion-unknown"}},
      {Spoil::kCompletionOpcode, Op::kSend, {"completion-opcode"}},
      {Spoil::kErrorOvertakes, Op::kWriteImm, {"completion-order"}},
      {Spoil::kErrorOvertakes, Op::kSend, {"completion-order"}},
      {Spoil::kErrorTwice, Op::kSend, {"completion-duplicate"}},
      {Spoil::kReadLength, Op::kRead, {"completion-length"}},
      {Spoil::kReadFlip, Op::kRead, {"read-mismatch"}},
      {Spoil::kReadFlip, Op::kMixed, {"read-mismatch"}},
      {Spoil::kAtomicTwice, Op::kAtomic, {"atomic-value"}},
      {Spoil::kCompletionsStop, Op::kSend, {"completion-missing"}},
      {Spoil::kCompletionsStop, Op::kWriteImm, {"completion-missing"}},
  };
  return kCases;
}

bool check_case(const Case& test, uint64_t spoil_at) {
  Outcome outcome = run_pair(base(test.op), test.spoil, spoil_at);
  if (outcome.was_spoiled && outcome.has_any(test.any_of)) return true;
  printf("MISSED %s in %s at %llu: %s\n", spoil_name(test.spoil),
         nlohmann::json(test.op).get<std::string>().c_str(),
         static_cast<unsigned long long>(spoil_at), outcome.text().c_str());
  return false;
}

bool check_clean(const Traffic& traffic) {
  return clean_judge(run_pair(traffic, Spoil::kNothing, 0), nlohmann::json(traffic).dump());
}

std::vector<Traffic> clean_runs() {
  std::vector<Traffic> runs;
  for (Op op :
       {Op::kWrite, Op::kWriteImm, Op::kSend, Op::kSendImm, Op::kRead, Op::kAtomic, Op::kMixed}) {
    Traffic traffic = base(op);
    runs.push_back(traffic);
    traffic.bidirectional = true;
    traffic.credits = Credits::kVerbs;
    runs.push_back(traffic);
    traffic = base(op);
    traffic.srq = true;
    traffic.batch = 5;
    traffic.inline_max = 200;
    traffic.messages = 1;
    runs.push_back(traffic);
    traffic = base(op);
    traffic.depth = 2;
    traffic.signal_every = 1;
    traffic.messages = 0;
    traffic.duration_ms = 5;
    traffic.bidirectional = true;
    runs.push_back(traffic);
  }
  return runs;
}

// A sender without credit whose signaled WRs are all complete is owed nothing, whatever the other
// end has consumed: its run hangs, and the judge says no more than that.
bool check_starved() {
  Traffic traffic = base(Op::kSend);
  traffic.credits = Credits::kVerbs;
  traffic.signal_every = 3;  // the last WRs that credit allows are unsignaled
  bool is_right = true;
  for (uint64_t at = 0; at < 8; ++at) {
    const Outcome outcome = run_pair(traffic, Spoil::kCreditsStop, at);
    if (outcome.was_spoiled && outcome.names == std::set<std::string>{"hang"}) continue;
    printf("FALSE ALARM without credits from %llu on: %s\n", static_cast<unsigned long long>(at),
           outcome.text().c_str());
    is_right = false;
  }
  return is_right;
}

// Of more pauses than are kept, the longest ones are.
bool check_pauses() {
  Pauses pauses;
  constexpr uint64_t kCount = 3 * Pauses::kKeepMax, kMs = 1'000'000;
  pauses.add({5, 5 + kMs / 2});
  for (uint64_t i = 0; i < kCount; ++i) {
    const uint64_t length = (1 + i * 7 % kCount) * kMs;  // each once, and in no order
    pauses.add({i, i + length});
  }
  bool is_right = pauses.longest_ns() == kCount * kMs && pauses.kept().size() == Pauses::kKeepMax;
  for (const Pause& pause : pauses.kept())
    is_right &= pause.length_ns() > (kCount - Pauses::kKeepMax) * kMs;
  if (!is_right) printf("MISSED: the longest pauses were not kept\n");
  return is_right;
}

}  // namespace

int selftest() {
  int checked = 2, failed = (check_pauses() ? 0 : 1) + (check_starved() ? 0 : 1);
  for (const Traffic& traffic : clean_runs()) {
    ++checked;
    failed += check_clean(traffic) ? 0 : 1;
  }
  std::set<Spoil> covered;
  for (const Case& test : cases()) {
    covered.insert(test.spoil);
    // Plain WRITEs 0..11 of each of the two QPs are overwritten before the fence.
    bool is_covered_up = test.op == Op::kWrite && test.spoil != Spoil::kWritesSwapped;
    for (uint64_t at : {is_covered_up ? 30u : 3u, is_covered_up ? 40u : 20u}) {
      ++checked;
      failed += check_case(test, at) ? 0 : 1;
    }
  }
  ++checked;
  failed += error_judge(run_pair(base(Op::kSend), Spoil::kError, 10)) ? 0 : 1;
  covered.insert({Spoil::kNothing, Spoil::kError, Spoil::kCreditsStop});
  if (covered.size() != static_cast<size_t>(Spoil::kCount)) {
    printf("some corruption is never planted\n");
    ++failed;
  }
  return selftest_verdict(checked, failed);
}

}  // namespace traffic
