// Puts the fronts before the stock libraries for all programs of the system, and takes them away.
#pragma once

#include <map>
#include <string>

#include "layout.h"

namespace shift::system {

enum class State {
  kOff,     // no file names the fronts' folder, and no program finds a front
  kOn,      // the file is there, and programs find the fronts
  kBetween  // neither of the two
};

struct Standing {
  State state = State::kOff;
  std::map<std::string, std::string> found;  // what programs find, by the library's name
  std::string problem;  // why that is unknown, or what is wrong between the two
};

Standing standing_read(const Layout& layout);

// Each of these does nothing that is done already, and returns an empty string, or why it did not
// work; then all is as it was before. Two that run at a time wait for each other.
std::string enable(const Layout& layout);
std::string disable(const Layout& layout);

}  // namespace shift::system
