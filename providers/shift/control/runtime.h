// The two background threads of the process and their coordinator, started with the first protected
// context and never ended: the process's exit ends them. A fork child has none of its parent's, and
// starts its own with the first protected context that it opens.
#pragma once

#include "control/coordinator.h"
#include "net/loop.h"

namespace shift::control {

struct Runtime {
  net::Loop& control;
  net::Loop& worker;
  Coordinator& coordinator;
};
// Starts them where this process has none. False: they cannot run. Thread-safe.
bool runtime_start();
// Null before the first start. In a fork child that has not started any: the parent's, which take
// no calls. Thread-safe.
Runtime* runtime();

}  // namespace shift::control
