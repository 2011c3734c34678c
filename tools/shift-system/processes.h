// Which processes use a libibverbs, and whether it is SHIFT's.
#pragma once

#include <string>
#include <vector>

#include "layout.h"

namespace shift::system {

struct Process {
  int pid;
  std::string name;
  std::string library;  // the file that it uses
};

struct Processes {
  std::vector<Process> without;  // they have a libibverbs, and no front
  std::vector<Process> old;      // their front has been replaced or removed since they loaded it
  int with = 0;                  // how many have a front
  int unknown = 0;               // how many may not be looked at
};

Processes processes_read(const Layout& layout);

}  // namespace shift::system
