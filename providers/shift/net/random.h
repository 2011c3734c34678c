// Random numbers that nobody can guess.
#pragma once

#include <sys/random.h>

#include <cstdint>
#include <span>

namespace shift::net {

// Fills `out` from the kernel's source of randomness. False where there is none, as in old
// sandboxes.
[[nodiscard]] inline bool random_fill(std::span<uint8_t> out) {
  return getrandom(out.data(), out.size(), 0) == static_cast<ssize_t>(out.size());
}

}  // namespace shift::net
