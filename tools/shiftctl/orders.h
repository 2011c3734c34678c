// Sends orders to processes (state/orders.h).
#pragma once

#include <string>

#include "host.h"

namespace shift::ctl {

// Sends one order to the process's socket, and waits a moment if that is full. Returns an empty
// text, or why the process did not get it.
std::string order_send(const Place& place, const Process& process, const std::string& order);

}  // namespace shift::ctl
