// Each planted corruption must be reported under one of the names given here, on every traffic
// kind it can happen in; the same traffic without it must report nothing.
#include "selftest.h"

#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "fake_fabric.h"
#include "options_json.h"
#include "peer.h"

namespace traffic {
namespace {

struct Outcome {
  std::set<std::string> names;
  bool has_error = false;
  bool was_spoiled = false;
  bool is_finished = false;
};

Outcome run_pair(const Traffic& traffic, Spoil spoil, uint64_t spoil_at) {
  constexpr PeerTimes kTimes{.stall_ms = 200, .linger_ms = 1};
  Report reports[2] = {Report(false), Report(false)};
  FakeFabric fabric(traffic.qps, traffic.srq, spoil, spoil_at);
  Peer client(traffic, true, kTimes, fabric.transport(0), fabric.side(0), &reports[0]);
  Peer server(traffic, false, kTimes, fabric.transport(1), fabric.side(1), &reports[1]);
  while (!(client.is_done() && server.is_done())) {
    client.step();
    server.step();
    if (client.is_stalled() || server.is_stalled()) break;
  }
  Outcome outcome;
  outcome.is_finished = client.is_done() && server.is_done();
  outcome.was_spoiled = fabric.was_spoiled();
  for (const Report& report : reports) {
    outcome.has_error |= report.has_error();
    for (const Violation& violation : report.violations()) outcome.names.insert(violation.name);
  }
  return outcome;
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

std::string joined(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text.empty() ? "nothing" : text;
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
  };
  return kCases;
}

bool check_case(const Case& test, uint64_t spoil_at) {
  Outcome outcome = run_pair(base(test.op), test.spoil, spoil_at);
  bool is_caught = false;
  for (const std::string& name : test.any_of) is_caught |= outcome.names.contains(name);
  if (outcome.was_spoiled && is_caught) return true;
  printf("MISSED %s in %s at %llu: %s, reported %s\n", spoil_name(test.spoil),
         nlohmann::json(test.op).get<std::string>().c_str(),
         static_cast<unsigned long long>(spoil_at),
         outcome.was_spoiled ? "planted" : "never planted", joined(outcome.names).c_str());
  return false;
}

bool check_clean(const Traffic& traffic) {
  Outcome outcome = run_pair(traffic, Spoil::kNothing, 0);
  if (outcome.is_finished && !outcome.has_error && outcome.names.empty()) return true;
  printf("FALSE ALARM in %s: %s%s, reported %s\n", nlohmann::json(traffic).dump().c_str(),
         outcome.is_finished ? "finished" : "stuck", outcome.has_error ? " with error" : "",
         joined(outcome.names).c_str());
  return false;
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

}  // namespace

int selftest() {
  int checked = 0, failed = 0;
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
  Outcome outcome = run_pair(base(Op::kSend), Spoil::kError, 10);
  ++checked;
  if (!outcome.has_error || !outcome.names.empty()) {
    printf("MISSED error completion: reported %s\n", joined(outcome.names).c_str());
    ++failed;
  }
  covered.insert({Spoil::kNothing, Spoil::kError});
  if (covered.size() != static_cast<size_t>(Spoil::kCount)) {
    printf("some corruption is never planted\n");
    ++failed;
  }
  printf("selftest: %d runs, %d failed\n", checked, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace traffic
