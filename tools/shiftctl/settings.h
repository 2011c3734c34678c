// The settings of a process: each key with its value and where that comes from.
#pragma once

#include <string>
#include <vector>

#include "process_file.h"

namespace shift::ctl {

struct Setting {
  std::string name, value, source;
};

// Those that the process has told of itself; lines that are none are left out.
std::vector<Setting> settings_of(const Process& process);

std::string settings_text(const std::vector<Setting>& settings);

}  // namespace shift::ctl
