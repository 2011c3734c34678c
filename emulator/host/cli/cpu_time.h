// How busy this machine's processors are.
#pragma once

#include <fstream>
#include <string>

namespace cxemu {

// Time of all processors since the machine was started, in ticks.
struct CpuTime {
  double busy = 0, all = 0;
};

inline CpuTime cpu_time() {
  std::ifstream file("/proc/stat");
  std::string name;
  file >> name;
  CpuTime time;
  double ticks;
  for (int i = 0; i < 8 && file >> ticks; ++i) {
    time.all += ticks;
    if (i != 3 && i != 4) time.busy += ticks;  // idle, waiting for a disk
  }
  return time;
}

}  // namespace cxemu
