// Closes the layer's descriptors in fork children. A fork child has none of the layer's threads,
// but copies of all its descriptors: while the child holds a listening socket, the port stays taken
// after the parent's exit.
#pragma once

#include <cstdint>

namespace shift {

// Descriptors that are registered here are closed in every fork child. Both functions are
// thread-safe. The caller closes the descriptor itself, after fork_fd_remove().
void fork_fd_add(int fd) noexcept;
void fork_fd_remove(int fd) noexcept;

// The number of forks between the process that called it first and this process. An object keeps
// the number from its creation; when the number has changed, the object belongs to another process.
uint64_t fork_generation() noexcept;

}  // namespace shift
