// Files that the layer appends lines to: event records and the log.
#pragma once

namespace shift::detail {

// Opens the file for appending, a regular one of the process's user with one name, or makes it for
// its owner alone. Never waits. Returns the descriptor, which fork children share, or -1 with the
// reason in `problem`.
int append_file_open(const char* path, const char*& problem) noexcept;

// Gives the file or socket a descriptor that is far from those of the program, closes `fd`, and
// returns the new one. Programs that turn into daemons close low descriptors and reuse their
// numbers. Where no high number is allowed, it is `fd` itself.
int move_high(int fd) noexcept;

}  // namespace shift::detail
