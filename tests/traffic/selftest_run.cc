// Runs both ends in turns, and checks what the judge reports.
#include "selftest_run.h"

#include <algorithm>
#include <cstdio>

namespace traffic {
namespace {
constexpr uint64_t kPassNs = 5000;  // how long one step of both ends takes
}

bool Outcome::has_any(const std::vector<std::string>& wanted) const {
  return std::ranges::any_of(wanted, [&](const std::string& name) { return names.contains(name); });
}

std::string Outcome::text() const {
  std::string joined;
  for (const std::string& name : names) joined += (joined.empty() ? "" : ",") + name;
  return fmt::format("{}, reported {}{}", was_spoiled ? "planted" : "never planted",
                     joined.empty() ? "nothing" : joined, has_error ? " and an error" : "");
}

Outcome pair_run(FakeFabric* fabric, const EndMake& make) {
  ClockByHand clock;
  Report reports[2] = {Report(false), Report(false)};
  auto client = make(true, fabric->transport(0), fabric->side(0), &reports[0]);
  auto server = make(false, fabric->transport(1), fabric->side(1), &reports[1]);
  while (!(client->is_done() && server->is_done())) {
    client->step();
    server->step();
    clock.advance(kPassNs);
    if (client->is_stalled() || server->is_stalled()) break;
  }
  Outcome outcome;
  outcome.was_spoiled = fabric->was_spoiled();
  if (!client->is_done() || !server->is_done()) outcome.names.insert("hang");
  for (const Report& report : reports) {
    outcome.has_error |= report.has_error();
    for (const Violation& violation : report.violations()) outcome.names.insert(violation.name);
  }
  return outcome;
}

bool clean_judge(const Outcome& outcome, const std::string& traffic) {
  if (outcome.is_clean()) return true;
  printf("FALSE ALARM in %s: %s\n", traffic.c_str(), outcome.text().c_str());
  return false;
}

bool error_judge(const Outcome& outcome) {
  if (outcome.has_error && outcome.names.empty()) return true;
  printf("MISSED error completion: %s\n", outcome.text().c_str());
  return false;
}

int selftest_verdict(int checked, int failed) {
  printf("selftest: %d runs, %d failed\n", checked, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace traffic
