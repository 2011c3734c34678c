// A write(2) that cannot hurt the program that the layer runs in.
#pragma once

#include <cstddef>

namespace shift::detail {

// Makes one write of at most PIPE_BUF bytes, and returns whether all of them were taken. It keeps
// errno, and neither a broken pipe nor a file at its limit (RLIMIT_FSIZE) raises a signal in the
// program. When a terminal or pipe is full because its reader stands still, the bytes are dropped
// and the call does not wait.
bool guest_write(int fd, const char* data, size_t size) noexcept;

// Appends printf-style to buffer[size] at `used`, and cuts what does not fit; `used` stays below
// `size`.
[[gnu::format(printf, 4, 5)]] void append_format(char* buffer, size_t size, size_t& used,
                                                 const char* format, ...) noexcept;

}  // namespace shift::detail
