// Files of the emulated sysfs whose content is made when they are opened: port state, GIDs,
// counters.
#pragma once

namespace cxemu {

class Guest;

inline constexpr int kNotLive = -2;

// Opens `path`, a path in the real file system, if it is such a file in the host's tree. Returns a
// new descriptor, -1 with errno when the kernel would fail, or kNotLive for any other path.
int live_file_open(const Guest& guest, const char* path, int flags);

}  // namespace cxemu
