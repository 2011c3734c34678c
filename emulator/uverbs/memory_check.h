// What the kernel does when it pins user memory: makes every page present, and refuses memory that
// is not mapped or not writable.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cxemu {

// 0, EINVAL for a range that wraps or is empty, EFAULT for memory that cannot be used so.
int memory_check(uint64_t start, uint64_t length, bool writable);

// Copies from an address that may be anything. False when it cannot be read.
bool memory_read(void* to, uint64_t from, size_t length);

}  // namespace cxemu
