// Each planted corruption must be reported under one of the names listed here. Without the
// corruption, that traffic must report nothing.
#include "pattern_selftest.h"

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "engine.h"
#include "pattern_options_json.h"
#include "selftest_run.h"

namespace traffic::nccl {
namespace {

Outcome run_pair(const Options& options, Spoil spoil, uint64_t spoil_at) {
  constexpr EndTimes kTimes{.stall_ms = 100, .linger_ms = 1};
  FakeFabric fabric(verbs_traffic(options).qps, false, spoil, spoil_at);
  // A ghost WRITE does no harm before the completions in front of it are polled, so it comes late.
  fabric.ghost_later(24 * (options.split ? options.qps : 1));
  return pair_run(
      &fabric, [&](bool is_client, Transport* transport, SideChannel* side, Report* report) {
        return std::make_unique<Engine>(options, is_client, kTimes, transport, side, report);
      });
}

Options base(uint32_t qps, bool split) {
  Options options;
  options.messages = 400;
  options.size = 1500;
  options.random_size = true;
  options.qps = qps;
  options.split = split;
  options.depth = 32;
  options.separate_from = 1000;
  options.quiet_ms = 1;
  return options;
}

Options group_of_four() {
  Options options = base(1, false);
  options.group = 4;
  return options;
}

struct Case {
  Spoil spoil;
  std::vector<std::string> any_of;  // one of these must be reported
};

// A spoiled WRITE may be a clear-to-send entry, data or sizes, so there are several names.
const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {Spoil::kFlipByte, {"payload-mismatch", "sizes-mismatch", "cts-mismatch", "hang"}},
      {Spoil::kStrayByte, {"stray-write", "payload-mismatch", "cts-mismatch", "hang"}},
      {Spoil::kWriteLost, {"payload-mismatch", "hang"}},
      {Spoil::kNotificationLost, {"notification-order", "hang"}},
      {Spoil::kNotificationTwice, {"notification-duplicate"}},
      {Spoil::kNotificationsSwapped, {"notification-order"}},
      {Spoil::kImmWrong,
       {"notification-unexpected", "notification-order", "notification-duplicate"}},
      {Spoil::kReceiveLength, {"receive-length"}},
      {Spoil::kReceiveOpcode, {"receive-opcode"}},
      {Spoil::kReceiveWrong, {"receive-order"}},
      {Spoil::kCompletionLost, {"completion-order", "hang"}},
      {Spoil::kCompletionTwice, {"completion-duplicate"}},
      {Spoil::kCompletionsSwapped, {"completion-order"}},
      {Spoil::kCompletionUnsignaled, {"completion-unsignaled"}},
      {Spoil::kCompletionForeign, {"completion-unknown"}},
      {Spoil::kCompletionQpNum, {"completion-qp-num", "completion-unknown"}},
      {Spoil::kCompletionOpcode, {"completion-opcode"}},
      {Spoil::kReadLength, {"completion-length"}},
      {Spoil::kReadFlip, {"read-mismatch"}},
      {Spoil::kGhostLocal, {"ghost-write", "read-mismatch"}},
      {Spoil::kGhostTarget, {"ghost-write", "stray-write", "payload-mismatch"}},
  };
  return kCases;
}

bool is_ghost(Spoil spoil) {
  return spoil == Spoil::kGhostTarget || spoil == Spoil::kGhostLocal;
}

// Some corruption does no harm. A late WRITE of a clear-to-send entry repeats the entry, and a late
// WRITE or READ may come before its completion is polled. A stray byte may hit the old entries that
// lie after those of a small group, or the next part of a message, which overwrites it.
bool is_harmless(const Options& options, Spoil spoil, const Outcome& outcome) {
  bool may_be =
      is_ghost(spoil) || (spoil == Spoil::kStrayByte && (options.group > 1 || options.split));
  return may_be && outcome.was_spoiled && outcome.is_clean();
}

int check_case(const Options& options, const Case& test) {
  int missed = 0, caught = 0;
  for (uint64_t at : {3u, 61u, 104u, 300u, 20u, 150u, 200u, 250u}) {
    if (at == 20 && !is_ghost(test.spoil)) break;
    Outcome outcome = run_pair(options, test.spoil, at);
    if (outcome.was_spoiled && outcome.has_any(test.any_of)) {
      ++caught;
    } else if (!is_harmless(options, test.spoil, outcome)) {
      ++missed;
      printf("MISSED %s with %u QPs%s at %llu: %s\n", spoil_name(test.spoil), options.qps,
             options.split ? ", split," : "", static_cast<unsigned long long>(at),
             outcome.text().c_str());
    }
  }
  if (caught == 0) printf("MISSED %s with %u QPs always\n", spoil_name(test.spoil), options.qps);
  return missed + (caught == 0 ? 1 : 0);
}

bool check_clean(const Options& options) {
  return clean_judge(run_pair(options, Spoil::kNothing, 0), nlohmann::json(options).dump());
}

std::vector<Options> kinds() {
  return {base(1, false),  base(4, false), base(4, true),
          base(16, false), base(16, true), group_of_four()};
}

std::vector<Options> clean_runs() {
  std::vector<Options> runs = kinds();
  Options options = base(2, true);
  options.connections = 3;
  options.bidirectional = options.cts_inline = true;
  runs.push_back(options);
  options = group_of_four();
  options.group = kGroupMax;
  options.flush = false;
  options.qps = 3;
  options.split = true;
  runs.push_back(options);
  options = base(1, false);
  options.size = 0;
  options.depth = 1;
  runs.push_back(options);
  options = base(4, false);
  options.messages = 0;
  options.duration_ms = 5;
  runs.push_back(options);
  return runs;
}

}  // namespace

int selftest() {
  int checked = 0, failed = 0;
  for (const Options& options : clean_runs()) {
    ++checked;
    failed += check_clean(options) ? 0 : 1;
  }
  for (const Options& options : kinds()) {
    for (const Case& test : cases()) {
      ++checked;
      failed += check_case(options, test);
    }
  }
  ++checked;
  failed += error_judge(run_pair(base(4, true), Spoil::kError, 10)) ? 0 : 1;
  return selftest_verdict(checked, failed);
}

}  // namespace traffic::nccl
