// Sends orders (orders.h).
#pragma once

#include <sys/types.h>

#include <string>

namespace shift::state {

// Sends the order over `fd`, an unconnected datagram socket, to the socket of that name in a folder
// of its user. Never waits. Returns 0 or an errno: EAGAIN, the process takes no orders now; EPERM,
// it is no socket of that user. Thread-safe.
int order_send(int folder, const char* name, uid_t user, int fd, const std::string& order);

// Sends the order to each process of this user that has a socket in the base folder, but not to the
// one with the socket `own`. Never waits: a process that takes no orders now is left out. Returns
// how many were sent.
int order_all(const std::string& base, const std::string& own, const std::string& order) noexcept;

}  // namespace shift::state
