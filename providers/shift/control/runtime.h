// The two background threads of the process and their coordinator. They start with the first
// protected context and never end before the process does. A fork child has none of its parent's
// threads, and starts its own with the first protected context that it opens.
#pragma once

#include "control/coordinator.h"
#include "net/loop.h"

namespace shift::control {

struct Runtime {
  net::Loop& control;
  net::Loop& worker;
  Coordinator& coordinator;
};
// Starts the threads if this process has none. False if they cannot run. Thread-safe.
bool runtime_start();
// Null before the first start. A fork child that has not started its own gets its parent's, which
// take no calls. Thread-safe.
Runtime* runtime();

}  // namespace shift::control
