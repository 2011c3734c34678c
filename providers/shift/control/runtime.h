// The background threads of the process and their coordinator: the control thread, which starts
// with the first protected context, and the command threads of the NICs (nic_threads.h), each of
// which starts with its first task. They never end before the process does. A fork child has none
// of its parent's threads, and starts its own with the first protected context that it opens.
#pragma once

#include "control/coordinator.h"
#include "net/loop.h"

namespace shift::control {

struct Runtime {
  net::Loop& control;
  Coordinator& coordinator;
};
// Starts the control thread if this process has none. False if it cannot run. Thread-safe.
bool runtime_start();
// Null before the first start. A fork child that has not started its own gets its parent's, which
// take no calls. Thread-safe.
Runtime* runtime();

}  // namespace shift::control
