// Files of the emulated sysfs that are written when they are opened: port state, GIDs, counters.
#pragma once

namespace cxemu {

class Guest;

inline constexpr int kNotLive = -2;

// Opens `path`, a path inside the real file system, if it is such a file of the host's tree. A new
// descriptor; -1 with errno when the kernel would fail; kNotLive when it is no such file.
int live_file_open(const Guest& guest, const char* path, int flags);

}  // namespace cxemu
