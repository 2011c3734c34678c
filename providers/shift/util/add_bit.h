// Counting without a branch on the hot path.
#pragma once

#include <cstdint>

namespace shift {

// Adds a bit of `word` to `total`: that of the number in the low six bits of `index`. It is two//
// instructions; g++ makes four.
[[gnu::always_inline]] inline void add_bit(uint32_t& total, uint64_t word, uint64_t index) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
  asm("btq %[index], %[word]\n\tadcl $0, %[total]"
      : [total] "+rm"(total)
      : [word] "r"(word), [index] "rJ"(index)
      : "cc");
#else
  total += static_cast<uint32_t>(word >> (index & 63) & 1);
#endif
}

}  // namespace shift
