// Whether the kernel can tell which memory a program may read or write.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace cxemu {

// Linux can from 5.14 on, by MADV_POPULATE_READ and _WRITE. User-mode QEMU accepts every advice and
// follows none of these, so they must also refuse a page that nobody may read. Where this is false,
// only mappings can be checked, and not their permissions.
inline bool populate_supported() {
  static const bool supported = [] {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* at = mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return false;
    const bool takes = madvise(at, page, MADV_POPULATE_READ) == 0;
    const bool refuses =
        mprotect(at, page, PROT_NONE) == 0 && madvise(at, page, MADV_POPULATE_READ) != 0;
    munmap(at, page);
    return takes && refuses;
  }();
  return supported;
}

}  // namespace cxemu
