// For tests in which one thread must not go on before another thread waits.
#pragma once

#include <sys/types.h>

#include <fstream>
#include <string>

namespace shift::group {

// Whether this thread of the process, by its gettid(2), waits in the kernel.
inline bool is_asleep(pid_t thread) {
  std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(stat, line);
  const size_t name_end = line.rfind(')');
  return name_end != std::string::npos && line[name_end + 2] == 'S';
}

}  // namespace shift::group
