// What a fork child must forget. The child has none of our threads, yet copies of all our
// descriptors: while it holds a listening socket, the port stays taken after the parent's exit.
#pragma once

#include <cstdint>

namespace shift {

// Descriptors registered here are closed in every fork child. Both are thread-safe; the caller
// still closes the descriptor itself, after fork_fd_remove.
void fork_fd_add(int fd) noexcept;
void fork_fd_remove(int fd) noexcept;

// Number of forks between the first caller and this process: objects remember it at creation and
// know themselves to be another process's when it has changed.
uint64_t fork_generation() noexcept;

}  // namespace shift
