// A network namespace that a test program makes for itself.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace shift::net::test {

// Runs "ip" with these words; returns its status.
inline int ip_command(const std::string& words) {
  return std::system(("ip " + words + " >/dev/null 2>&1").c_str());
}

inline void file_write(const char* path, const std::string& text) {
  std::ofstream(path) << text;
}

// Moves the calling thread, and threads that it makes later, into a new namespace. Returns false
// when that is not allowed here.
inline bool namespace_enter() {
  const uid_t uid = getuid();
  if (unshare(CLONE_NEWNET) == 0) return true;
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  file_write("/proc/self/setgroups", "deny");
  file_write("/proc/self/uid_map", "0 " + std::to_string(uid) + " 1");
  return true;
}

}  // namespace shift::net::test
