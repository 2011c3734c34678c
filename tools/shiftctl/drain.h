// shiftctl drain and undrain: the order that processes leave a NIC, and the wait until they have.
#pragma once

#include <chrono>
#include <string>

#include "host.h"

namespace shift::ctl {

// The exit statuses of commands that change something.
inline constexpr int kExitProblem = 1;  // it did not happen, or not in time
inline constexpr int kExitRefused = 3;  // it would do harm, so nothing was changed

struct DrainOptions {
  std::string nic;
  std::chrono::milliseconds timeout{};
  bool is_forced = false;
};

int drain_run(const Place& place, const DrainOptions& options);
int undrain_run(const Place& place, const std::string& nic);
int drained_list(const Place& place);

}  // namespace shift::ctl
