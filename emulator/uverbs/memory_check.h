// Acts as the kernel does when it pins user memory: makes every page present, and refuses memory
// that is not mapped or not writable.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cxemu {

// Returns 0, EINVAL for a range that wraps or is empty, or EFAULT for memory that does not permit
// this use.
int memory_check(uint64_t start, uint64_t length, bool writable);

// Copies from an arbitrary address. Returns false when it cannot be read.
bool memory_read(void* to, uint64_t from, size_t length);

}  // namespace cxemu
