// One switch in the model: two hosts are connected, a NIC breaks, and all QPs move.
#pragma once

#include <chrono>
#include <cstdint>

#include "net/test/memory_network.h"
#include "switch_model/host.h"

namespace switch_model {

// What a switch took, from the broken port's event until the last QP had moved.
struct Figures {
  using Duration = std::chrono::steady_clock::duration;
  Duration all, control[2],
      commands;  // the control threads are those of the broken NIC's end and of the other
  uint64_t messages = 0, tasks = 0;
};

// Throws std::runtime_error if something takes for ever.
Figures switch_run(const Options& options);

}  // namespace switch_model
