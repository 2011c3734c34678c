// Checks of application memory.
#include "uverbs/memory_check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "fabric/populate.h"

namespace cxemu {
namespace {

int mapped_check(uintptr_t first, uintptr_t end, uintptr_t page_size) {
  std::vector<unsigned char> present(4096);
  for (uintptr_t at = first; at < end;) {
    const uintptr_t length = std::min<uintptr_t>(end - at, present.size() * page_size);
    if (mincore(reinterpret_cast<void*>(at), length, present.data()) != 0) return EFAULT;
    at += length;
  }
  return 0;
}

}  // namespace

int memory_check(uint64_t start, uint64_t length, bool writable) {
  const auto page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  if (length == 0 || start + length < start || start + length + page_size < start) return EINVAL;
  const uintptr_t first = start & ~(page_size - 1);
  const uintptr_t end = (start + length + page_size - 1) & ~(page_size - 1);
  if (!populate_supported()) return mapped_check(first, end, page_size);
  while (madvise(reinterpret_cast<void*>(first), end - first,
                 writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) != 0) {
    if (errno != EINTR && errno != EAGAIN) return EFAULT;
  }
  return 0;
}

bool memory_read(void* to, uint64_t from, size_t length) {
  // The kernel copies for us and reports EFAULT instead of raising SIGSEGV.
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  const auto size = static_cast<ssize_t>(length);
  const bool copied = write(ends[1], reinterpret_cast<const void*>(from), length) == size &&
                      read(ends[0], to, length) == size;
  close(ends[0]);
  close(ends[1]);
  return copied;
}

}  // namespace cxemu
