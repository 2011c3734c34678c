// What is wrong with /etc/shift.conf, which every verbs program would say again.
#pragma once

#include <string>
#include <vector>

#include "layout.h"

namespace shift::system {

struct Settings {
  bool exists = false;
  std::vector<std::string> problems;  // one line each
};

Settings settings_check(const Layout& layout);

}  // namespace shift::system
