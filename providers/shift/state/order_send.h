// Sends an order to the user's other processes (orders.h). Only the control loop uses it.
#pragma once

#include <string>

namespace shift::state {

// Sends the order to each process of this user that has a socket in the base folder, but not to the
// one with the socket `own`. Never waits: a process that takes no orders now is left out. Returns
// how many were sent.
int order_all(const std::string& base, const std::string& own, const std::string& order) noexcept;

}  // namespace shift::state
