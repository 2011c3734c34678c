// What the self-tests of traffic programs share: they run both ends in one process, on a fabric
// that spoils one thing, and judge what the ends report.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "end.h"
#include "fake_fabric.h"

namespace traffic {

struct Outcome {
  std::set<std::string> names;  // of the violations; "hang" when a run did not finish
  bool has_error = false;
  bool was_spoiled = false;

  bool is_clean() const { return names.empty() && !has_error; }
  bool has_any(const std::vector<std::string>& wanted) const;
  std::string text() const;
};

using EndMake = std::function<std::unique_ptr<End>(bool is_client, Transport* transport,
                                                   SideChannel* side, Report* report)>;
Outcome pair_run(FakeFabric* fabric, const EndMake& make);

// A run without corruption, described by `traffic`, must report nothing.
bool clean_judge(const Outcome& outcome, const std::string& traffic);
// A run with an error completion must report an error, and no violation.
bool error_judge(const Outcome& outcome);
// Returns the exit code.
int selftest_verdict(int checked, int failed);

}  // namespace traffic
