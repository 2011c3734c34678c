// write(2) that cannot hurt the program we are a guest of.
#pragma once

#include <cstddef>

namespace shift::detail {

// One write of at most PIPE_BUF bytes. Keeps errno; a broken pipe raises no SIGPIPE in the program.
// A terminal or pipe that is full because its reader stands still takes nothing, and is not waited
// for.
void guest_write(int fd, const char* data, size_t size) noexcept;

// Appends printf-style to buffer[size] at `used`, cut at the end; `used` stays below `size`.
[[gnu::format(printf, 4, 5)]] void append_format(char* buffer, size_t size, size_t& used,
                                                 const char* format, ...) noexcept;

}  // namespace shift::detail
