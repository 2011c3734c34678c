// One switch in the model: two hosts are connected, a NIC breaks, and all QPs move.
#pragma once

#include <chrono>
#include <cstdint>

#include "switch_model/host.h"

namespace switch_model {

// What a switch took, from the broken port's event until the last QP had moved.
struct Figures {
  using Duration = std::chrono::steady_clock::duration;
  Duration all;
  Duration control[2];  // at the broken NIC's end, and at the other
  Duration commands;
  uint64_t messages = 0, tasks = 0;
};

// Throws std::runtime_error if something takes for ever, or a request is refused.
Figures switch_run(const Options& options);

}  // namespace switch_model
