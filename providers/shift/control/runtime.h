// The two background threads of the process and their coordinator, started with the first protected
// context and never ended: the process's exit ends them.
#pragma once

#include "control/coordinator.h"
#include "control/loop.h"

namespace shift::control {

struct Runtime {
  Loop& control;
  Loop& worker;
  Coordinator& coordinator;
};
// Null when they cannot run.
Runtime* runtime();

}  // namespace shift::control
